"""Laws for runs that differ in their number of experts. Skip them when the recipe is fixed: then one compute law is enough.

Experts saturate: 1/E_hat = 1/(E - 1 + 1/(1/E_start - 1/E_max)) + 1/E_max.

    bilinear (Clark 2022, arXiv:2202.01169):       ln L = a ln N + b ln E_hat + c ln N ln E_hat + d
    joint (Ludziejewski 2025, arXiv:2502.05172):   L = a E_hat^delta N^(alpha + gamma ln E_hat) + b E_hat^omega D^(beta + zeta ln E_hat) + floor
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from forerun.base.errors import DataError

FIRST_EXPERTS, MOST_EXPERTS = 1.85, 290.0  # source: arXiv:2202.01169, table 3, routing by reinforcement; refit when many E are at hand


@dataclass(frozen=True)
class MoERuns:
    """Finished runs over sizes, lengths and numbers of experts."""

    num_active_params: np.ndarray
    train_tokens: np.ndarray
    num_experts: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True, kw_only=True)
class BilinearLaw:
    """Clark's law at one length of training."""

    a: float
    b: float
    c: float
    d: float

    def at(self, num_active_params: np.ndarray | float, num_experts: np.ndarray | float) -> np.ndarray:
        """Loss at that size and number of experts."""
        size, experts = np.log(np.asarray(num_active_params, float)), np.log(effective_experts(num_experts))
        return np.exp(self.a * size + self.b * experts + self.c * size * experts + self.d)


@dataclass(frozen=True, kw_only=True)
class JointLaw:
    """Active size, tokens and experts together."""

    floor: float
    a: float
    delta: float
    alpha: float
    gamma: float
    b: float
    omega: float
    beta: float
    zeta: float
    centre: tuple[float, float]
    """(N, D) that a and b are counted at; keeps the numbers of order 1."""

    def at(self, num_active_params: np.ndarray | float, train_tokens: np.ndarray | float, num_experts: np.ndarray | float) -> np.ndarray:
        """Loss at that size, length and number of experts."""
        point = [self.floor, self.a, self.delta, self.alpha, self.gamma, self.b, self.omega, self.beta, self.zeta]
        return _joint(np.array(point), *_logs(num_active_params, train_tokens, num_experts, self.centre))


def effective_experts(num_experts: np.ndarray | float) -> np.ndarray:
    """E_hat, which saturates at MOST_EXPERTS."""
    experts = np.asarray(num_experts, float)
    return 1 / (1 / (experts - 1 + 1 / (1 / FIRST_EXPERTS - 1 / MOST_EXPERTS)) + 1 / MOST_EXPERTS)


def fit_bilinear(runs: MoERuns) -> BilinearLaw:
    """Least squares in logs. Raises: DataError when sizes or numbers of experts do not vary enough to tell four numbers."""
    _check(runs, 4)
    size, experts = np.log(runs.num_active_params), np.log(effective_experts(runs.num_experts))
    columns = np.stack([size, experts, size * experts, np.ones_like(size)], axis=1)
    a, b, c, d = np.linalg.lstsq(columns, np.log(runs.losses), rcond=None)[0]
    return BilinearLaw(a=float(a), b=float(b), c=float(c), d=float(d))


def fit_joint(runs: MoERuns) -> JointLaw:
    """Least squares on log loss from several starts; the expert terms are held near 0 unless the data move them.

    Raises: DataError when there are fewer than 9 runs or nothing varies.
    """
    _check(runs, 9)
    centre = (float(np.exp(np.log(runs.num_active_params).mean())), float(np.exp(np.log(runs.train_tokens).mean())))
    logs = _logs(runs.num_active_params, runs.train_tokens, runs.num_experts, centre)
    low = float(runs.losses.min())

    def miss(point: np.ndarray) -> np.ndarray:
        return np.append(np.log(_joint(point, *logs) / runs.losses), 1e-4 * point[[2, 4, 6, 8]])

    lower = [0, 0, -1, 0.02, -0.2, 0, -1, 0.02, -0.2]
    upper = [low, 10 * low, 1, 1.5, 0.2, 10 * low, 1, 1.5, 0.2]
    found = min(
        (
            least_squares(
                miss, [share * low, 0.3 * low, 0, exponent, 0, 0.3 * low, 0, exponent, 0], bounds=(lower, upper), xtol=1e-12, ftol=1e-12
            )
            for share in (0.3, 0.6)
            for exponent in (0.2, 0.4)
        ),
        key=lambda each: each.cost,
    )
    floor, a, delta, alpha, gamma, b, omega, beta, zeta = (float(value) for value in found.x)
    return JointLaw(floor=floor, a=a, delta=delta, alpha=alpha, gamma=gamma, b=b, omega=omega, beta=beta, zeta=zeta, centre=centre)


def _logs(
    size: np.ndarray | float, tokens: np.ndarray | float, experts: np.ndarray | float, centre: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.log(np.asarray(size, float) / centre[0]),
        np.log(np.asarray(tokens, float) / centre[1]),
        np.log(effective_experts(experts)),
    )


def _joint(point: np.ndarray, size: np.ndarray, tokens: np.ndarray, experts: np.ndarray) -> np.ndarray:
    """Exponents are stored positive and applied negative; expert terms as in the module docstring."""
    floor, a, delta, alpha, gamma, b, omega, beta, zeta = point
    by_size = a * np.exp(delta * experts - (alpha - gamma * experts) * size)
    by_tokens = b * np.exp(omega * experts - (beta - zeta * experts) * tokens)
    return floor + by_size + by_tokens


def _check(runs: MoERuns, least: int) -> None:
    if len(runs.losses) < least:
        raise DataError(f"this law has {least} numbers and needs at least as many runs, got {len(runs.losses)}", hint="add runs")
    for name in ("num_active_params", "num_experts"):
        if len(np.unique(getattr(runs, name))) < 2:
            raise DataError(f"all runs have the same {name}", hint="vary it, or use a compute law")
    if not ((runs.num_experts >= 1).all() and (runs.losses > 0).all() and np.isfinite(runs.losses).all()):
        raise DataError("num_experts must be at least 1 and losses positive numbers", hint="a dense run has num_experts=1")
