"""Signs of life: heartbeats with the phase a process is in, and a watchdog that says where it hangs before it ends it."""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from forerun.record.journal import Journal

HEARTBEAT_S = 30.0  # assumed: a tenth of the silence `watch` allows before it speaks
STALLED_EXIT_CODE = 75  # derived: sysexits.h EX_TEMPFAIL, which schedulers restart


class SignsOfLife(Journal):
    """The journal of a process that is not the first of its run: heartbeats and stalls; the first process records everything else."""

    def log(self, step: int, metrics: dict[str, Any], *, when: float | None = None) -> None:
        """Nothing: every process has the same numbers."""

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Heartbeats and stalls."""
        if kind in ("heartbeat", "stalled"):
            super().event(kind, step, **fields)


class Pulse:
    """Writes a `heartbeat` event every `HEARTBEAT_S` and watches that the phase moves. Use as a context manager.

    Args:
        watchdog_s: longest any single phase may last; after it the stacks of all threads are written to `stacks-<rank>.txt` in the run's
            folder, a `stalled` event names the phase, and the process ends with `STALLED_EXIT_CODE`. 0 never ends it.
    """

    def __init__(self, journal: Journal, *, rank: int = 0, watchdog_s: float = 0.0, every_s: float = HEARTBEAT_S) -> None:
        self._journal, self._rank, self._watchdog_s, self._every_s = journal, rank, watchdog_s, every_s
        self._phase, self._step, self._since = "start", 0, time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="forerun-pulse", daemon=True)

    def phase(self, name: str, step: int) -> None:
        """Say what is being done now; every call counts as progress."""
        self._phase, self._step, self._since = name, step, time.monotonic()

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        cpu, wall = time.process_time(), time.monotonic()
        pause = min(self._every_s, self._watchdog_s / 4) if self._watchdog_s else self._every_s
        last_beat = 0.0
        while not self._stop.wait(pause):
            now = time.monotonic()
            if now - last_beat >= self._every_s:
                used = (time.process_time() - cpu) / max(now - wall, 1e-9)
                self._journal.event("heartbeat", self._step, rank=self._rank, phase=self._phase, cpu=round(used, 3))
                cpu, wall, last_beat = time.process_time(), now, now
            if self._watchdog_s and now - self._since > self._watchdog_s:
                self._end()

    def _end(self) -> None:
        stacks = self._journal.folder.parent / f"stacks-{self._rank}.txt"
        write_stacks(stacks)
        self._journal.event(
            "stalled", self._step, rank=self._rank, phase=self._phase, after_s=round(time.monotonic() - self._since, 1), stacks=stacks.name
        )
        os._exit(STALLED_EXIT_CODE)  # a hung native call cannot be interrupted, and the record is already on disk


def write_stacks(path: Path) -> None:
    """The Python stacks of all threads, durably."""
    with path.open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        os.fsync(file.fileno())
