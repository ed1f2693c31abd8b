"""How the big run gets to its end: the gain still to come at each point of training, carried from the rungs.

gain(x) = loss(x) - loss(end). At a fixed ratio of tokens to parameters it shrinks with compute as the reducible loss does,
C^-a (scaling collapse), up to a slow trend in ln C. Part of the early gain is a transient that dies with the *number of updates*,
not with progress: at 5% a rung has taken 1,000 updates where the big run has taken 20,000. Rungs that all take about as many
updates cannot tell the two apart, so both are computed and the forecast spreads over what lies between them.
"""

# N runs, X points of progress, P terms of the smooth part

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.ladder.rungs import Rung

GRID = np.arange(1, 21) / 20
TRANSIENT_EXPONENT = 0.76  # assumed: alpha_S of L(N, S), arXiv:2001.08361 eq. 1.6; ours: not identifiable from ladders of equal steps
LOCALITY = (
    3.0  # assumed: weight of a rung falls as exp(distance / LOCALITY) below the top; rung backtests are flat in it (rms 0.09 to 0.11)
)
NUM_SMOOTH_TERMS = 2  # measured: 3 gave the same backtest


@dataclass(frozen=True)
class Curves:
    """Gains of the rungs on a common grid of progress."""

    distance: np.ndarray
    """ln(C / C_top) of each run."""
    steps: np.ndarray
    gain: np.ndarray
    """[N, X], NaN where a run was not evaluated."""
    progress: np.ndarray
    top_log_compute: float
    """ln C_top that distances count from."""

    def gain_at(self, distance: float, steps: float, exponent: float, *, by_updates: float) -> np.ndarray:
        """Gain of a run of given size at each point of progress.

        Args:
            distance: ln(C / C_top) of that run.
            steps: its planned updates.
            exponent: a of the reducible loss.
            by_updates: 0 carries the early transient over by progress, 1 by updates; between is a blend.
        """
        collapsed = self._carry(distance, steps, exponent, with_transient=False)
        stepped = self._carry(distance, steps, exponent, with_transient=True)
        return (1 - by_updates) * collapsed + by_updates * stepped

    def _carry(self, distance: float, steps: float, exponent: float, *, with_transient: bool) -> np.ndarray:
        scale = np.exp(-exponent * self.distance)[:, None]
        weight = np.exp(self.distance / LOCALITY)[:, None] * ~np.isnan(self.gain)
        gain = np.nan_to_num(self.gain)
        fitted = np.zeros_like(gain)
        carried = np.zeros_like(self.progress)
        if with_transient:
            amplitude = self._transient_amplitude(scale, weight, gain)
            fitted = amplitude * _transient(self.progress, self.steps[:, None])
            carried = amplitude * _transient(self.progress, np.array([[steps]]))[0]
        rest = (gain - fitted) / scale
        mean, slope, centre = _trend(rest, weight, self.distance)
        return np.exp(-exponent * distance) * (mean + slope * (distance - centre)) + carried

    def _transient_amplitude(self, scale: np.ndarray, weight: np.ndarray, gain: np.ndarray) -> float:
        """Least squares of gain = scale * polynomial(1 - x) + amplitude * transient(updates), amplitude >= 0."""
        smooth = np.stack([(1 - self.progress) ** power for power in range(1, NUM_SMOOTH_TERMS + 1)], axis=-1)
        columns = (
            np.concatenate([scale[..., None] * smooth[None], _transient(self.progress, self.steps[:, None])[..., None]], axis=-1)
            * weight[..., None]
        )
        solution = np.linalg.lstsq(columns.reshape(-1, columns.shape[-1]), (gain * weight).ravel(), rcond=None)[0]
        return max(float(solution[-1]), 0.0)


def _transient(progress: np.ndarray, steps: np.ndarray) -> np.ndarray:
    return (progress * steps / 1000) ** -TRANSIENT_EXPONENT - (steps / 1000) ** -TRANSIENT_EXPONENT


def _trend(values: np.ndarray, weight: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weighted line over distance at each point of progress: mean, slope, centre. Slope 0 where under two sizes were seen."""
    total = weight.sum(0)
    centre = (weight * distance[:, None]).sum(0) / total
    mean = (weight * values).sum(0) / total
    spread = (weight * (distance[:, None] - centre) ** 2).sum(0) / total
    covariance = (weight * (distance[:, None] - centre) * (values - mean)).sum(0) / total
    slope = np.where(spread > 0.05, covariance / np.maximum(spread, 0.05), 0.0)
    return mean, slope, centre


def curves_of(rungs: Sequence[Rung], ends: np.ndarray, top_log_compute: float) -> Curves:
    """Gains on the 5% grid, cut to the points that at least two runs reach. `ends` are final losses, inferred ones included."""
    gain = np.stack([rung.loss_at(GRID) - end for rung, end in zip(rungs, ends)])
    for row, rung in zip(gain, rungs):
        row[-1] = 0.0 if rung.finished else row[-1]
    seen = (~np.isnan(gain)).sum(0) >= min(2, len(rungs))
    seen[-1] = True
    distance = np.log([rung.compute for rung in rungs]) - top_log_compute
    return Curves(distance, np.array([rung.train_steps for rung in rungs], float), gain[:, seen], GRID[seen], top_log_compute)


def falling(curve: np.ndarray, axis: int = -1) -> np.ndarray:
    """The curve made monotone: each point is at least every later one."""
    return np.flip(np.maximum.accumulate(np.flip(curve, axis), axis), axis)
