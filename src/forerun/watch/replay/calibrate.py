"""Limits of one's own: the noise of the rungs, healthy runs made with it, and limits that few of those exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.base.errors import DataError
from forerun.record.series import RunRecord, Series
from forerun.watch import detect
from forerun.watch.case import EVAL_LOSS, LOSS, Limit, finite, shipped_limits
from forerun.watch.replay.healthy import Noise
from forerun.watch.replay.runner import Healthy

BUDGET = 0.05  # derived: at most this share of healthy runs may alarm, all rules together
SCORED_SHARE = 0.9  # assumed: of the budget that goes to the rules with a score; the rest is for the others
MARGIN = 1.05  # assumed: on top of the highest allowed score, because quantiles of few runs are too low
MIN_ROWS = 200  # assumed: rows of a rung from which its noise is measured


def noise_of(rungs: Sequence[RunRecord]) -> Noise:
    """The scatter of finished healthy runs: medians over the rungs of what each shows about its own smooth course.

    Raises: DataError when no rung has enough rows of train loss.
    """
    losses = [_scatter(finite(rung.series(LOSS)), rung.info.num_steps) for rung in rungs]
    losses = [scatter for scatter in losses if scatter is not None]
    if not losses:
        raise DataError(f"no rung has {MIN_ROWS} rows of {LOSS} after its first tenth", hint="name finished runs with --rung")
    grads = [scatter for rung in rungs if (scatter := _scatter(finite(rung.series("grad_norm")), rung.info.num_steps)) is not None]
    evals = [scatter for rung in rungs if (scatter := _eval_scatter(finite(rung.series(EVAL_LOSS)), rung.info.num_steps)) is not None]
    default = Noise()
    return Noise(
        loss_sd=float(np.median([sd for sd, _, _ in losses])),
        loss_correlation=float(np.clip(np.median([rho for _, rho, _ in losses]), 0, 0.9)),
        loss_dof=float(np.median([dof for _, _, dof in losses])),
        eval_sd=float(np.median(evals)) if evals else default.eval_sd,
        grad_sd=float(np.median([sd for sd, _, _ in grads])) if grads else default.grad_sd,
    )


def limits_from(healthy: Healthy, limits: Mapping[str, Limit] | None = None) -> dict[str, Limit]:
    """Limits that together let at most `BUDGET` of these healthy runs alarm: the same share of runs is given up at every rule.

    A rule's limit only moves up from the one the runs were judged with when more than its share exceeded it, and down when fewer did.
    """
    limits = dict(limits or shipped_limits())
    scores = {rule: np.asarray(values) for rule, values in healthy.scores.items() if rule in limits and len(values) == healthy.num_runs}
    keep = 1.0
    order = np.linspace(1.0, 1 - BUDGET, 2 * healthy.num_runs)
    for quantile in order:
        cut = {rule: float(np.quantile(values, quantile)) * MARGIN for rule, values in scores.items()}
        alarmed = np.any([values > cut[rule] for rule, values in scores.items()], axis=0)
        if alarmed.mean() > BUDGET * SCORED_SHARE:
            break
        keep = float(quantile)
    moved = {}
    for rule, values in scores.items():
        factor = float(np.quantile(values, keep)) * MARGIN
        moved[rule] = Limit(limits[rule].limit * max(factor, 0.5), float(np.mean(values > factor)))
    return limits | moved


def _scatter(series: Series, num_steps: int) -> tuple[float, float, float] | None:
    """sd, neighbour correlation and Student degrees of freedom of the log residual about the moving line."""
    keep = (series.value > 0) & (series.step > 0.1 * num_steps)
    if keep.sum() < MIN_ROWS:
        return None
    value = np.log(series.value[keep])
    baseline = detect.baseline_of(np.log(series.step[keep].astype(float)), value)
    residual = (value - baseline.expected)[~np.isnan(baseline.expected)]
    if len(residual) < MIN_ROWS // 2:
        return None
    sd = float(residual.std())
    unit = np.clip(residual / max(sd, 1e-12), -8, 8)
    kurtosis = float((unit**4).mean() / (unit**2).mean() ** 2 - 3)
    dof = 4 + 6 / max(kurtosis, 0.05)  # derived: excess kurtosis of Student t is 6 / (dof - 4)
    return sd, float((unit[1:] * unit[:-1]).mean()), float(np.clip(dof, 4.2, 100))


def _eval_scatter(series: Series, num_steps: int) -> float | None:
    """sd of the log held-out loss about a parabola in log step, from a tenth of the run on."""
    keep = (series.value > 0) & (series.step > 0.1 * num_steps)
    if keep.sum() < 8:
        return None
    x, y = np.log(series.step[keep].astype(float)), np.log(series.value[keep])
    residual = y - np.polyval(np.polyfit(x, y, 2), x)
    return float(residual.std(ddof=3))
