"""Where the big run ends: L = E + R (C / C_top)^-a over the rungs' ends, with E and a uncertain, on a grid.

The floor E is never pinned unless asked. With r = R / L(C_top), the share of the top rung's loss that compute can still remove,
`ln L = level + ln(1 - r + r exp(-a x)) + t u`, x = ln(C / C_top): the level drops out analytically, and what remains is a grid over
(a, r, t, noise). Scale-free: nats, bits per byte and others give the same relative answer.

u falls with the run's updates: a run of a few hundred updates ends above the law of long ones, by an unknown share t u. At ten
thousand updates the term is a tenth of a percent; below a thousand it lowers the forecast of a longer run and widens it.
"""

# G cells (exponent, share), S noises, N rungs

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.ladder.rungs import SAME_LEVEL

EXPONENT_CENTRE = (
    0.13  # assumed: between the 0.09 of pinned-floor MoE ladders and the 0.154-0.178 of the Chinchilla fits (2203.15556, 2404.10102)
)
LENGTH_EXPONENT_CENTRE = 0.32  # assumed: of tokens at one size, between 0.28 (arXiv:2203.15556) and 0.366 (2404.10102)
EXPONENT_SPREAD = 0.3  # measured: of ln(exponent); rung backtests, design note 0050
EXPONENT_FREEDOM = 5.0  # assumed: Student t, so that data far from language models can overrule the centre
NOISE_CENTRE = 0.003  # measured: relative misfit of one end; rung backtests, design note 0050
NOISE_SPREAD = 0.9  # assumed: of ln(noise); 1.2 scored worse in rung backtests, note 0050
MISFIT_REACH = 2.0  # measured: rung backtests; misfit sd grows as sqrt(1 + (distance / reach)^2) below the top rung
DRIFT_REACH = 1.0  # measured: rung backtests; variance of the unseen drift beyond the top rung grows linearly with this length
STARTUP_SPREAD = 0.07  # measured: sd of t, half-normal; two tiny ladders of 38 to 441 updates and rung backtests, note 0050
STARTUP_STEPS = 500.0  # measured: updates, same
STARTUP_MISFIT = 0.02  # measured: relative sd of one end about any law, over u; same
FEWEST_UPDATES = 20.0  # assumed: fewer updates count as this many; there is no law of such runs
SAME_SIZE = 0.02  # assumed: ln compute per step; rungs closer than this differ in length alone

_EXPONENTS = np.geomspace(0.01, 1.2, 90)
_SHARES = np.linspace(0.02, 1.0, 99)
_NOISES = NOISE_CENTRE * np.exp(np.linspace(-2.2, 2.8, 9) * NOISE_SPREAD)
_STARTUPS = np.array([0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.6])  # in STARTUP_SPREAD
LEAST_SHARE = 1e-4  # assumed: a pinned floor so near the top rung leaves this to be gained


@dataclass(frozen=True)
class Ends:
    """Where the rungs ended."""

    distance: np.ndarray
    """ln(C / C_top) of each rung, 0 for the largest."""
    losses: np.ndarray
    """Final loss, inferred where a rung died."""
    sd: np.ndarray
    """Relative sd of each end beyond the common misfit: seed noise, inference."""
    steps: np.ndarray
    """Planned updates."""

    def only(self, which: np.ndarray) -> Ends:
        """The chosen rungs, measured from the largest of them."""
        distance = self.distance[which]
        return Ends(distance - distance.max(), self.losses[which], self.sd[which], self.steps[which])

    @property
    def one_size(self) -> bool:
        """Whether the rungs differ in length alone: equal compute per step, so only data is scaled."""
        return float(np.ptp(self.distance - np.log(self.steps))) < SAME_SIZE and float(np.ptp(self.distance)) > SAME_LEVEL


@dataclass(frozen=True)
class Level:
    """What the rungs' ends say: a weight for each grid point, and the top rung's fitted loss there."""

    exponent: np.ndarray
    share: np.ndarray
    startup: np.ndarray
    """t: relative excess at the end of a run of STARTUP_STEPS updates."""
    noise: np.ndarray
    weight: np.ndarray
    top: np.ndarray
    """ln of the fitted loss at the top rung's compute, without its start-up excess."""
    top_sd: np.ndarray

    @property
    def floor(self) -> np.ndarray:
        """E of each grid point, in the loss's unit."""
        return np.exp(self.top) * (1 - self.share)

    def log_loss(self, distance: float, steps: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of ln loss of a run of `steps` updates at ln(C / C_top) = distance, for each grid point."""
        mean = self.top + np.log(1 - self.share + self.share * np.exp(-self.exponent * distance)) + self.startup * startup(steps)
        drift = self.noise**2 * max(distance, 0.0) / DRIFT_REACH
        return mean, np.sqrt(self.top_sd**2 + drift + self.noise**2 + (STARTUP_MISFIT * startup(steps)) ** 2)

    def draws(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Indices of `num` grid points, each as often as its weight says (systematic resampling)."""
        edges = np.cumsum(self.weight)
        picks = np.searchsorted(edges / edges[-1], (np.arange(num) + rng.random()) / num)
        return rng.permutation(np.minimum(picks, len(edges) - 1))


def startup(steps: np.ndarray | float) -> np.ndarray:
    """u: share of the start-up excess left at the end of a run of that many updates, 1 at STARTUP_STEPS."""
    return np.log1p(STARTUP_STEPS / np.maximum(np.asarray(steps, float), FEWEST_UPDATES))


def fit_level(ends: Ends, *, floor: float | None = None) -> Level:
    """Weigh every (exponent, share, startup, noise) by how well it explains the rungs' ends. `floor` pins E to a value."""
    top_rung = int(np.argmax(ends.distance))
    parts = []
    for t in STARTUP_SPREAD * _STARTUPS:
        logs = np.log(ends.losses) - t * startup(ends.steps)
        shares = _SHARES if floor is None else np.array([max(1 - floor / float(np.exp(logs[top_rung])), LEAST_SHARE)])
        a, r = (axis.ravel() for axis in np.meshgrid(_EXPONENTS, shares, indexing="ij"))
        misfit = logs - np.log(1 - r[:, None] + r[:, None] * np.exp(-a[:, None] * ends.distance))
        for noise in _NOISES:
            precision = 1 / (
                noise**2 * (1 + (ends.distance / MISFIT_REACH) ** 2) + ends.sd**2 + (STARTUP_MISFIT * startup(ends.steps)) ** 2
            )
            total = float(precision.sum())
            top = misfit @ precision / total
            log_likelihood = -0.5 * (misfit**2 @ precision - total * top**2) + 0.5 * float(np.log(precision).sum() - np.log(total))
            log_weight = log_likelihood + _log_prior(a, noise, t, one_size=ends.one_size)
            parts.append(np.stack(np.broadcast_arrays(a, r, t, noise, log_weight, top, total**-0.5)))
    exponent, share, startups, noises, log_weight, top, top_sd = np.concatenate(parts, axis=1)
    weight = np.exp(log_weight - log_weight.max())
    kept = weight > 1e-9
    return Level(exponent[kept], share[kept], startups[kept], noises[kept], weight[kept] / weight[kept].sum(), top[kept], top_sd[kept])


def _log_prior(exponent: np.ndarray, noise: float, t: float, *, one_size: bool) -> np.ndarray:
    """Student t on ln(exponent), normal on ln(noise), half-normal on the start-up term, flat on the share."""
    z = np.log(exponent / (LENGTH_EXPONENT_CENTRE if one_size else EXPONENT_CENTRE)) / EXPONENT_SPREAD
    on_exponent = -0.5 * (EXPONENT_FREEDOM + 1) * np.log1p(z**2 / EXPONENT_FREEDOM)
    return on_exponent - 0.5 * (np.log(noise / NOISE_CENTRE) / NOISE_SPREAD) ** 2 - 0.5 * (t / STARTUP_SPREAD) ** 2
