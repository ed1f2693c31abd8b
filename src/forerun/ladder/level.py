"""Where the big run ends: L = E + R (C / C_top)^-a over the rungs' ends, with E and a uncertain, on a grid.

The floor E is never pinned unless asked. With r = R / L(C_top), the share of the top rung's loss that compute can still remove,
`ln L = level + ln(1 - r + r exp(-a x))`, x = ln(C / C_top): the level drops out analytically, and what remains is a grid over
(a, r, noise). Scale-free: nats, bits per byte and others give the same relative answer.
"""

# A exponents, R shares, S noises, N rungs on the axes of the grid

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EXPONENT_CENTRE = (
    0.13  # assumed: between the 0.09 of pinned-floor MoE ladders and the 0.154-0.178 of the Chinchilla fits (2203.15556, 2404.10102)
)
EXPONENT_SPREAD = 0.3  # derived: of ln(exponent); rung backtests, design note 0050
EXPONENT_FREEDOM = 5.0  # assumed: Student t, so that data far from language models can overrule the centre
NOISE_CENTRE = 0.003  # derived: relative misfit of one end; rung backtests, design note 0050
NOISE_SPREAD = 0.9  # assumed: of ln(noise)
MISFIT_REACH = 2.0  # derived: backtests on rungs; misfit sd grows as sqrt(1 + (distance / reach)^2) below the top rung
DRIFT_REACH = 1.0  # derived: backtests on rungs; variance of the unseen drift beyond the top rung grows linearly with this length

_EXPONENTS = np.geomspace(0.01, 1.2, 90)
_SHARES = np.linspace(0.02, 1.0, 99)
_NOISES = NOISE_CENTRE * np.exp(np.linspace(-2.2, 2.8, 9) * NOISE_SPREAD)


@dataclass(frozen=True)
class Ends:
    """Where the rungs ended."""

    distance: np.ndarray
    """ln(C / C_top) of each rung, 0 for the largest."""
    losses: np.ndarray
    """Final loss, inferred where a rung died."""
    sd: np.ndarray
    """Relative sd of each end beyond the common misfit: seed noise, inference."""

    def only(self, which: np.ndarray) -> Ends:
        """The chosen rungs, measured from the largest of them."""
        distance = self.distance[which]
        return Ends(distance - distance.max(), self.losses[which], self.sd[which])


@dataclass(frozen=True)
class Level:
    """What the rungs' ends say: a weight for each (exponent, share, noise), and the top rung's fitted loss there."""

    exponent: np.ndarray
    share: np.ndarray
    noise: np.ndarray
    weight: np.ndarray
    top: np.ndarray
    """ln of the fitted loss at the top rung."""
    top_sd: np.ndarray

    @property
    def floor(self) -> np.ndarray:
        """E of each grid point, in the loss's unit."""
        return np.exp(self.top) * (1 - self.share)

    def log_loss(self, distance: float) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of ln loss at ln(C / C_top) = distance, for each grid point."""
        mean = self.top + np.log(1 - self.share + self.share * np.exp(-self.exponent * distance))
        drift = self.noise**2 * max(distance, 0.0) / DRIFT_REACH
        return mean, np.sqrt(self.top_sd**2 + drift + self.noise**2)

    def draws(self, num: int, rng: np.random.Generator) -> np.ndarray:
        """Indices of `num` grid points, each as often as its weight says (systematic resampling)."""
        edges = np.cumsum(self.weight)
        picks = np.searchsorted(edges / edges[-1], (np.arange(num) + rng.random()) / num)
        return rng.permutation(np.minimum(picks, len(edges) - 1))


def fit_level(ends: Ends, *, floor: float | None = None) -> Level:
    """Weigh every (exponent, share, noise) by how well it explains the rungs' ends. `floor` pins E to a value."""
    distance = ends.distance
    top_loss = float(ends.losses[np.argmax(distance)])
    shares = _SHARES if floor is None else np.array([1 - floor / top_loss])
    a, r, s = np.meshgrid(_EXPONENTS, shares, _NOISES, indexing="ij")
    shape = np.log(1 - r[..., None] + r[..., None] * np.exp(-a[..., None] * distance))
    variance = s[..., None] ** 2 * (1 + (distance / MISFIT_REACH) ** 2) + ends.sd**2
    precision = 1 / variance
    residual = np.log(ends.losses) - shape
    total = precision.sum(-1)
    top = (precision * residual).sum(-1) / total
    log_likelihood = -0.5 * (precision * (residual - top[..., None]) ** 2).sum(-1) - 0.5 * np.log(variance).sum(-1) - 0.5 * np.log(total)
    log_weight = log_likelihood + _log_prior(a, s)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    keep = weight > 1e-9 * weight.max()
    return Level(a[keep], r[keep], s[keep], weight[keep], top[keep], np.sqrt(1 / total)[keep])


def _log_prior(exponent: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Student t on ln(exponent), normal on ln(noise), flat on the share."""
    z = np.log(exponent / EXPONENT_CENTRE) / EXPONENT_SPREAD
    on_exponent = -0.5 * (EXPONENT_FREEDOM + 1) * np.log1p(z**2 / EXPONENT_FREEDOM)
    return on_exponent - 0.5 * (np.log(noise / NOISE_CENTRE) / NOISE_SPREAD) ** 2
