"""What every source is, and the collecting of rows that most of them share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from forerun.record.names import our_name
from forerun.record.run import RunInfo, Segment
from forerun.record.series import RunRecord, Series, TableRecord, series_of


class Source(Protocol):
    """A run that can be read again and again."""

    def read(self) -> RunRecord:
        """Everything known so far. Raises: SourceError when the source cannot be read."""
        ...


class Collected:
    """Rows gathered over several reads, under our names; becomes a `TableRecord`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.num_steps = 0
        self.segments: list[Segment] = []
        self.events: list[dict[str, Any]] = []
        self._rows: dict[str, tuple[list[int], list[float], list[float]]] = {}

    def add(self, foreign: str, step: int, value: Any, when: float = float("nan")) -> None:
        """One value of one foreign metric; what is no number is left out."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        name, factor = our_name(foreign)
        rows = self._rows.setdefault(name, ([], [], []))
        rows[0].append(int(step))
        rows[1].append(float(value) * factor)
        rows[2].append(when)

    def add_row(self, step: int, row: Mapping[str, Any], when: float = float("nan"), skip: Iterable[str] = ()) -> None:
        """Many metrics of one step."""
        left_out = set(skip)
        for name, value in row.items():
            if name not in left_out:
                self.add(name, step, value, when)

    def last_step(self, foreign: str) -> int:
        """Largest step seen of a foreign metric; -1 when none."""
        rows = self._rows.get(our_name(foreign)[0])
        return max(rows[0], default=-1) if rows else -1

    def record(self) -> TableRecord:
        """What was gathered; of equal steps the row added last counts."""
        table: dict[str, Series] = {name: series_of(*rows) for name, rows in self._rows.items()}
        segments = tuple(self.segments) or (Segment(run_id=self.run_id, first_step=0, time=0.0),)
        info = RunInfo(run_id=self.run_id, created=segments[0].time or time.time(), num_steps=self.num_steps, segments=segments)
        return TableRecord(info=info, table=table, event_list=sorted(self.events, key=lambda event: event["time"]))
