"""Arrays that grow inside compiled loops."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def grown(array, room):
    """A copy with space for `room` elements; those behind the old ones are not set."""
    larger = np.empty(room, array.dtype)
    larger[: len(array)] = array
    return larger
