"""A metric over steps, and what every reader of a run may ask of it, wherever the run came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from forerun.base.errors import RecordError
from forerun.record.run import RunInfo


@dataclass(frozen=True)
class Series:
    """One metric of one run: steps ascending, each step once."""

    step: np.ndarray
    """int64, finished optimizer steps."""
    value: np.ndarray
    """float64; NaN and infinities are kept, absent rows are not here."""
    time: np.ndarray
    """float64 Unix seconds; NaN where the source has none."""

    def __len__(self) -> int:
        return len(self.step)

    @property
    def last(self) -> float:
        """Value at the last step; NaN when the series is empty."""
        return float(self.value[-1]) if len(self.value) else float("nan")


class RunRecord(Protocol):
    """What watch, site, ladder and verdict know of a run."""

    @property
    def info(self) -> RunInfo:
        """What the run is, and its segments."""
        ...

    def metrics(self) -> list[str]:
        """Names of all metrics, sorted."""
        ...

    def series(self, metric: str) -> Series:
        """One metric, stitched over segments; empty when the run never logged it."""
        ...

    def by_writer(self, metric: str) -> dict[int, Series]:
        """One metric per writing process that has it: memory and heartbeats differ between hosts."""
        ...

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Typed events in time order: `kind`, `step`, `time` and the fields of that kind."""
        ...


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """A run held in memory: what foreign sources are read into."""

    info: RunInfo
    table: Mapping[str, Series]
    event_list: list[dict[str, Any]] = field(default_factory=list)

    def metrics(self) -> list[str]:
        """Names of all metrics, sorted."""
        return sorted(self.table)

    def series(self, metric: str) -> Series:
        """One metric; empty when absent."""
        return self.table.get(metric, EMPTY)

    def by_writer(self, metric: str) -> dict[int, Series]:
        """The metric as writer 0's; empty when absent."""
        return {0: self.table[metric]} if metric in self.table else {}

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Typed events in time order."""
        return [event for event in self.event_list if kind in (None, event["kind"])]


def series_of(step: Any, value: Any, time: Any = None) -> Series:
    """Build a series from unordered rows; of rows with equal steps the last given wins.

    Raises: RecordError when the lengths differ.
    """
    step = np.asarray(step, dtype=np.int64)
    value = np.asarray(value, dtype=np.float64)
    time = np.full(len(step), np.nan) if time is None else np.asarray(time, dtype=np.float64)
    if not len(step) == len(value) == len(time):
        raise RecordError(
            f"a series needs equally many steps, values and times, got {len(step)}, {len(value)}, {len(time)}", hint="mend the source"
        )
    if len(step) > 1 and not np.all(step[1:] > step[:-1]):
        order = np.argsort(step, kind="stable")
        step, value, time = step[order], value[order], time[order]
        last = np.append(step[1:] != step[:-1], True)
        step, value, time = step[last], value[last], time[last]
    return Series(step, value, time)


EMPTY = Series(np.empty(0, np.int64), np.empty(0), np.empty(0))
