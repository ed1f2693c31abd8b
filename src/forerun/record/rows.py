"""Journal lines to columns: parsing with torn lines counted, and the columnar form that segments are sealed from.

A journal is JSON lines of three kinds: `{"journal": {"schema": 1, "first_row": N}}` once at the top, `{"segment": k}` when a
stretch of training begins, and rows `{"step": .., "time": .., metric: value, ..}`. Values JSON cannot say are the strings
NaN, Infinity and -Infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

RESERVED = frozenset({"step", "time", "segment", "journal"})
"""Names a metric cannot have."""


@dataclass(frozen=True)
class Rows:
    """Parsed lines of one journal, in writing order."""

    first_row: int
    """Number of the first row here, counted over the writer's whole life."""
    segment: list[int]
    """Per row, index into the run's segments."""
    content: list[dict[str, Any]]
    """Per row, `step`, `time` and metrics."""
    torn_lines: int
    """Lines that were not JSON: what a crash left half-written."""


def read_rows(path: Path, *, skip_rows: int = 0) -> Rows:
    """Parse a journal; absent is empty. Rows numbered below `skip_rows` are left out (they are sealed already)."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Rows(skip_rows, [], [], 0)
    number, index, torn = 0, 0, 0
    first = None
    segment: list[int] = []
    content: list[dict[str, Any]] = []
    for line in lines:
        if not line:
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            torn += 1
            continue
        if not isinstance(row, dict):
            torn += 1
        elif "step" in row and "time" in row:
            if number >= skip_rows:
                first = number if first is None else first
                content.append(row)
                segment.append(index)
            number += 1
        elif "segment" in row:
            index = row["segment"]
        elif "journal" in row:
            number = row["journal"]["first_row"]
    return Rows(max(number, skip_rows) if first is None else first, segment, content, torn)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Columns of the metrics: float64 masked arrays, masked where a row lacks the metric. `step` and `time` are left out."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(tuple(row), []).append(index)
    columns: dict[str, np.ndarray] = {}
    for keys, members in groups.items():
        block = _block([rows[index] for index in members])
        where = np.asarray(members)
        for position, key in enumerate(keys):
            if key in RESERVED:
                continue
            if key not in columns:
                columns[key] = np.ma.masked_all(len(rows), dtype=np.float64)
            columns[key][where] = block[:, position]
    return columns


def _block(rows: list[dict[str, Any]]) -> np.ndarray:
    """Rows with the same keys as one float64 matrix; NumPy reads the strings NaN and Infinity as numbers."""
    return np.array([tuple(row.values()) for row in rows], dtype=np.float64)
