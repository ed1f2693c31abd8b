"""What every source is, and the collecting of rows that most of them share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Protocol

import numpy as np

from forerun.record.names import our_name
from forerun.record.run import RunInfo, Segment
from forerun.record.series import RunRecord, Series, TableRecord, series_of

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Steps, values and Unix seconds of one metric's rows."""
Rows = tuple[list[int], list[float], list[float]]
"""The same while they are gathered."""
LEADING = ("loss_nats", "objective", "grad_norm")
"""Whose steps say where a run went back."""
MAX_REWINDS_SHARE = 0.02  # assumed: of a metric's rows; a file that goes back more often is not in writing order

SUMMARY_SHARE = 0.1  # assumed: fewer rows than this share of another spelling's are a summary (a trainer's last row), not a course


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
        self._rows: dict[str, dict[str, Rows]] = {}
        """By our name, then by the foreign one."""

    def add(self, foreign: str, step: int, value: Any, when: float = float("nan")) -> None:
        """One value of one foreign metric; what is no number is left out."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        name, factor = our_name(foreign)
        rows = self._rows.setdefault(name, {}).setdefault(foreign, ([], [], []))
        rows[0].append(int(step))
        rows[1].append(float(value) * factor)
        rows[2].append(when)

    def add_row(self, step: int, row: Mapping[str, Any], when: float = float("nan"), skip: Iterable[str] = ()) -> None:
        """Many metrics of one step."""
        left_out = set(skip)
        for name, value in row.items():
            if name not in left_out:
                self.add(name, step, value, when)

    def record(self) -> TableRecord:
        """What was gathered; of equal steps the row added last counts."""
        rows = {name: in_writing_order(*_joined(list(spellings.values()))) for name, spellings in self._rows.items()}
        if "objective" in rows and len(rows.get("loss_nats", ((),))[0]) < SUMMARY_SHARE * len(rows["objective"][0]):
            rows["loss_nats"] = rows["objective"]  # a tracker with one loss calls it train/loss
        table: dict[str, Series] = {name: series_of(*without_undone(*columns)) for name, columns in rows.items()}
        segments, events = list(self.segments) or [Segment(run_id=self.run_id, first_step=0, time=0.0)], list(self.events)
        leading = next((name for name in LEADING if name in rows), max(rows, key=lambda name: len(rows[name][0]), default=""))
        if len(segments) == 1 and leading:
            for back in rewinds(rows[leading][0]):
                step, when = int(rows[leading][0][back]), float(np.nan_to_num(rows[leading][2][back]))
                segments.append(Segment(run_id=self.run_id, first_step=step, time=when))
                events.append({"kind": "rewound", "step": step, "time": when, "from_step": int(rows[leading][0][:back].max())})
        info = RunInfo(run_id=self.run_id, created=segments[0].time or time.time(), num_steps=self.num_steps, segments=tuple(segments))
        return TableRecord(info=info, table=table, event_list=sorted(events, key=lambda event: event["time"]))


def from_word(value: Any) -> Any:
    """Trackers write what JSON cannot say as the words NaN and Infinity; other values come as they are."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _joined(spellings: list[Rows]) -> Rows:
    """The rows of one metric under several names, those of mere summaries left out."""
    longest = max(len(rows[0]) for rows in spellings)
    kept = [rows for rows in spellings if len(rows[0]) >= SUMMARY_SHARE * longest]
    return kept[0] if len(kept) == 1 else tuple(list(chain.from_iterable(column)) for column in zip(*kept))  # type: ignore[return-value]


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
