"""Gate arithmetic: how much compute a variant saves against a baseline law, with an interval and a test of the law itself.

    A_base = (L_base - E) C^alpha      C_needed = (A_base / (L_variant - E))^(1 / alpha)
    speed-up = (C_needed / tokens_per_second_base) / (C / tokens_per_second_variant)

The floor E belongs to one evaluation (Paloma macro and DCLM differ by 0.3 nats), so a law carries the evaluation's name and refuses
another. Source of the formulas: the agent gates of marin-community/marin, experiments/grug/moe/agent.md @ 042d1966.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student

from forerun.base.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One finished run at one scale."""

    compute: float
    """FLOPs, by the same definition everywhere."""
    loss: float
    tokens_per_second: float = 1.0
    """Mean of its last steps; leave at 1 on both sides to compare at equal throughput."""
    eval: str = "loss_nats"


@dataclass(frozen=True, kw_only=True)
class GateLaw:
    """ln(L - E) = ln A - alpha ln C, fitted to baseline runs of one evaluation."""

    eval: str
    floor: float
    amplitude: float
    alpha: float
    residual_sd: float
    """Of ln(L - E), with n - 2 degrees of freedom."""
    alpha_sd: float
    num_runs: int
    lack_of_fit: float | None
    """Probability of misfit this large if the law held and only seed noise disturbed it; None without a seed noise."""


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Compute-equivalent speed-up of a variant at one scale; above 1 is better than the baseline."""

    compute: float
    ratio: float
    low90: float
    high90: float


@dataclass(frozen=True, kw_only=True)
class GateAnswer:
    """All scales of one variant."""

    speedups: tuple[Speedup, ...]
    passed: bool
    """Above 1 at every scale."""
    sure: bool
    """The 90% interval is above 1 at every scale."""


def fit_gate_law(baselines: Sequence[Measured], *, floor: float, seed_noise: float | None = None) -> GateLaw:
    """The baseline law, by least squares in logs.

    Args:
        floor: E of this evaluation.
        seed_noise: relative sd of a final loss between seeds; enables the lack-of-fit test.
    Raises: DataError for fewer than 3 runs, several evaluations, or a loss at or below the floor.
    """
    names = sorted({run.eval for run in baselines})
    if len(names) != 1:
        raise DataError(f"a baseline law is of one evaluation, got {', '.join(names) or 'none'}", hint="fit one law for each")
    if len({run.compute for run in baselines}) < 3:
        raise DataError(f"a baseline law needs at least 3 scales, got {len({run.compute for run in baselines})}", hint="add baseline runs")
    _above(floor, min(run.loss for run in baselines), names[0])
    x = np.log([run.compute for run in baselines])
    losses = np.array([run.loss for run in baselines])
    y = np.log(losses - floor)
    slope, intercept = np.polyfit(x, y, 1)
    misfit = y - (intercept + slope * x)
    freedom = len(x) - 2
    sd = math.sqrt(float((misfit**2).sum()) / freedom)
    chance = None
    if seed_noise is not None and seed_noise > 0:
        expected = seed_noise * losses / (losses - floor)
        chance = float(chi2.sf(float(((misfit / expected) ** 2).sum()), freedom))
    return GateLaw(
        eval=names[0],
        floor=floor,
        amplitude=float(np.exp(intercept)),
        alpha=float(-slope),
        residual_sd=sd,
        alpha_sd=sd / math.sqrt(float(((x - x.mean()) ** 2).sum())),
        num_runs=len(x),
        lack_of_fit=chance,
    )


def gate(law: GateLaw, pairs: Sequence[tuple[Measured, Measured]], *, seed_noise: float = 0.0) -> GateAnswer:
    """Judge a variant by pairs (baseline run, variant run) at equal scale.

    Args:
        seed_noise: relative sd of a final loss between seeds; with the law's own scatter, the larger one counts.
    Raises: DataError for another evaluation than the law's, or a variant at or below the floor.
    """
    if not pairs:
        raise DataError("a gate needs at least one pair of runs", hint="give a baseline and a variant at the same scale")
    speedups = tuple(_speedup(law, baseline, variant, seed_noise) for baseline, variant in pairs)
    return GateAnswer(speedups=speedups, passed=all(each.ratio > 1 for each in speedups), sure=all(each.low90 > 1 for each in speedups))


def _speedup(law: GateLaw, baseline: Measured, variant: Measured, seed_noise: float) -> Speedup:
    for run in (baseline, variant):
        if run.eval != law.eval:
            raise DataError(f"the law is of {law.eval!r}, a run of {run.eval!r}", hint="each evaluation has its own floor and law")
        _above(law.floor, run.loss, run.eval)
        if not (run.tokens_per_second > 0 and run.compute > 0):
            raise DataError("compute and tokens_per_second must be positive", hint="mend the run's numbers")
    gained = math.log((baseline.loss - law.floor) / (variant.loss - law.floor))
    log_needed = math.log(baseline.compute) + gained / law.alpha
    log_ratio = log_needed - math.log(variant.compute) + math.log(variant.tokens_per_second / baseline.tokens_per_second)
    scatter = [max(law.residual_sd, seed_noise * run.loss / (run.loss - law.floor)) for run in (baseline, variant)]
    sd = math.hypot(*scatter, gained * law.alpha_sd / law.alpha) / law.alpha
    reach = float(student.ppf(0.95, law.num_runs - 2)) * sd
    return Speedup(
        compute=variant.compute, ratio=math.exp(log_ratio), low90=math.exp(log_ratio - reach), high90=math.exp(log_ratio + reach)
    )


def _above(floor: float, loss: float, name: str) -> None:
    if loss <= floor:
        raise DataError(f"a {name} of {loss:g} is at or below the law's floor {floor:g}", hint="use the floor of this evaluation")
