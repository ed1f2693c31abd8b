"""Fit the four constants of the routing simulator to the four published rows marked `fitted`, and show all rows.

Run from the repository root: python benchmarks/parallel/fit_routing.py
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from forerun.parallel.published import PUBLISHED, compared, table
from forerun.parallel.simulate import Behaviour, predict

NUM_DRAWS = 150
START = (2.7, 0.7, 0.06, 0.22)  # assumed: near the values a normal distribution gives by hand


def behaviour_at(point: np.ndarray) -> Behaviour:
    """Constants from their logarithms, which the search moves in."""
    names = ("specialisation", "contrast", "unevenness", "early_unevenness")
    return Behaviour(**dict(zip(names, np.exp(point).tolist())))


def misfit(point: np.ndarray) -> float:
    """Squared logarithm of simulated over measured, summed over the fitted rows, with the same draws at every point."""
    behaviour, total = behaviour_at(point), 0.0
    for row in PUBLISHED:
        if row.role == "fitted":
            simulated = predict(row.scenario, behaviour, num_draws=NUM_DRAWS).drop_fraction
            total += np.log(max(simulated, 1e-12) / row.drop_fraction) ** 2
    return total


if __name__ == "__main__":
    found = minimize(misfit, np.log(START), method="Nelder-Mead", options={"maxiter": 50, "xatol": 0.01, "fatol": 1e-4})
    behaviour = behaviour_at(found.x)
    print(behaviour, f"misfit {found.fun:.2e}")
    print(table(compared(behaviour)))
