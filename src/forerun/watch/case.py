"""What a rule may look at: the run, the forecast, the rungs, the limits and the clock."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from forerun.record.run import Segment, ending
from forerun.record.series import RunRecord, Series
from forerun.watch import detect
from forerun.watch.band import EVAL_LOSS, Band

LOSS = "loss_nats"
BROKEN = ("crash", "crashed", "stalled")
"""The endings nobody wanted."""
FROZEN_ROWS = 20  # assumed: equal float32 values in a row; two in a row already happen once in a million
MEMORY_FRACTION = 0.15  # assumed: share of the run for which an alarm that is over stays in the verdict; three evaluations at 5%


@dataclass(frozen=True)
class Limit:
    """One rule's limit and what it costs."""

    limit: float
    false_alarm_rate: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run under judgement."""

    record: RunRecord
    band: Band | None = None
    """The forecast; None when there is none."""
    rungs: Sequence[RunRecord] = ()
    """Finished smaller runs of the same recipe: what healthy looks like."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """`config.json` of the run as plain data; empty when the source has none."""
    limits: Mapping[str, Limit]
    """By rule name."""
    now: float | None = None
    """Unix seconds; None for a run judged afterwards, when nothing can be late."""

    @cached_property
    def num_steps(self) -> int:
        """Planned steps; taken from the forecast when the run does not say; 0 when nobody does."""
        return self.record.info.num_steps or (self.band.num_steps if self.band else 0)

    @cached_property
    def loss(self) -> Series:
        """Train loss, finite rows only."""
        return finite(self.record.series(LOSS))

    @cached_property
    def evals(self) -> Series:
        """Held-out loss the forecast is about, finite rows only."""
        return finite(self.record.series(self.eval_metric))

    @cached_property
    def eval_metric(self) -> str:
        """Its name; where the record has none of those the forecast may mean, the first of them."""
        meant = self.band.metrics if self.band else (EVAL_LOSS,)
        there = self.record.metrics()
        return next((metric for metric in meant if metric in there), meant[0])

    @cached_property
    def last_step(self) -> int:
        """Largest step of the train or the held-out loss; of any metric when there is neither; -1 before the first row."""
        known = [int(series.step[-1]) for series in (self.loss, self.evals) if len(series)]
        if not known:
            known = [int(series.step[-1]) for series in map(self.record.series, self.record.metrics()) if len(series)]
        return max(known, default=-1)

    @cached_property
    def finished(self) -> bool:
        """The run has ended, well or not."""
        return ending(self.record.events()) is not None or self.complete

    @cached_property
    def complete(self) -> bool:
        """All planned steps are there."""
        return self.num_steps > 0 and self.last_step >= self.num_steps - 1

    @cached_property
    def broken_off(self) -> Mapping[str, Any] | None:
        """The event that ended the run before its planned end; None when it goes on, was stopped on purpose or is complete."""
        end = ending(self.record.events())
        return end if end is not None and end["kind"] in BROKEN and not self.complete else None

    @cached_property
    def saves(self) -> list[tuple[int, float]]:
        """Step and seconds of every finished save: `checkpoint_saved` events, or rows of `checkpoint_time_s`; NaN where no duration is given."""
        told = {int(event["step"]): float(event.get("seconds", np.nan)) for event in self.record.events("checkpoint_saved")}
        logged = self.record.series("checkpoint_time_s")
        return sorted((told | dict(zip(logged.step.tolist(), logged.value.tolist()))).items())

    @cached_property
    def changes(self) -> list[Segment]:
        """Declared changes, in step order."""
        return sorted((segment for segment in self.record.info.segments if segment.changed), key=lambda segment: segment.first_step)

    def stretches(self, series: Series) -> list[slice]:
        """The rows between declared changes; each stretch has a baseline of its own."""
        cuts = [0, *(int(np.searchsorted(series.step, segment.first_step)) for segment in self.changes), len(series)]
        return [slice(begin, end) for begin, end in pairwise(cuts) if end > begin]

    def recent(self, step: int) -> bool:
        """Whether what happened at `step` still counts for the verdict."""
        return step >= self.recent_from

    def first_row_needed(self, step: np.ndarray) -> int:
        """First row of a series that the averages over recent rows remember."""
        return max(int(np.searchsorted(step, self.recent_from)) - detect.WARMUP_ROWS, 0)

    @cached_property
    def recent_from(self) -> float:
        """First step that still counts for the verdict."""
        return self.last_step - MEMORY_FRACTION * (self.num_steps or self.last_step)


def finite(series: Series) -> Series:
    """The rows with finite values."""
    keep = np.isfinite(series.value)
    return series if keep.all() else Series(series.step[keep], series.value[keep], series.time[keep])


def dated(record: RunRecord) -> bool:
    """Whether any row says when it was written; without that nothing can be called fresh or late."""
    return any(np.isfinite(record.series(name).time).any() for name in record.metrics())


def frozen_since(series: Series) -> int | None:
    """The step from which a series that used to move repeats one value exactly; None while it moves."""
    tail = series.value[-FROZEN_ROWS:]
    if len(tail) < FROZEN_ROWS or np.ptp(tail) != 0 or np.ptp(series.value) == 0:
        return None
    return int(series.step[np.flatnonzero(series.value != tail[-1])[-1] + 1])


def shipped_limits() -> dict[str, Limit]:
    """The limits of `thresholds.toml`."""
    return limits_of(tomllib.loads((files("forerun.watch") / "thresholds.toml").read_text(encoding="utf-8")))


def limits_of(table: Mapping[str, Any]) -> dict[str, Limit]:
    """Plain data to limits."""
    return {rule: Limit(float(entry["limit"]), float(entry["false_alarm_rate"])) for rule, entry in table.items()}
