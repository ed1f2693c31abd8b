"""What every source is, and the collecting of rows that most of them share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from forerun.record.names import our_name
from forerun.record.run import RunInfo, Segment
from forerun.record.series import RunRecord, Series, TableRecord, series_of

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Steps, values and Unix seconds of one metric's rows."""
LEADING = ("loss_nats", "objective", "grad_norm")
"""Whose steps say where a run went back."""
MAX_REWINDS_SHARE = 0.02  # assumed: of a metric's rows; a file that goes back more often is not in writing order


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
        rows = {name: in_writing_order(*columns) for name, columns in self._rows.items()}
        table: dict[str, Series] = {name: series_of(*without_undone(*columns)) for name, columns in rows.items()}
        if "loss_nats" not in table and "objective" in table:  # a tracker with one loss calls it train/loss
            table["loss_nats"] = table["objective"]
        segments, events = list(self.segments) or [Segment(run_id=self.run_id, first_step=0, time=0.0)], list(self.events)
        leading = next((name for name in LEADING if name in rows), max(rows, key=lambda name: len(rows[name][0]), default=""))
        if len(segments) == 1 and leading:
            for back in rewinds(rows[leading][0]):
                step, when = int(rows[leading][0][back]), float(np.nan_to_num(rows[leading][2][back]))
                segments.append(Segment(run_id=self.run_id, first_step=step, time=when))
                events.append({"kind": "rewound", "step": step, "time": when, "from_step": int(rows[leading][0][:back].max())})
        info = RunInfo(run_id=self.run_id, created=segments[0].time or time.time(), num_steps=self.num_steps, segments=tuple(segments))
        return TableRecord(info=info, table=table, event_list=sorted(events, key=lambda event: event["time"]))


def in_writing_order(step: list[int], value: list[float], when: list[float]) -> Columns:
    """Rows as they were written: by time where every row has one, else as they came."""
    steps, values, times = np.array(step, np.int64), np.array(value, np.float64), np.array(when, np.float64)
    if np.isfinite(times).all() and np.any(times[1:] < times[:-1]):
        order = np.argsort(times, kind="stable")
        return steps[order], values[order], times[order]
    return steps, values, times


def rewinds(step: np.ndarray) -> list[int]:
    """Rows at which a run went back to an earlier step; none where rows are simply unordered."""
    back = (np.flatnonzero(step[1:] < step[:-1]) + 1).tolist()
    return back if len(back) <= MAX_REWINDS_SHARE * len(step) else []


def without_undone(step: np.ndarray, value: np.ndarray, when: np.ndarray) -> Columns:
    """Without rows of steps that the run later went back behind: they are no part of its course any more."""
    keep = np.ones(len(step), bool)
    for back in rewinds(step):
        keep[:back] &= step[:back] < step[back]
    return step[keep], value[keep], when[keep]
