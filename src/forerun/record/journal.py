"""The writer: one append-only journal per writing process, sealed into Parquet segments.

A row handed to `log` is in the kernel when the call returns, so `kill -9` loses nothing acknowledged; it is on the disk at most
`FSYNC_EVERY_S` later, which is what a power cut can cost. A write that fails raises, now or at the next call.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from forerun.base.errors import RecordError, StorageError
from forerun.base.files import storage_errors
from forerun.record.mirror import Mirror
from forerun.record.rows import RESERVED, read_rows
from forerun.record.run import load_run
from forerun.record.segments import next_row, seal

FSYNC_EVERY_S = 1.0  # derived: the window the documentation promises
SEAL_ROWS = 20_000  # measured: 50 metrics a row seal in about 0.4 s, and a 1M-step run is 50 files
SEAL_AGE_S = 86_400.0  # assumed: a slow run is readable as Parquet after a day


class Journal:
    """Appends one writer's rows and events to a run. Use as a context manager, or call `close`.

    Args:
        run_dir: `runs/<id>`, with a `run.json` made by `start_run`.
        writer: number of the writing process; each has a folder of its own and nobody else writes there.
        mirror: another tracker that gets every row too; its failure is an event, never an error.
    Raises: RecordError when another live process holds this writer's journal.
    """

    def __init__(self, run_dir: Path, writer: int = 0, *, mirror: Mirror | None = None) -> None:
        self.folder = run_dir / f"w{writer}"
        self.path = self.folder / "journal.jsonl"
        self._segment = max(len(load_run(run_dir).segments) - 1, 0)
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_file = _only_writer(self.folder)
            self._events = os.open(self.folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _end_torn_line(self.folder / "events.jsonl", self._events)
        self._lock = threading.Lock()
        self._mirror = mirror
        self._failure: OSError | None = None
        self._torn = self._dirty = False
        self._closed = threading.Event()
        self._resume()
        self._syncer = threading.Thread(target=self._sync_every_second, name="journal-fsync", daemon=True)
        self._syncer.start()

    def log(self, step: int, metrics: dict[str, Any], *, when: float | None = None) -> None:
        """Append one row. Values are anything `float` takes; NaN and infinities are kept.

        Args:
            when: Unix seconds of the row; now unless it comes from elsewhere.
        Raises: RecordError for a reserved name or a value that is no number; StorageError when the disk refuses.
        """
        row: dict[str, Any] = {"step": int(step), "time": time.time() if when is None else when}
        try:
            row.update({name: float(value) for name, value in metrics.items()})
        except (TypeError, ValueError):
            raise RecordError(
                f"metrics at step {step} must be numbers, got {_not_numbers(metrics)}", hint="log text with `event`"
            ) from None
        if not RESERVED.isdisjoint(metrics):
            raise RecordError(f"a metric cannot be named {sorted(RESERVED & set(metrics))}", hint="choose a name from the glossary")
        if not all(map(math.isfinite, row.values())):
            row = {name: value if math.isfinite(value) else _spelled(value) for name, value in row.items()}
        with self._lock:
            self._raise_failure()
            self._append(orjson.dumps(row) + b"\n")
            self._num_rows += 1
            if self._num_rows >= SEAL_ROWS or time.monotonic() - self._opened > SEAL_AGE_S:
                self._seal()
        if self._mirror is not None:
            problem = self._mirror.send(step, {name: float(value) for name, value in metrics.items()})
            if problem:
                self.event("mirror_failed", step, message=problem)

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Append one typed event, durable when the call returns. `fields` are plain data."""
        record = {"kind": kind, "step": int(step), "time": time.time(), "segment": self._segment, **fields}
        with self._lock, storage_errors(self.folder / "events.jsonl"):
            os.write(self._events, orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
            os.fsync(self._events)

    def close(self) -> None:
        """Seal what is left and let go of the files. A second call does nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._syncer.join()
        if self._mirror is not None:
            self._mirror.close()
        with self._lock:
            try:
                self._raise_failure()
                if self._num_rows:
                    self._seal()
            finally:
                for handle in (self._journal, self._events, self._lock_file):
                    os.close(handle)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _resume(self) -> None:
        """Continue after whatever is on disk: a torn line is ended, rows already sealed are not sealed again."""
        sealed = next_row(self.folder)
        rows = read_rows(self.path, skip_rows=sealed)
        if self.path.exists() and rows.content:
            self._open_journal(os.O_APPEND)
            _end_torn_line(self.path, self._journal)
        else:
            self._start_journal(sealed)
        self._num_rows = len(rows.content)
        self._append(orjson.dumps({"segment": self._segment}) + b"\n")

    def _start_journal(self, first_row: int) -> None:
        """Put an empty journal in place of the sealed one; a reader sees the one or the other."""
        with storage_errors(self.path):
            beside = self.path.with_name(f".journal.{os.getpid()}.part")
            beside.write_bytes(
                orjson.dumps({"journal": {"schema": 1, "first_row": first_row}}) + b"\n" + orjson.dumps({"segment": self._segment}) + b"\n"
            )
            os.replace(beside, self.path)
            self._open_journal(os.O_APPEND)
            os.fsync(self._journal)

    def _open_journal(self, mode: int) -> None:
        with storage_errors(self.path):
            self._journal = os.open(self.path, os.O_WRONLY | mode)
        self._opened = time.monotonic()

    def _append(self, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line
        with storage_errors(self.path):
            self._torn = True
            written = os.write(self._journal, line)
            self._torn = written < len(line)
        if self._torn:
            raise StorageError(
                f"cannot write {self.path}: only {written} of {len(line)} bytes fitted", hint="free space; the run can be resumed"
            )
        self._dirty = True

    def _seal(self) -> None:
        with storage_errors(self.path):
            os.fsync(self._journal)
            first_row = seal(self.folder)
            os.close(self._journal)
        self._start_journal(first_row)
        self._num_rows, self._dirty = 0, False

    def _sync_every_second(self) -> None:
        while not self._closed.wait(FSYNC_EVERY_S):
            with self._lock:
                self._sync()
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        if not self._dirty or self._failure:
            return
        try:
            os.fsync(self._journal)
            self._dirty = False
        except OSError as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure:
            raise StorageError(
                f"{self.path} could not be made durable: {self._failure}", hint="rows since the last second may be lost; check the disk"
            )


def _only_writer(folder: Path) -> int:
    """Hold the folder's lock for this process; file systems without locks are taken on trust."""
    handle = os.open(folder / "writer.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RecordError(f"{folder} is being written by another process", hint="stop it, or log under another writer number") from None
    except OSError:
        return handle
    return handle


def _end_torn_line(path: Path, handle: int) -> None:
    """Give a half-written last line its end, so that the next line starts cleanly."""
    data = path.read_bytes()[-1:]
    if data and data != b"\n":
        with storage_errors(path):
            os.write(handle, b"\n")


def _spelled(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _not_numbers(metrics: dict[str, Any]) -> str:
    wrong = []
    for name, value in metrics.items():
        try:
            float(value)
        except (TypeError, ValueError):
            wrong.append(f"{name}={value!r}")
    return ", ".join(wrong)
