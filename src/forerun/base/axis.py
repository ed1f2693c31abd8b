"""Places values between two pixels and proposes round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable

NUM_TICKS = 6
MARGIN = 0.04
"""Share of a linear axis left empty at each end."""
LARGEST = 1e300  # derived: the difference of two values stays a float64


class Axis:
    """One axis; with `log` values that are not positive have no place on it."""

    def __init__(self, values: Iterable[float], start: float, stop: float, *, log: bool = False) -> None:
        found = [value for value in values if abs(value) < LARGEST and (value > 0 or not log)] or [1.0, 2.0]
        low, high = min(found), max(found)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
        margin = 0.0 if log else MARGIN * (high - low)
        self.low, self.high, self._log = low - margin, high + margin, log
        self._from, self._to = (math.log10(low), math.log10(high)) if log else (self.low, self.high)
        self._start, self._stop = start, stop

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._log else value
        return self._start + (place - self._from) / (self._to - self._from) * (self._stop - self._start)

    def holds(self, value: float) -> bool:
        """Whether the value has a place."""
        return abs(value) < LARGEST and (value > 0 or not self._log)

    def ticks(self) -> list[tuple[float, str]]:
        """Values and their labels, powers of ten or steps of 1, 2 or 5."""
        if self._log:
            powers = range(math.ceil(self._from - 1e-9), math.floor(self._to + 1e-9) + 1)
            return [(10.0**power, f"1e{power}") for power in powers] or [(value, f"{value:.2g}") for value in (self.low, self.high)]
        raw = (self._to - self._from) / NUM_TICKS
        scale = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw)
        first = math.ceil(self._from / step)
        return [(index * step, f"{index * step:.10g}") for index in range(first, math.floor(self._to / step) + 1)]
