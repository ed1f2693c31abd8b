"""Loss under another learning-rate schedule or horizon: laws in the sum of rates and in how the rate came down.

    momentum law     L = floor + a S1^-alpha - c S2
    multi-power law  L = floor + a S1^-alpha - b sum_k (drop_k) (1 - (C rate_k^-gamma (S1 - S1_k) + 1)^-beta)

S1 is the sum of rates so far, S2 the sum of a decaying memory of rate drops, drop_k the rate's fall at step k. Linear coefficients
are non-negative least squares inside a search over the rest, from several starts (one start ends on a bound for small models).
Sources: arXiv:2408.11029 (momentum law), arXiv:2503.12811 (multi-power law).
"""

# T optimizer steps, X evaluations, K blocks of steps in which the rate falls

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.signal import lfilter

from forerun.base.errors import DataError

MEMORY = 0.999  # source: arXiv:2408.11029, the decay of its annealing momentum; ours: on the fitted curves 0.998 0.067%, 0.999 0.076%, 0.99 0.092%
NUM_BLOCKS = 250  # measured: 1,000 change predictions on the public curves by at most 1.5e-4, 2e-5 in the mean
SHARP = 0.005  # assumed: of the peak rate; a step that falls by more is a block of its own, at its exact place
THINNED = 60  # assumed: evaluations per run that a search over starts looks at; the last search sees all
BOUNDS = np.log([(0.05, 2.0), (1e-3, 1e3), (0.05, 3.0), (0.01, 2.0)])  # assumed: alpha, c, beta, gamma; the published fits lie far inside
OUTLIER = 1e-3  # source: arXiv:2503.12811, Huber threshold on log loss


@dataclass(frozen=True)
class ScheduledRun:
    """One run's rates, and its losses where there are any."""

    rates: np.ndarray
    """[T], learning rate of every optimizer step, warm-up included."""
    steps: np.ndarray
    """[X], finished steps at each evaluation."""
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """[X], empty for a run to be predicted."""

    def __post_init__(self) -> None:
        if len(self.steps) == 0 or self.steps.min() < 1 or self.steps.max() > len(self.rates):
            raise DataError(f"evaluations must lie in steps 1..{len(self.rates)}, the steps with a rate", hint="give a rate for every step")
        if not (np.isfinite(self.rates).all() and (self.rates >= 0).all() and self.rates.max() > 0):
            raise DataError("learning rates must be finite, not negative and not all 0", hint="check the schedule")
        if len(self.losses) not in (0, len(self.steps)):
            raise DataError(f"{len(self.losses)} losses for {len(self.steps)} evaluations", hint="give one each")

    @property
    def summed(self) -> np.ndarray:
        """S1 at each evaluation."""
        return np.cumsum(self.rates)[self.steps.astype(int) - 1]


@dataclass(frozen=True, kw_only=True)
class MomentumLaw:
    """Fitted momentum law; cheap, the default."""

    floor: float
    a: float
    alpha: float
    c: float

    def at(self, run: ScheduledRun) -> np.ndarray:
        """Loss at each evaluation of the run."""
        return self.floor + self.a * run.summed**-self.alpha - self.c * _remembered_drops(run)


@dataclass(frozen=True, kw_only=True)
class MultiPowerLaw:
    """Fitted multi-power law; the more exact one."""

    floor: float
    a: float
    alpha: float
    b: float
    c: float
    beta: float
    gamma: float

    def at(self, run: ScheduledRun) -> np.ndarray:
        """Loss at each evaluation of the run."""
        return self.floor + self.a * run.summed**-self.alpha - self.b * _power_gain(_Drops(run), self.c, self.beta, self.gamma)


def fit_momentum(runs: Sequence[ScheduledRun]) -> MomentumLaw:
    """The momentum law that explains the runs' losses best, in relative least squares with outliers held down."""
    losses, summed = _joined(runs)
    drops = np.concatenate([_remembered_drops(run) for run in runs])

    def project(alpha: float) -> tuple[np.ndarray, float]:
        return _solve([np.ones_like(losses), (summed / summed.mean()) ** -alpha, -drops / max(drops.max(), 1e-30)], losses)

    start = min(np.linspace(0.1, 1.2, 23), key=lambda alpha: project(alpha)[1])
    found = minimize(lambda x: project(float(x[0]))[1], [start], method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-14})
    alpha = float(found.x[0])
    (floor, a, c), _ = project(alpha)
    return MomentumLaw(floor=float(floor), a=float(a * summed.mean() ** alpha), alpha=alpha, c=float(c / max(drops.max(), 1e-30)))


def fit_multi_power(runs: Sequence[ScheduledRun]) -> MultiPowerLaw:
    """The multi-power law that explains the runs' losses best; several starts on thinned evaluations, the best refined on all."""
    scale = float(max(run.rates.max() for run in runs))
    thinned = _MultiPowerFit([_thin(run) for run in runs], scale)
    starts = [np.log(point) for point in itertools.product((0.3, 0.55), (0.3, 3.0), (0.4, 1.0), (0.3, 0.7))]
    rough = min((_search(thinned.miss, start, 200) for start in starts), key=lambda found: found.fun)
    whole = _MultiPowerFit(runs, scale)
    return whole.law(_search(whole.miss, _search(thinned.miss, rough.x, 800).x, 300).x)


def steps_only(runs: Sequence[ScheduledRun]) -> Any:
    """Baseline that ignores the schedule: floor + a steps^-alpha. Returns a function of a run."""
    losses = np.concatenate([run.losses for run in runs])
    steps = np.concatenate([run.steps for run in runs]).astype(float)

    def project(alpha: float) -> tuple[np.ndarray, float]:
        return _solve([np.ones_like(losses), (steps / steps.mean()) ** -alpha], losses)

    alpha = float(min(np.linspace(0.05, 1.5, 146), key=lambda value: project(value)[1]))
    (floor, a), _ = project(alpha)
    return lambda run: floor + a * (run.steps / steps.mean()) ** -alpha


def logged_rates(steps: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """A rate for every step from logged ones: straight lines between, a linear warm-up from 0 to the first."""
    every = np.arange(1, int(steps[-1]) + 1)
    return np.interp(every, np.concatenate([[0.0], steps]), np.concatenate([[0.0], rates]))


class _MultiPowerFit:
    """The search over (ln alpha, ln c, ln beta, ln gamma); floor, a and b are solved for inside."""

    def __init__(self, runs: Sequence[ScheduledRun], scale: float) -> None:
        self.losses, self.summed = _joined(runs)
        self.drops = [_Drops(run) for run in runs]
        self.scale = scale

    def miss(self, x: np.ndarray) -> float:
        return self._project(x)[1]

    def law(self, x: np.ndarray) -> MultiPowerLaw:
        (floor, a, b), _, largest = self._project(x)
        alpha, c, beta, gamma = (float(value) for value in np.exp(np.clip(x, *BOUNDS.T)))
        return MultiPowerLaw(
            floor=float(floor),
            a=float(a * self.summed.mean() ** alpha),
            alpha=alpha,
            b=float(b / largest / self.scale),
            c=float(c * self.scale ** (gamma - 1)),
            beta=beta,
            gamma=gamma,
        )

    def _project(self, x: np.ndarray) -> tuple[np.ndarray, float, float]:
        alpha, c, beta, gamma = np.exp(np.clip(x, *BOUNDS.T))
        gain = np.concatenate([_power_gain(each, c, beta, gamma, unit=self.scale) for each in self.drops])
        largest = max(float(np.abs(gain).max()), 1e-30)
        columns = [np.ones_like(self.losses), (self.summed / self.summed.mean()) ** -alpha, -gain / largest]
        return *_solve(columns, self.losses), largest


def _search(miss: Any, start: np.ndarray, num_steps: int) -> Any:
    return minimize(miss, start, method="Nelder-Mead", options={"maxiter": num_steps, "xatol": 1e-5, "fatol": 1e-15})


def _thin(run: ScheduledRun) -> ScheduledRun:
    kept = np.unique(np.linspace(0, len(run.steps) - 1, THINNED).astype(int))
    return ScheduledRun(run.rates, run.steps[kept], run.losses[kept])


class _Drops:
    """Where a run's rate falls, in blocks of steps, as seen from each evaluation."""

    def __init__(self, run: ScheduledRun) -> None:
        peak = int(np.argmax(run.rates))
        sharp = peak + np.flatnonzero(np.abs(np.diff(run.rates[peak:])) > SHARP * run.rates.max())
        edges = np.unique(np.concatenate([np.linspace(peak, len(run.rates) - 1, NUM_BLOCKS + 1).astype(int), sharp, sharp + 1]))
        fall = run.rates[edges[:-1]] - run.rates[edges[1:]]
        falls = np.abs(fall) > 1e-12 * run.rates.max()
        middle = ((edges[:-1] + edges[1:]) // 2)[falls]
        total = np.cumsum(run.rates)
        self.size, self.rate = fall[falls], np.maximum(run.rates[edges[1:]][falls], 1e-9 * run.rates.max())
        self.since = np.maximum(run.summed[:, None] - total[middle], 0.0)
        self.since[run.steps[:, None] - 1 < middle] = 0.0


def _power_gain(drops: _Drops, c: float, beta: float, gamma: float, *, unit: float = 1.0) -> np.ndarray:
    """sum_k drop_k (1 - (c rate_k^-gamma since_k + 1)^-beta) at each evaluation, rates counted in `unit`."""
    reach = c * (drops.rate / unit) ** -gamma * (drops.since / unit)
    return ((1 - (reach + 1) ** -beta) * (drops.size / unit)).sum(-1)


def _remembered_drops(run: ScheduledRun) -> np.ndarray:
    """S2 at each evaluation: sum over steps of a memory of rate drops that decays by MEMORY a step; warm-up does not count."""
    falls = np.maximum(-np.diff(run.rates, prepend=run.rates[0]), 0.0)
    memory = lfilter([1.0], [1.0, -MEMORY], falls)
    return np.cumsum(memory)[run.steps.astype(int) - 1]


def _joined(runs: Sequence[ScheduledRun]) -> tuple[np.ndarray, np.ndarray]:
    if not runs or any(len(run.losses) == 0 for run in runs):
        raise DataError("a schedule law needs runs with losses", hint="give at least one decaying and one constant run")
    losses = np.concatenate([run.losses for run in runs])
    if not (np.isfinite(losses).all() and (losses > 0).all()):
        raise DataError("losses must be positive numbers", hint="drop or mend the rows")
    return losses, np.concatenate([run.summed for run in runs])


def _solve(columns: list[np.ndarray], losses: np.ndarray) -> tuple[np.ndarray, float]:
    """Non-negative coefficients by relative least squares, reweighted once so that outliers count by their size; and the Huber sum."""
    scaled = np.stack(columns, axis=1) / losses[:, None]
    solution, _ = nnls(scaled, np.ones_like(losses))
    miss = np.abs(scaled @ solution - 1)
    weight = np.sqrt(np.minimum(1.0, OUTLIER / np.maximum(miss, 1e-12)))
    solution, _ = nnls(scaled * weight[:, None], weight)
    miss = np.abs(scaled @ solution - 1)
    return solution, float(np.where(miss <= OUTLIER, 0.5 * miss**2, OUTLIER * (miss - 0.5 * OUTLIER)).sum())
