"""How a series stands now against its own earlier values, or against the rungs at the same share of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.record.series import RunRecord, Series
from forerun.watch.case import Case, finite

WARM_FRACTION = 0.05  # assumed: of the run; before it levels still settle
NOW_ROWS = 25  # assumed: rows whose median is "now"; one odd step does not move it
MIN_PAST = 50  # assumed: rows needed to know what is usual


@dataclass(frozen=True)
class Standing:
    """Now against the past of the same series."""

    now: float
    usual: float
    """Median of the past."""
    spread: float
    """Robust standard deviation of medians of `NOW_ROWS` rows in the past."""
    step: int
    """Where "now" begins."""


def standing(case: Case, series: Series, *, since_change: tuple[str, ...] = ()) -> Standing | None:
    """The median of the last rows and what is usual; None while there is too little past.

    Args:
        since_change: kinds of declared change after which the past starts anew.
    """
    series = finite(series)
    begin = WARM_FRACTION * case.num_steps
    begin = max([begin, *(segment.first_step for segment in case.changes if segment.kind in since_change)])
    value, step = series.value[series.step >= begin], series.step[series.step >= begin]
    if len(value) < MIN_PAST + NOW_ROWS:
        return None
    past = value[:-NOW_ROWS]
    whole = len(past) // NOW_ROWS * NOW_ROWS
    medians = np.median(past[:whole].reshape(-1, NOW_ROWS), axis=1)
    usual = float(np.median(past))
    spread = 1.4826 * float(np.median(np.abs(medians - np.median(medians))))
    return Standing(float(np.median(value[-NOW_ROWS:])), usual, spread, int(step[-NOW_ROWS]))


def at_fraction(rungs: Sequence[RunRecord], metric: str, fraction: float) -> list[float]:
    """What each rung showed at this share of its own run: medians over 2% of it; rungs without the metric are left out."""
    found = []
    for rung in rungs:
        series = finite(rung.series(metric))
        length = rung.info.num_steps or (int(series.step[-1]) if len(series) else 0)
        near = np.abs(series.step - fraction * length) <= max(0.01 * length, 1)
        if length and near.any():
            found.append(float(np.median(series.value[near])))
    return found


def qualified(case: Case, metric: str) -> list[str]:
    """The names `<metric>/<something>` of a run."""
    return [name for name in case.record.metrics() if name.startswith(f"{metric}/")]
