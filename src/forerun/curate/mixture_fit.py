"""Which mixture to train on, from a swarm of small runs: sample mixtures, run them, regress the loss, search the simplex.

Source: RegMix (arXiv:2407.01492): rank mixtures by a regression fitted on small runs and average the best of many samples.
The regression here is ridge in the weights, its strength and its worth chosen by leave-one-out.
"""

# R runs, C cells

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.base.errors import DataError

NUM_SAMPLES = 20_000  # assumed: RegMix draws 100,000 for 17 domains; the average of the best hundred moves little beyond 20,000
NUM_BEST = 100  # source: RegMix averages the top 100
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
    """Of left-out runs; below about 0.5 the proposal is noise."""
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
    Raises: DataError for fewer than 8 runs.
    """
    if len(mixtures) < 8:
        raise DataError(f"{len(mixtures)} runs are too few to regress a loss on", hint="run at least 8 mixtures of the swarm")
    names = sorted({name for mixture in mixtures for name in mixture})
    table = np.array([[mixture.get(name, 0.0) for name in names] for mixture in mixtures])
    target = np.array(losses)
    centre, level = table.mean(axis=0), target.mean()
    rows, left = table - centre, target - level
    strength = min(STRENGTHS, key=lambda value: float(np.mean(_left_out(rows, left, value)[1] ** 2)))
    predictions, errors = _left_out(rows, left, strength)
    slope = _ridge(rows, left, strength)
    rng = np.random.default_rng(seed)
    samples = np.concatenate([rng.dirichlet(np.maximum(centre * scale, 1e-3), NUM_SAMPLES // 3) for scale in (20.0, 60.0, 200.0)])
    if limits is not None:
        allowed = np.array([limits.get(name, 1.0) for name in names])
        samples = samples[(samples <= allowed).all(axis=1)]
        if len(samples) < NUM_BEST:
            raise DataError("hardly any mixture near the swarm respects the epoch cap", hint="shorten the run or raise data.epoch_cap")
    predicted = (samples - centre) @ slope
    best = samples[np.argsort(predicted, kind="stable")[:NUM_BEST]].mean(axis=0)
    gain = float((best - centre) @ slope)
    ranks = [np.argsort(np.argsort(values)) for values in (predictions, left)]
    return MixtureFit(
        weights=dict(zip(names, (best / best.sum()).tolist())),
        predicted_loss_nats=float(level + gain),
        predicted_gain_nats=-gain,
        loo_error_nats=float(np.sqrt(np.mean(errors**2))),
        loo_rank_correlation=float(np.corrcoef(ranks[0], ranks[1])[0, 1]),
        num_runs=len(mixtures),
    )


def _ridge(rows: np.ndarray, target: np.ndarray, strength: float) -> np.ndarray:
    kernel = rows @ rows.T + strength * np.eye(len(rows))
    return rows.T @ np.linalg.solve(kernel, target)


def _left_out(rows: np.ndarray, target: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Prediction and error of each run by the others, in closed form; each left-out run also moves the mean."""
    kernel = rows @ rows.T + strength * np.eye(len(rows))
    hat = rows @ rows.T @ np.linalg.inv(kernel) + 1 / len(rows)
    error = (target - (hat - 1 / len(rows)) @ target) / np.maximum(1 - np.diag(hat), 1e-9)
    return target - error, error
