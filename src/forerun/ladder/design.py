"""Which rungs to run: for a share of the target's compute, the ladder whose forecast would be narrowest, and what others would give.

The expected width comes from the forecaster itself: it is shown the losses of a usual law,
with usual misfit, at each proposed rung and asked how sure it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.base.errors import ConfigError
from forerun.ladder.level import EXPONENT_CENTRE, NOISE_CENTRE, Ends, fit_level
from forerun.ladder.rungs import Target

BATCH_EXPONENT = 0.383  # assumed: batch over tokens, dense AdamW fit, arXiv:2505.13738; ours: not measured
USUAL_SHARE = 0.4  # assumed: reducible share of the loss at the target's compute / 300; from 0.35 to 0.5 in the public ladders
SIZES = (3, 4, 5, 6)
STEPS_BETWEEN = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)  # compute ratio between neighbouring rungs
NUM_DRAWS = 4  # derived: widths of repeated designs agree to a tenth
FEWEST_STEPS = 1000  # assumed: fewer updates and the end of a rung is still its beginning
WIDTH_PER_90 = 3.29  # derived: a normal 90% interval in standard deviations


@dataclass(frozen=True, kw_only=True)
class ProposedRung:
    """One rung, relative to the target."""

    compute: float
    size_fraction: float
    """Active parameters over the target's; at equal tokens per parameter compute goes with its square."""
    batch_fraction: float
    """Tokens per step over the target's."""
    train_steps: int


@dataclass(frozen=True, kw_only=True)
class Design:
    """A ladder and what its forecast would be worth."""

    rungs: tuple[ProposedRung, ...]
    cost_fraction: float
    """Compute of all rungs over the target's."""
    spacing: float
    """Compute ratio between neighbours."""
    expected_width90: float
    """Expected width of the final loss's 90% interval, over the loss."""


def designs(target: Target, budget_fraction: float, *, repeats: int = 0) -> list[Design]:
    """Ladders within the budget, narrowest forecast first.

    Args:
        budget_fraction: of the target's compute, all rungs and repeats together.
        repeats: extra seeds of the second smallest rung; they are paid from the same budget.
    Raises: ConfigError for a budget outside 0..1, or one too small for any ladder.
    """
    if not 0 < budget_fraction < 1:
        raise ConfigError(f"--budget must lie between 0 and 100%, got {budget_fraction:.4g}", hint="1% is usual")
    found = [
        design
        for num in SIZES
        for spacing in STEPS_BETWEEN
        if (design := _design(target, budget_fraction, num, spacing, repeats)) is not None
    ]
    if not found:
        raise ConfigError(
            f"no ladder of {SIZES[0]} rungs fits into {budget_fraction:.2%} with {FEWEST_STEPS} updates a rung", hint="raise --budget"
        )
    return sorted(found, key=lambda design: design.expected_width90)


def _design(target: Target, budget: float, num: int, spacing: float, repeats: int) -> Design | None:
    shares = spacing ** -np.arange(num - 1, -1, -1.0)
    cost = shares.sum() + repeats * shares[1]
    fractions = budget * shares / cost
    rungs = tuple(_rung(target, float(fraction)) for fraction in fractions)
    if min(rung.train_steps for rung in rungs) < FEWEST_STEPS:
        return None
    return Design(rungs=rungs, cost_fraction=budget, spacing=spacing, expected_width90=_width(rungs, target, repeats))


def _rung(target: Target, fraction: float) -> ProposedRung:
    """At equal tokens per parameter: size and tokens with the root of compute, batch with tokens^BATCH_EXPONENT."""
    size = math.sqrt(fraction)
    batch = size**BATCH_EXPONENT
    return ProposedRung(
        compute=fraction * target.compute, size_fraction=size, batch_fraction=batch, train_steps=round(target.train_steps * size / batch)
    )


def _width(rungs: tuple[ProposedRung, ...], target: Target, repeats: int) -> float:
    log_fraction = np.log([rung.compute / target.compute for rung in rungs])
    steps = np.array([rung.train_steps for rung in rungs], float)
    distance = log_fraction - log_fraction.max()
    losses = 1 - USUAL_SHARE + USUAL_SHARE * np.exp(-EXPONENT_CENTRE * (log_fraction - math.log(1 / 300)))
    if repeats:
        distance, losses, steps = (np.append(values, [values[1]] * repeats) for values in (distance, losses, steps))
    order = np.argsort(distance, kind="stable")
    rng = np.random.default_rng(0)
    widths = []
    for _ in range(NUM_DRAWS):
        noisy = losses * np.exp(NOISE_CENTRE * rng.standard_normal(len(losses)))
        level = fit_level(Ends(distance[order], noisy[order], np.zeros(len(order)), steps[order]))
        mean, sd = level.log_loss(-float(log_fraction.max()), target.train_steps)
        weight = level.weight / level.weight.sum()
        middle = float((weight * mean).sum())
        widths.append(WIDTH_PER_90 * math.sqrt(float((weight * (sd**2 + (mean - middle) ** 2)).sum())))
    return float(np.mean(widths))
