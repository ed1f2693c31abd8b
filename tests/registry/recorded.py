"""A history that rules can be scored on, from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class Recorded:
    """Arrays of fractions and values by metric name."""

    def __init__(self, values: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self._values = values

    def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Both empty for a metric that is not here."""
        return self._values.get(metric, (np.empty(0), np.empty(0)))
