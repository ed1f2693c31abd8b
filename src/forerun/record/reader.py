"""The reader: sealed segments and the live journal of a run as one clean series per metric."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq

from forerun.base.errors import RecordError
from forerun.record.rows import Rows, columns_of, read_rows
from forerun.record.run import RunInfo, load_run
from forerun.record.segments import first_row_of, segment_files
from forerun.record.series import EMPTY, Series, series_of


def open_run(run_dir: Path) -> JournalRecord:
    """A snapshot of a run, live or finished. Raises: RecordError when the folder holds no run."""
    run_dir = Path(run_dir)
    info = load_run(run_dir)
    return JournalRecord(run_dir, info, {number: _writer(folder) for number, folder in _writer_folders(run_dir)})


@dataclass(frozen=True)
class Writer:
    """What one writer has left so far."""

    folder: Path
    sealed: list[tuple[Path, pq.FileMetaData]]
    """Segment files, oldest first."""
    tail: Rows
    """Rows not sealed yet."""


class JournalRecord:
    """One run from its own files. Satisfies `RunRecord`."""

    def __init__(self, run_dir: Path, info: RunInfo, writers: dict[int, Writer]) -> None:
        self.run_dir, self.info, self._writers = run_dir, info, writers
        self._tails = {number: columns_of(writer.tail.content) for number, writer in writers.items()}

    def writers(self) -> list[int]:
        """Numbers of the writing processes, ascending."""
        return sorted(self._writers)

    def metrics(self, writer: int | None = None) -> list[str]:
        """Names of all metrics (of one writer), sorted."""
        numbers = self.writers() if writer is None else [writer]
        return sorted(set().union(*(self._names(number) for number in numbers)) if numbers else [])

    def series(self, metric: str, writer: int | None = None) -> Series:
        """One metric, stitched: rows that a later segment trained again are left out.

        Args:
            writer: whose; by default the lowest-numbered writer that has the metric.
        """
        for number in self.writers() if writer is None else [writer]:
            if metric in self._names(number):
                return self._stitched(number, metric)
        return EMPTY

    def by_writer(self, metric: str) -> dict[int, Series]:
        """One metric per writing process that has it."""
        return {number: self._stitched(number, metric) for number in self.writers() if metric in self._names(number)}

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Typed events of all writers in time order; those of replaced stretches are kept, they happened."""
        found = [event for writer in self._writers.values() for event in _read_events(writer.folder)]
        return sorted((event for event in found if kind in (None, event["kind"])), key=lambda event: event["time"])

    @property
    def num_torn_lines(self) -> int:
        """Journal lines that a crash left half-written; each is one row lost, or none when it was never acknowledged."""
        sealed = sum(int((meta.metadata or {}).get(b"torn_lines", 0)) for writer in self._writers.values() for _, meta in writer.sealed)
        return sealed + sum(writer.tail.torn_lines for writer in self._writers.values())

    @property
    def last_step(self) -> int:
        """Largest step on the trajectory, -1 before the first row."""
        cuts = _cuts(self.info)
        last = -1
        for writer in self._writers.values():
            for path, meta in writer.sealed:
                if len(self.info.segments) < 2:
                    last = max(last, _largest_step(meta))
                    continue
                table = pq.read_table(path, columns=["step", "segment"])
                last = max(last, _last_kept(table["step"].to_numpy(), table["segment"].to_numpy(), cuts))
            step = np.fromiter((row["step"] for row in writer.tail.content), np.int64, len(writer.tail.content))
            last = max(last, _last_kept(step, np.asarray(writer.tail.segment, np.int32), cuts))
        return last

    def rows_written(self) -> dict[int, int]:
        """Rows of each writer so far, sealed or not: the number its next row will have."""
        return {number: writer.tail.first_row + len(writer.tail.content) for number, writer in self._writers.items()}

    def writer_of(self, metric: str) -> int | None:
        """The lowest-numbered writer that has the metric."""
        return next((number for number in self.writers() if metric in self._names(number)), None)

    def segment_paths(self, writer: int, metric: str) -> list[Path]:
        """The sealed files of one writer that hold the metric, oldest first."""
        return [path for path, meta in self._writers[writer].sealed if metric in meta.schema.names]

    def tail_rows(self, writer: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values not sealed yet, replaced stretches left out."""
        step, value, _ = _kept(self._tail_part(writer, metric), self.info)
        return step, value

    def is_cut(self, path: Path) -> bool:
        """Whether a later segment replaced rows of this file, or may have logged its steps again."""
        if len(self.info.segments) < 2:
            return False
        table = pq.read_table(path, columns=["step", "segment"])
        cuts = _cuts(self.info)[np.minimum(table["segment"].to_numpy(), len(self.info.segments))]
        return bool((table["step"].to_numpy() >= cuts).any())

    def _names(self, number: int) -> set[str]:
        writer = self._writers.get(number)
        if writer is None:
            raise RecordError(f"{self.run_dir} has no writer {number}", hint=f"writers here: {self.writers()}")
        sealed = {name for _, meta in writer.sealed for name in meta.schema.names}
        return (sealed - {"step", "time", "segment"}) | set(self._tails[number])

    def _stitched(self, number: int, metric: str) -> Series:
        writer, parts = self._writers[number], []
        for path, meta in writer.sealed:
            if metric in meta.schema.names:
                parts.append(_sealed_part(path, metric))
        parts.append(self._tail_part(number, metric))
        step, value, time = _kept(tuple(np.concatenate(arrays) for arrays in zip(*parts)), self.info)
        return series_of(step, value, time)

    def _tail_part(self, number: int, metric: str) -> tuple[np.ndarray, ...]:
        """step, time, segment and value of the rows that are not sealed yet."""
        tail, column = self._writers[number].tail, self._tails[number].get(metric)
        if column is None:
            return np.empty(0, np.int64), np.empty(0), np.empty(0, np.int32), np.empty(0)
        there = ~np.ma.getmaskarray(column)
        rows = [row for row, kept in zip(tail.content, there) if kept]
        step, time = np.array([row["step"] for row in rows], np.int64), np.array([row["time"] for row in rows], np.float64)
        return step, time, np.asarray(tail.segment, np.int32)[there], np.ma.getdata(column)[there]


def kept_rows(path: Path, metric: str, info: RunInfo) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one sealed file, replaced stretches left out."""
    step, value, _ = _kept(_sealed_part(path, metric), info)
    return step, value


def _sealed_part(path: Path, metric: str) -> tuple[np.ndarray, ...]:
    table = pq.read_table(path, columns=["step", "time", "segment", metric]).drop_null()
    return tuple(table[name].to_numpy() for name in ("step", "time", "segment", metric))


def _kept(part: tuple[np.ndarray, ...], info: RunInfo) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """step, value and time of the rows no later segment replaced."""
    step, time, segment, value = part
    keep = step < _cuts(info)[np.minimum(segment, len(info.segments))]
    return step[keep], value[keep], time[keep]


def _cuts(info: RunInfo) -> np.ndarray:
    """Per segment the first step a later segment replaced; one more entry, without a cut, for rows of a segment not listed yet."""
    never = np.iinfo(np.int64).max
    cuts = np.full(len(info.segments) + 1, never)
    for index in range(len(info.segments) - 2, -1, -1):
        cuts[index] = min(cuts[index + 1], info.segments[index + 1].first_step)
    return cuts


def _largest_step(meta: pq.FileMetaData) -> int:
    """Largest step of a sealed file, from its statistics; `step` is the first column."""
    return max(meta.row_group(group).column(0).statistics.max for group in range(meta.num_row_groups))


def _last_kept(step: np.ndarray, segment: np.ndarray, cuts: np.ndarray) -> int:
    keep = step < cuts[np.minimum(segment, len(cuts) - 1)]
    return int(step[keep].max()) if keep.any() else -1


def _writer_folders(run_dir: Path) -> list[tuple[int, Path]]:
    folders = [(folder.name[1:], folder) for folder in run_dir.glob("w*") if folder.is_dir()]
    return sorted((int(number), folder) for number, folder in folders if number.isdigit())


def _writer(folder: Path) -> Writer:
    """The journal is read before the segments are listed: a seal in between shows rows twice, never not at all."""
    tail = read_rows(folder / "journal.jsonl")
    sealed = [(path, _metadata(path)) for path in segment_files(folder)]
    end = first_row_of(sealed[-1][0]) + sealed[-1][1].num_rows if sealed else 0
    seen = max(end - tail.first_row, 0)
    return Writer(folder, sealed, Rows(tail.first_row + seen, tail.segment[seen:], tail.content[seen:], tail.torn_lines))


def _metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} is not a readable segment: {error}", hint="restore it from a copy; segments are written whole") from None


def _read_events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    events = []
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            event = orjson.loads(line) if line else None
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict) and {"kind", "step", "time"} <= set(event):
            events.append(event)
    return events
