"""How a forecast did: signed error, coverage and interval score against what the run's evaluations turned out to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.base.errors import DataError
from forerun.ladder.answer import Forecast

FINAL_FRACTION = 0.985  # assumed: an outcome this close to the end counts as the final loss


@dataclass(frozen=True, kw_only=True)
class Score:
    """One forecast against its outcome. Errors are forecast over outcome minus 1: positive was too pessimistic."""

    num_evals: int
    """Outcomes inside the forecast's range of progress."""
    num_outside: int
    """Outcomes earlier than the forecast's first point; not scored."""
    signed_error: float
    """Mean of forecast / outcome - 1."""
    absolute_error: float
    """Mean of |forecast / outcome - 1|."""
    coverage90: float
    """Share of outcomes inside the 90% interval."""
    coverage50: float
    """Share of outcomes inside the 50% interval."""
    width90: float
    """Mean width of the 90% interval over the outcome."""
    interval_score90: float
    """Mean of width + 20 x the miss, in the loss's unit; lower is better."""
    final_error: float | None
    """Forecast / outcome - 1 at the end; None while the run has not finished."""
    final_inside90: bool | None
    """Whether the end fell into the 90% interval."""


def score(forecast: Forecast, steps: np.ndarray, losses: np.ndarray) -> Score:
    """Compare a forecast with evaluations of the run it was about.

    Raises: DataError when no evaluation lies in the forecast's range, or one lies past the promised length.
    """
    fractions = steps / forecast.target.train_steps
    if fractions.max() > 1.005:
        raise DataError(
            f"an outcome at step {int(steps.max())} lies past the forecast's train_steps={forecast.target.train_steps}",
            hint="this outcome is of another run, or the run was lengthened: declare a segment",
        )
    fractions = np.minimum(fractions, 1.0)
    inside_range = fractions >= forecast.curve[0].fraction * 0.98
    if not inside_range.any():
        raise DataError(
            f"no outcome at or after {forecast.curve[0].fraction:.0%} of training, where the forecast starts", hint="score it later"
        )
    truth = losses[inside_range]
    bands = [forecast.band_at(float(x)) for x in fractions[inside_range]]
    middle, low, high, low50, high50 = (
        np.array([getattr(band, name) for band in bands]) for name in ("loss", "low90", "high90", "low50", "high50")
    )
    error = middle / truth - 1
    within = (truth >= low) & (truth <= high)
    finished = fractions[inside_range][-1] >= FINAL_FRACTION
    return Score(
        num_evals=len(truth),
        num_outside=int((~inside_range).sum()),
        signed_error=float(error.mean()),
        absolute_error=float(np.abs(error).mean()),
        coverage90=float(within.mean()),
        coverage50=float(((truth >= low50) & (truth <= high50)).mean()),
        width90=float(((high - low) / truth).mean()),
        interval_score90=float(interval_score(low, high, truth, 0.1).mean()),
        final_error=float(error[-1]) if finished else None,
        final_inside90=bool(within[-1]) if finished else None,
    )


def interval_score(low: np.ndarray, high: np.ndarray, truth: np.ndarray, alpha: float) -> np.ndarray:
    """Width + (2 / alpha) x the distance by which the outcome missed the interval (Gneiting and Raftery 2007, eq. 43)."""
    return (high - low) + 2 / alpha * (np.maximum(low - truth, 0) + np.maximum(truth - high, 0))
