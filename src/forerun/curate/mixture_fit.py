"""Which mixture to train on, from a swarm of small runs: sample mixtures, run them, regress the loss, search the simplex.

Source: RegMix (arXiv:2407.01492): rank mixtures by a regression fitted on small runs and average the best of many samples.
The regression here is ridge in the weights, its strength and its worth chosen by leaving out one mixture at a time, with all its runs.
Mixtures farther from the swarm's centre than its own are not proposed: a line says nothing of what lies beyond its points.
"""

# R runs, C cells

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.base.errors import DataError
from forerun.curate.quality.report import spearman

NUM_SAMPLES = 20_000  # assumed: RegMix draws 100,000 for 17 domains; the average of the best hundred moves little beyond 20,000
NUM_BEST = 100  # source: RegMix averages the top 100
LEAST_MIXTURES = 8  # assumed: fewer say nothing of which direction lowers the loss
STRENGTHS = tuple(10.0**power for power in range(-6, 3))


@dataclass(frozen=True)
class MixtureFit:
    """The proposed weights and how far to believe them."""

    weights: dict[str, float]
    """Proposed mixture."""
    predicted_loss_nats: float
    """At the proposal."""
    predicted_gain_nats: float
    """Against the centre of the swarm."""
    loo_error_nats: float
    """Root mean squared leave-one-out error of the regression."""
    loo_rank_correlation: float
    """Of left-out runs; below about 0.5 the proposal is noise. 0 when all losses are equal."""
    num_runs: int
    """Fitted on."""


def swarm(centre: dict[str, float], num_runs: int, *, seed: int, concentration: float = 60.0) -> list[dict[str, float]]:
    """Mixtures around a centre, the centre itself first; a smaller concentration wanders further."""
    names = sorted(centre)
    base = np.array([centre[name] for name in names])
    rng = np.random.default_rng(seed)
    draws = [base, *(rng.dirichlet(np.maximum(base * concentration, 1e-3)) for _ in range(num_runs - 1))]
    return [dict(zip(names, (draw / draw.sum()).tolist())) for draw in draws]


def fit_mixture(
    mixtures: list[dict[str, float]], losses: list[float], *, limits: dict[str, float] | None = None, seed: int = 0
) -> MixtureFit:
    """The mixture of least predicted loss.

    Args:
        losses: final `eval/macro_loss_nats` of each run.
        limits: most weight a cell may get, from the epoch cap.
    Raises: DataError for fewer than 8 runs or different mixtures, or a loss that is not finite.
    """
    names = sorted({name for mixture in mixtures for name in mixture})
    table = np.array([[mixture.get(name, 0.0) for name in names] for mixture in mixtures])
    target = np.array(losses)
    same = np.unique(table.round(12), axis=0, return_inverse=True)[1].reshape(-1) if len(table) else np.zeros(0, np.int64)
    if len(set(same.tolist())) < LEAST_MIXTURES:
        raise DataError(
            f"{len(mixtures)} runs of {len(set(same.tolist()))} different mixtures are too few to regress a loss on",
            hint=f"run at least {LEAST_MIXTURES} mixtures of the swarm",
        )
    if not np.isfinite(target).all():
        raise DataError(
            f"loss {int(np.argmin(np.isfinite(target)))} of the runs is {target[~np.isfinite(target)][0]}", hint="leave that run out"
        )
    centre, level = table.mean(axis=0), target.mean()
    rows, left = table - centre, target - level
    strength = min(STRENGTHS, key=lambda value: float(np.mean(_left_out(rows, left, value, same)[1] ** 2)))
    predictions, errors = _left_out(rows, left, strength, same)
    slope = _ridge(rows, left, strength)
    rng = np.random.default_rng(seed)
    samples = np.concatenate([rng.dirichlet(np.maximum(centre * scale, 1e-3), NUM_SAMPLES // 3) for scale in (20.0, 60.0, 200.0)])
    samples = _with_fixed(samples, centre, np.ptp(table, axis=0) < 1e-12)
    samples = _drawn_in(samples, centre, float(np.linalg.norm(rows, axis=1).max()))
    if limits is not None:
        allowed = np.array([limits.get(name, 1.0) for name in names])
        samples = samples[(samples <= allowed).all(axis=1)]
        if len(samples) < NUM_BEST:
            raise DataError("hardly any mixture near the swarm respects the epoch cap", hint="shorten the run or raise data.epoch_cap")
    predicted = (samples - centre) @ slope
    best = samples[np.argsort(predicted, kind="stable")[:NUM_BEST]].mean(axis=0)
    gain = float((best - centre) @ slope)
    return MixtureFit(
        weights=dict(zip(names, (best / best.sum()).tolist())),
        predicted_loss_nats=float(level + gain),
        predicted_gain_nats=-gain,
        loo_error_nats=float(np.sqrt(np.mean(errors**2))),
        loo_rank_correlation=spearman(predictions, left),
        num_runs=len(mixtures),
    )


def _with_fixed(samples: np.ndarray, centre: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Samples in which cells that had one weight in all runs keep it: nothing is known of another."""
    if not fixed.any():
        return samples
    free = samples[:, ~fixed]
    out = np.tile(centre, (len(samples), 1))
    out[:, ~fixed] = free / free.sum(axis=1, keepdims=True) * (1 - centre[fixed].sum())
    return out


def _drawn_in(samples: np.ndarray, centre: np.ndarray, farthest: float) -> np.ndarray:
    """Samples moved towards the centre until none lies farther from it than the swarm does."""
    moved = samples - centre
    distance = np.linalg.norm(moved, axis=1, keepdims=True)
    return centre + moved * np.minimum(1.0, farthest / np.maximum(distance, 1e-300))


def _ridge(rows: np.ndarray, target: np.ndarray, strength: float) -> np.ndarray:
    kernel = rows @ rows.T + strength * np.eye(len(rows))
    return rows.T @ np.linalg.solve(kernel, target)


def _left_out(rows: np.ndarray, target: np.ndarray, strength: float, same: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prediction and error of each run by those of other mixtures, in closed form; what is left out also moves the mean.

    Args:
        same: a number for each different mixture.
    """
    kernel = rows @ rows.T + strength * np.eye(len(rows))
    hat = rows @ rows.T @ np.linalg.inv(kernel) + 1 / len(rows)
    residual = target - (hat - 1 / len(rows)) @ target
    error = np.empty(len(target))
    for number in np.unique(same):
        here = np.flatnonzero(same == number)
        error[here] = np.linalg.lstsq(np.eye(len(here)) - hat[np.ix_(here, here)], residual[here], rcond=None)[0]
    return target - error, error
