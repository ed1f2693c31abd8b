"""Runs of mixed sizes and lengths: L = E + A/N^alpha + B/D^beta around the target, with an interval.

Variable projection: for each (alpha, beta) on a grid the rest is non-negative least squares; the grid is weighed by fit and prior.
Runs far from the target in ln N and ln D say little about it, so their residuals weigh less (the surface is only locally true).
"""

# K grid points of (alpha, beta), N runs

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from forerun.base.errors import DataError
from forerun.ladder.answer import Band

ALPHA_CENTRE = 0.34  # source: arXiv:2203.15556, approach 3; its refit 2404.10102 gives 0.348
BETA_CENTRE = 0.32  # assumed: between 0.28 (arXiv:2203.15556) and 0.366 (2404.10102)
SPREAD = 0.35  # assumed: of ln(exponent), as for the compute exponent
FREEDOM = 5.0  # assumed: Student t, as for the compute exponent
REACH = 3.0  # derived: ln distance at which a run's variance doubles; 1.5, 3, 6, inf backtested on the small runs of both public grids
NOISE = 0.004  # derived: relative misfit before data, same backtests
NOISE_STRENGTH = 4.0  # assumed: runs' worth of belief in NOISE

_ALPHAS = np.geomspace(0.1, 1.2, 22)
_BETAS = np.geomspace(0.08, 1.0, 22)


@dataclass(frozen=True)
class Runs:
    """Finished runs of one recipe: size, tokens, final loss."""

    num_params: np.ndarray
    train_tokens: np.ndarray
    losses: np.ndarray

    def only(self, which: np.ndarray) -> Runs:
        """The chosen runs."""
        return Runs(self.num_params[which], self.train_tokens[which], self.losses[which])


def forecast_surface(runs: Runs, *, num_params: float, train_tokens: float) -> Band:
    """The final loss of a run of that size and length, with 50% and 90% intervals.

    Raises: DataError for fewer than 5 runs, or runs that vary in only one of size and length.
    """
    _check(runs)
    log_n, log_d = np.log(runs.num_params / num_params), np.log(runs.train_tokens / train_tokens)
    away = np.hypot(log_n, log_d)
    trust = 1 / (runs.losses * np.sqrt(1 + (away / REACH) ** 4))
    means, sds, log_weights = [], [], []
    for alpha in _ALPHAS:
        for beta in _BETAS:
            columns = np.stack([np.ones_like(log_n), np.exp(-alpha * log_n), np.exp(-beta * log_d)], axis=1)
            weighted = columns * trust[:, None]
            coefficients, residual = nnls(weighted, runs.losses * trust)
            freedom = len(log_n) + NOISE_STRENGTH
            variance = (residual**2 + NOISE_STRENGTH * NOISE**2) / freedom
            middle = float(coefficients.sum())
            spread = np.linalg.pinv(weighted.T @ weighted).sum()  # the target's row is (1, 1, 1)
            means.append(middle)
            sds.append(np.sqrt(variance * (spread + middle**2 * (1 + away.min()))))
            log_weights.append(-freedom / 2 * np.log(variance) + _log_prior(alpha, ALPHA_CENTRE) + _log_prior(beta, BETA_CENTRE))
    return _mixture(np.array(means), np.array(sds), np.array(log_weights))


def _mixture(means: np.ndarray, sds: np.ndarray, log_weights: np.ndarray) -> Band:
    """Quantiles of a mixture of normals: grid points as often as their weight, each spread over its own quantiles."""
    weight = np.exp(log_weights - log_weights.max())
    within = ndtri((np.arange(40) + 0.5) / 40)
    values = (means[:, None] + sds[:, None] * within).ravel()
    order = np.argsort(values)
    share = np.cumsum(np.repeat(weight / weight.sum() / len(within), len(within))[order])
    low90, low50, middle, high50, high90 = (float(values[order][np.searchsorted(share, q)]) for q in (0.05, 0.25, 0.5, 0.75, 0.95))
    return Band(loss=middle, low90=low90, high90=high90, low50=low50, high50=high50)


def _log_prior(exponent: float, centre: float) -> float:
    return float(-(FREEDOM + 1) / 2 * np.log1p((np.log(exponent / centre) / SPREAD) ** 2 / FREEDOM))


def _check(runs: Runs) -> None:
    if len(runs.losses) < 5:
        raise DataError(
            f"a surface over size and tokens needs at least 5 runs, got {len(runs.losses)}", hint="use a ladder at one ratio instead"
        )
    for name, values in (("num_params", runs.num_params), ("train_tokens", runs.train_tokens), ("loss", runs.losses)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise DataError(f"{name} must be positive numbers in every run", hint="drop or mend the rows")
    for name, values in (("num_params", runs.num_params), ("train_tokens / num_params", runs.train_tokens / runs.num_params)):
        if np.ptp(np.log(values)) < 0.1:
            raise DataError(f"all runs have the same {name}, so a surface cannot be fitted", hint="use a ladder at one ratio instead")
