"""Rungs that died early: their end is inferred from the shape of the finished ones, by a stated rule with a stated error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from forerun.base.errors import DataError
from forerun.ladder.level import EXPONENT_CENTRE, Ends
from forerun.ladder.rungs import Rung, num_levels, seed_noise
from forerun.ladder.shape import curves_of

EARLIEST_DEATH = 0.3  # assumed: before this the anneal's gain still to come is larger than anything observed
LARGEST_RISE = 0.1  # assumed: ln loss; a larger run that ends 10% higher is another evaluation or broken
LARGEST_EXPONENT = 0.9  # assumed: of loss in compute; language models stay under 0.2, other published losses under 0.6
LOOK_BACK = 0.25  # assumed: share of progress before the death whose mean sets the level
SHARE_UNKNOWN = 0.12  # measured: rule replayed on 51 finished rungs; rms of the missed gain over the gain 0.06 (death at 35%) to 0.14 (80%)

CENSORING_RULE = (
    f"a run that stopped before {EARLIEST_DEATH:.0%} is left out; one that stopped later ends at its mean over the last {LOOK_BACK:.0%} of progress "
    f"seen minus the gain the finished rungs had from there, with a relative error of {SHARE_UNKNOWN:.0%} of that gain"
)


def ends_of(rungs: Sequence[Rung]) -> tuple[Ends, list[Rung]]:
    """Where each usable rung ended or would have, and the usable rungs, in order of compute.

    Raises: DataError when leaving out early deaths leaves fewer than 3 sizes.
    """
    usable = sorted((rung for rung in rungs if rung.last_fraction >= EARLIEST_DEATH), key=lambda rung: (rung.compute, rung.name))
    if num_levels(usable) < 3:
        raise DataError(
            f"only {num_levels(usable)} rungs of different compute got past {EARLIEST_DEATH:.0%} of their training, 3 are needed",
            hint="let rungs run further, or add some",
        )
    finished = [rung for rung in usable if rung.finished]
    top_log_compute = math.log(max(rung.compute for rung in usable))
    curves = curves_of(finished, np.array([rung.losses[-1] for rung in finished]), top_log_compute)
    ends, sds = [], []
    noise = seed_noise(finished) or 0.0
    for rung in usable:
        if rung.finished:
            ends.append(rung.losses[-1])
            sds.append(noise)
            continue
        distance = np.log(rung.compute) - top_log_compute
        gain = curves.gain_at(distance, rung.train_steps, EXPONENT_CENTRE, by_updates=0.5)
        near_end = (curves.progress <= rung.last_fraction * 1.001) & (curves.progress >= rung.last_fraction - LOOK_BACK)
        seen = rung.loss_at(curves.progress)
        usable_points = near_end & ~np.isnan(seen)
        if not usable_points.any():
            raise DataError(
                f"rung {rung.name!r} died at {rung.last_fraction:.0%} and the finished rungs have no evaluations before that",
                hint="evaluate finished rungs every 5%, or remove the dead one",
            )
        end = float(np.mean(seen[usable_points] - gain[usable_points]))
        ends.append(end)
        sds.append(float(np.hypot(SHARE_UNKNOWN * gain[usable_points][-1] / end, noise)))
    _refuse_mixtures(usable, ends)
    steps = np.array([rung.train_steps for rung in usable], float)
    return Ends(np.log([rung.compute for rung in usable]) - top_log_compute, np.array(ends), np.array(sds), steps), usable


def _refuse_mixtures(rungs: Sequence[Rung], ends: Sequence[float]) -> None:
    """Ends that rise by a tenth, or fall faster than any power of compute, are of two evaluations, units or recipes."""
    for smaller, larger, before, after in zip(rungs, rungs[1:], ends, ends[1:]):
        step, fall = math.log(larger.compute / smaller.compute), math.log(before / after)
        if fall < -LARGEST_RISE or fall > LARGEST_RISE + LARGEST_EXPONENT * step:
            raise DataError(
                f"rung {larger.name!r} ends at {after:.4g} and the smaller {smaller.name!r} at {before:.4g}: not one evaluation of one recipe",
                hint="check that all rungs share evaluation, unit and recipe, or remove the odd one",
            )
