"""The rule of the published 535B-A23B forecast, rebuilt: at each 5% a straight line in ln(loss - 1.5) over ln compute, alone.

Source: marin-community/marin, experiments/grug/moe_hero_ep/plot_scaling_ladder.py @ 74f91ba8. Kept as a baseline; its curve is not
monotone, and its range is a leave-one-rung-out range, not an interval.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.base.errors import DataError
from forerun.ladder.answer import Band, CurvePoint, FloorPoint, Forecast, RungUse
from forerun.ladder.rungs import Rung, Target, inputs_digest, seed_noise
from forerun.ladder.shape import GRID

PUBLISHED_FLOOR = 1.5  # source: the same file; pinned for Paloma macro loss
EXTRAPOLATION_BIAS = 0.005  # source: the same file; added to the line through 60-80% of a run that died at 80%
LINE_START, LINE_STOP = 0.6, 0.8  # source: the same file

CENSORING_RULE = "beyond a death after 80%: straight line through the evaluations at 60-80% of training plus 0.005"


def published_rule(rungs: Sequence[Rung], target: Target, *, floor: float | None, compute: str, eval_name: str) -> Forecast:
    """The published forecast for these rungs; low and high are the leave-one-rung-out range.

    Raises: DataError when a rung lacks the 5% grid, died before 80%, or has a loss at or below the floor.
    """
    pinned = PUBLISHED_FLOOR if floor is None else floor
    losses = np.stack([_on_grid(rung) for rung in rungs])
    if losses.min() <= pinned:
        raise DataError(f"a loss of {losses.min():.4g} is at or below the floor {pinned:g}", hint="pin a lower one with --floor")
    compute_at = np.array([rung.compute for rung in rungs])[:, None] * GRID
    goal = target.compute * GRID
    curve = np.array([_line(compute_at[:, j], losses[:, j], goal[j], pinned)[0] for j in range(len(GRID))])
    without = np.stack(
        [
            [_line(np.delete(compute_at[:, j], out), np.delete(losses[:, j], out), goal[j], pinned)[0] for j in range(len(GRID))]
            for out in range(len(rungs))
        ]
    )
    low, high = without.min(0), without.max(0)
    exponent = _line(compute_at[:, -1], losses[:, -1], goal[-1], pinned)[1]
    floors = np.linspace(pinned - 0.2, min(pinned + 0.2, losses.min() - 1e-3), 5)
    return Forecast(
        final=_band(curve[-1], low[-1], high[-1]),
        curve=tuple(
            CurvePoint(
                fraction=float(x),
                step=round(float(x) * target.train_steps),
                loss=float(loss),
                low90=float(down),
                high90=float(up),
                low50=float(down),
                high50=float(up),
            )
            for x, loss, down, up in zip(GRID, curve, low, high)
        ),
        floor_profile=tuple(
            FloorPoint(
                floor=float(value),
                final=float(_line(compute_at[:, -1], losses[:, -1], goal[-1], value)[0]),
                weight=float(abs(value - pinned) < 1e-9),
            )
            for value in floors
        ),
        method="marin2026",
        compute=compute,
        eval=eval_name,
        target=target,
        rungs=tuple(
            RungUse(rung=rung.name, compute=rung.compute, end=float(row[-1]), last_fraction=rung.last_fraction, inferred=not rung.finished)
            for rung, row in zip(rungs, losses)
        ),
        exponent=_band(exponent, exponent, exponent),
        floor=_band(pinned, pinned, pinned),
        floor_pinned=True,
        seed_noise=seed_noise(rungs),
        censoring=CENSORING_RULE,
        notes=("low and high are a leave-one-rung-out range, not a 90% interval",),
        inputs_digest=inputs_digest(rungs, target),
    )


def _line(compute: np.ndarray, losses: np.ndarray, goal: float, floor: float) -> tuple[float, float]:
    """Loss at `goal` and the exponent, from ordinary least squares in logs."""
    slope, intercept = np.polyfit(np.log(compute), np.log(losses - floor), 1)
    return floor + float(np.exp(intercept + slope * np.log(goal))), -float(slope)


def _on_grid(rung: Rung) -> np.ndarray:
    """The evaluation nearest each 5%; a run that died at 80% or later is continued by the published line."""
    if rung.last_fraction < LINE_STOP - 0.005:
        raise DataError(f"rung {rung.name!r} died at {rung.last_fraction:.0%}; the published rule needs 80%", hint="use the default method")
    fractions = rung.fractions
    nearest = np.argmin(np.abs(fractions[:, None] - GRID), axis=0)
    off = np.abs(fractions[nearest] - GRID)
    losses = np.array(rung.losses)[nearest]
    reached = np.less_equal(GRID, rung.last_fraction + 0.005)
    if off[reached].max() > 0.005:
        raise DataError(
            f"rung {rung.name!r} has no evaluation at {GRID[reached][off[reached].argmax()]:.0%}", hint="use the default method"
        )
    if not reached.all():
        window = reached & (GRID >= LINE_START - 1e-9) & (GRID <= LINE_STOP + 1e-9)
        slope, intercept = np.polyfit(GRID[window], losses[window], 1)
        losses = np.where(reached, losses, intercept + slope * GRID + EXTRAPOLATION_BIAS)
    return losses


def _band(middle: float, low: float, high: float) -> Band:
    return Band(loss=float(middle), low90=float(low), high90=float(high), low50=float(low), high50=float(high))
