"""Few points of a long series that look like all of them: the lowest and the highest of each stretch, and both ends."""

from __future__ import annotations

import numpy as np

from forerun.record.series import Series

POINTS = 120  # assumed: lowest and highest of each 10 units of a drawing 620 units wide; a script draws all recorded rows


def thinned(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values to draw; non-finite values are left out. The record holds all rows."""
    keep = np.isfinite(series.value)
    step, value = series.step[keep], series.value[keep]
    if len(step) <= POINTS:
        return step, value
    edges = np.linspace(0, len(step), POINTS // 2 + 1).astype(np.int64)
    chosen = [0, len(step) - 1]
    for begin, end in zip(edges, edges[1:]):
        if end > begin:
            chosen += [begin + int(value[begin:end].argmin()), begin + int(value[begin:end].argmax())]
    index = np.unique(np.asarray(chosen, dtype=np.int64))
    return step[index], value[index]
