"""Following a run's journals: new rows as they are written, and any earlier ones again for a reader that was away.

A reader's place is the number of rows it has of each writer, as `0=120,1=7`. Row numbers never change, whether a row is in the
journal or sealed, so a place stays good over reconnects, seals and restarts of the server.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

from forerun.record.rows import read_rows
from forerun.record.segments import first_row_of, segment_files

KEPT_BATCHES = 512  # assumed: readers further behind read the files
BATCH_ROWS = 1000  # assumed: rows of one message; 70 metrics a row are about 1.5 MB


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one writer."""

    writer: int
    first_row: int
    rows: tuple[Mapping[str, Any], ...]
    """As the journal has them: step, time and metrics."""

    @property
    def end(self) -> int:
        """Number of the row after the last."""
        return self.first_row + len(self.rows)

    def after(self, row: int) -> Batch:
        """What a reader that has all rows below `row` still lacks."""
        skip = max(row - self.first_row, 0)
        return Batch(self.writer, self.first_row + skip, self.rows[skip:]) if skip else self


def parse_place(text: str) -> dict[int, int]:
    """`0=120,1=7` as rows by writer; what is not a place is the beginning."""
    return {int(writer): int(rows) for writer, rows in re.findall(r"(?:^|,)(\d{1,9})=(\d{1,15})(?=,|$)", text)}


def format_place(place: Mapping[int, int]) -> str:
    """Rows by writer as text."""
    return ",".join(f"{writer}={rows}" for writer, rows in sorted(place.items()))


class Feed:
    """One run followed. `poll` reads what is new; `missing` gives a reader what it lacks."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._tails: dict[int, _Tail] = {}
        self._started = False
        self.batches: deque[Batch] = deque(maxlen=KEPT_BATCHES)

    @property
    def place(self) -> dict[int, int]:
        """Rows read so far of each writer."""
        return {writer: tail.next_row for writer, tail in self._tails.items()}

    def poll(self) -> list[Batch]:
        """Read what was written since the last call. The first call only finds the present end."""
        found = []
        for folder in self._run_dir.glob("w*"):
            if not folder.name[1:].isdigit():
                continue
            writer = int(folder.name[1:])
            tail = self._tails.setdefault(writer, _Tail(folder, wants_sealed=self._started))
            rows = tail.read()
            tail.wants_sealed = True
            if self._started:
                found += _batches(writer, tail.next_row - len(rows), rows)
        self._started = True
        self.batches.extend(found)
        return found

    def missing(self, place: Mapping[int, int]) -> Iterator[Batch]:
        """What a reader lacks up to `self.place`, from memory or, further back, from the files."""
        for writer, end in self.place.items():
            have = place.get(writer, 0)
            recent = [batch for batch in list(self.batches) if batch.writer == writer and batch.end > have]
            first = recent[0].first_row if recent else end
            if have < first:
                rows = rows_between(self._run_dir / f"w{writer}", have, first)
                yield from _batches(writer, have, rows)
            yield from (batch.after(have) for batch in recent)


class _Tail:
    """One writer's journal, read on from where the last read ended. Another journal has another first line: it names its first row."""

    def __init__(self, folder: Path, *, wants_sealed: bool) -> None:
        self.wants_sealed = wants_sealed
        self._folder, self._path = folder, folder / "journal.jsonl"
        self._head, self._offset, self._number = b"", 0, 0
        self.next_row = 0

    def read(self) -> list[dict[str, Any]]:
        """Rows since the last read; those sealed away in between are read from their segments."""
        try:
            with self._path.open("rb") as file:
                head = file.readline()
                if head != self._head or os.fstat(file.fileno()).st_size < self._offset:
                    self._head, self._offset, self._number = head, 0, 0
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            content = b""
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        rows: list[dict[str, Any]] = []
        for line in content[:whole].split(b"\n"):
            rows += self._line(line)
        return rows

    def _line(self, line: bytes) -> list[dict[str, Any]]:
        try:
            row = orjson.loads(line) if line else None
        except orjson.JSONDecodeError:
            return []
        if not isinstance(row, dict):
            return []
        if "journal" in row:
            self._number = int(row["journal"]["first_row"])
            sealed = rows_between(self._folder, self.next_row, self._number) if self.wants_sealed and self._number > self.next_row else []
            self.next_row = max(self.next_row, self._number)
            return sealed
        if "step" not in row or "time" not in row:
            return []
        self._number += 1
        if self._number <= self.next_row:
            return []
        self.next_row = self._number
        return [row]


def rows_between(folder: Path, first: int, end: int) -> list[dict[str, Any]]:
    """Rows `first` to `end` of one writer, sealed or not."""
    rows: list[dict[str, Any]] = []
    at = first
    for path in segment_files(folder):
        begin = first_row_of(path)
        if begin + pq.read_metadata(path).num_rows <= at or begin >= end:
            continue
        table = pq.read_table(path).slice(max(at - begin, 0), end - at)
        rows += [{name: value for name, value in row.items() if value is not None and name != "segment"} for row in table.to_pylist()]
        at = first + len(rows)
    if at < end:
        rows += read_rows(folder / "journal.jsonl", skip_rows=at).content[: end - at]
    return rows


def _batches(writer: int, first_row: int, rows: list[dict[str, Any]]) -> list[Batch]:
    return [Batch(writer, first_row + at, tuple(rows[at : at + BATCH_ROWS])) for at in range(0, len(rows), BATCH_ROWS)]
