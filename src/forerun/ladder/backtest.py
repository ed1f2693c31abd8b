"""How wrong this method is on the ladder itself: rungs forecast from smaller rungs, and what that says about intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from forerun.ladder.answer import Tested
from forerun.ladder.level import EXPONENT_CENTRE, Ends, fit_level
from forerun.ladder.rungs import SAME_LEVEL, Rung
from forerun.ladder.shape import Curves

PRIOR_STRENGTH = 4.0  # assumed: backtests a ladder needs before its own record weighs as much as the method's
SHAPE_ERROR = 0.06  # measured: carried gain of the largest of 51 ladders; median |error| 0.040, as of a normal with this sd (rms 0.109: a few first points)
SHAPE_DISTANCE = 1.5  # assumed: ln compute of a usual step between rungs, over which SHAPE_ERROR was seen
LEAST_EVAL_NOISE = 2e-4  # assumed: repeats of one evaluation differ by this in the public ladders
Z90 = float(ndtri(0.95))


def backtest(ends: Ends, rungs: Sequence[Rung], floor: float | None) -> tuple[Tested, ...]:
    """Rolling origin over sizes: each rung past the third size, forecast from all smaller ones. `rungs` are those of `ends`, in its order."""
    levels = np.unique(ends.distance[np.append(True, np.diff(ends.distance) > SAME_LEVEL)])
    tested = []
    for start in levels[3:]:
        used = ends.distance < start - SAME_LEVEL / 2
        smaller = ends.only(used)
        level = fit_level(smaller, floor=_possible(floor, smaller.losses))
        for index in np.flatnonzero((ends.distance >= start - SAME_LEVEL / 2) & (ends.distance < start + SAME_LEVEL)):
            reach = float(ends.distance[index] - ends.distance[used].max())
            mean, sd = level.log_loss(reach, float(ends.steps[index]))
            middle = float((level.weight * mean).sum() / level.weight.sum())
            variance = float((level.weight * (sd**2 + (mean - middle) ** 2)).sum() / level.weight.sum())
            spread = math.sqrt(variance + ends.sd[index] ** 2)
            tested.append(
                Tested(
                    rung=rungs[int(index)].name,
                    distance=reach,
                    loss=math.exp(middle),
                    low90=math.exp(middle - Z90 * spread),
                    high90=math.exp(middle + Z90 * spread),
                    outcome=float(ends.losses[index]),
                )
            )
    return tuple(tested)


def end_inflation(tested: Sequence[Tested]) -> float:
    """Factor on the stated spread of the end: above 1 when the ladder's own upper rungs were missed by more than stated.

    Never below 1: a short ladder's luck is no reason for confidence.
    """
    squares = [(math.log(each.outcome / each.loss) / (math.log(each.high90 / each.loss) / Z90)) ** 2 for each in tested]
    return max(1.0, math.sqrt((PRIOR_STRENGTH + sum(squares)) / (PRIOR_STRENGTH + len(squares))))


def shape_error(curves: Curves, distance: float) -> float:
    """Relative sd of the gain carried over `distance`: what carrying it to the top rung got wrong, shrunk to what is usual."""
    top = int(np.argmax(curves.distance))
    below = curves.distance < curves.distance[top] - SAME_LEVEL
    reach = math.sqrt(max(distance, SHAPE_DISTANCE) / SHAPE_DISTANCE)
    if below.sum() < 2 or len(curves.progress) < 3:
        return SHAPE_ERROR * reach
    smaller = Curves(curves.distance[below], curves.steps[below], curves.gain[below], curves.progress, curves.top_log_compute)
    seen = ~np.isnan(curves.gain[top]) & (curves.progress < 0.95) & (~np.isnan(smaller.gain)).any(0)
    carried = smaller.gain_at(float(curves.distance[top]), float(curves.steps[top]), EXPONENT_CENTRE, by_updates=0.5)
    wrong = np.log(np.maximum(carried[seen], 1e-9) / np.maximum(curves.gain[top][seen], 1e-9))
    own = float(np.mean(np.clip(wrong, -1, 1) ** 2)) if seen.any() else SHAPE_ERROR**2
    return math.sqrt((PRIOR_STRENGTH * SHAPE_ERROR**2 + own) / (PRIOR_STRENGTH + 1)) * reach


def eval_noise(rungs: Sequence[Rung]) -> float:
    """Relative sd of one evaluation about a smooth curve, from third differences in the later half; the median rung."""
    noises = []
    for rung in rungs:
        late = np.log(np.array(rung.losses)[rung.fractions > 0.4])
        if len(late) >= 6:
            noises.append(float(np.sqrt(np.mean(np.diff(late, 3) ** 2) / 20)))  # 20 = 1 + 9 + 9 + 1
    return max(LEAST_EVAL_NOISE, float(np.median(noises))) if noises else LEAST_EVAL_NOISE


def _possible(floor: float | None, ends: np.ndarray) -> float | None:
    return None if floor is None or floor >= ends.min() else floor
