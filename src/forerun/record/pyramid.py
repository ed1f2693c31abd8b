"""Min, max and mean of every metric over runs of rows, at several widths, so that a plot of any length reads few numbers.

One Parquet file beside each segment: a row a bucket, the narrowest level first; per metric the columns `<name>|min`, `|max`,
`|sum` and `|count`. Non-finite values are left out of a bucket and make its count smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

WIDTHS = (16, 128, 1024)  # assumed: rows a bucket; 20,000 rows are 20 buckets at the widest, so 50 segments are 1,000
ROW_GROUP = 2048  # derived: buckets of the narrowest level of a full segment fit in one


def path_beside(segment: Path) -> Path:
    """The pyramid of a segment file."""
    return segment.with_name(segment.stem + ".pyramid.parquet")


def build(step: np.ndarray, columns: Mapping[str, np.ndarray]) -> pa.Table:
    """All levels of one segment, from its steps and its masked metric columns."""
    starts = [np.arange(0, len(step), width) for width in WIDTHS]
    table: dict[str, np.ndarray] = {
        "width": np.concatenate([np.full(len(start), width, np.int32) for width, start in zip(WIDTHS, starts)]),
        "first_step": np.concatenate([np.minimum.reduceat(step, start) for start in starts]),
        "last_step": np.concatenate([np.maximum.reduceat(step, start) for start in starts]),
    }
    for name in sorted(columns):
        value = np.ma.filled(columns[name], np.nan)
        there = np.isfinite(value)
        for suffix, reduce, filled in (
            ("min", np.minimum, np.where(there, value, np.inf)),
            ("max", np.maximum, np.where(there, value, -np.inf)),
            ("sum", np.add, np.where(there, value, 0.0)),
            ("count", np.add, there.astype(np.int32)),
        ):
            table[f"{name}|{suffix}"] = np.concatenate([reduce.reduceat(filled, start) for start in starts])
    return pa.table(table)
