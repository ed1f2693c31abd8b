"""A plot's worth of a metric: min, max and mean over equal spans of steps, from pyramids where they serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.record import pyramid
from forerun.record.reader import JournalRecord, kept_rows


@dataclass(frozen=True)
class Buckets:
    """Per bucket with at least one finite value, in step order."""

    first_step: np.ndarray
    last_step: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    count: np.ndarray


def read_buckets(
    record: JournalRecord, metric: str, num_buckets: int = 2000, *, first_step: int = 0, last_step: int | None = None
) -> Buckets:
    """Reduce one metric to at most `num_buckets` spans of steps.

    Segments that a later stretch of training replaced in part are read row by row; all others from the widest pyramid level
    whose buckets are no wider than a span.
    """
    writer = record.writer_of(metric)
    if writer is None:
        return _reduced([], 0, 1, num_buckets)
    end = record.last_step if last_step is None else last_step
    span = max((end - first_step + 1) / num_buckets, 1.0)
    parts = [_sealed(record, path, metric, span) for path in record.segment_paths(writer, metric)]
    parts.append(_of_rows(*record.tail_rows(writer, metric)))
    return _reduced([part for part in parts if len(part[0])], first_step, end, num_buckets)


def _sealed(record: JournalRecord, path: Path, metric: str, span: float) -> tuple[np.ndarray, ...]:
    """first_step, last_step, min, max, sum, count of one segment's buckets."""
    beside = pyramid.path_beside(path)
    if not beside.exists() or record.is_cut(path):
        return _of_rows(*kept_rows(path, metric, record.info))
    rows_per_step = pq.read_metadata(path).num_rows
    file = pq.ParquetFile(beside)
    names = ["width", "first_step", "last_step", *(f"{metric}|{suffix}" for suffix in ("min", "max", "sum", "count"))]
    table = file.read(columns=names)
    width = table["width"].to_numpy()
    steps = int(table["last_step"].to_numpy().max()) - int(table["first_step"].to_numpy().min()) + 1
    rows_in_span = span * rows_per_step / max(steps, 1)
    fitting = [level for level in pyramid.WIDTHS if level <= rows_in_span]
    if not fitting:
        return _of_rows(*kept_rows(path, metric, record.info))
    table = table.filter(pc.field("width") == fitting[-1]) if len(np.unique(width)) > 1 else table
    columns = tuple(table[name].to_numpy() for name in names[1:])
    there = columns[5] > 0
    return tuple(column[there] for column in columns)


def _of_rows(step: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, ...]:
    keep = np.isfinite(value)
    step, value = step[keep], value[keep]
    return step, step, value, value, value, np.ones(len(step), np.int64)


def _reduced(parts: list[tuple[np.ndarray, ...]], first_step: int, last_step: int, num_buckets: int) -> Buckets:
    if not parts:
        steps, values = np.empty(0, np.int64), np.empty(0)
        return Buckets(steps, steps, values, values, values, steps)
    begin, end, low, high, total, count = (np.concatenate(arrays) for arrays in zip(*parts))
    inside = (end >= first_step) & (begin <= last_step)
    begin, end, low, high, total, count = (array[inside] for array in (begin, end, low, high, total, count))
    span = max((last_step - first_step + 1) / num_buckets, 1.0)
    bucket = np.clip(((begin + end) / 2 - first_step) // span, 0, num_buckets - 1).astype(np.int64)
    order = np.lexsort((begin, bucket))
    bucket, begin, end, low, high, total, count = (array[order] for array in (bucket, begin, end, low, high, total, count))
    start = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))[: len(bucket)]
    if not len(bucket):
        return _reduced([], first_step, last_step, num_buckets)
    number = np.add.reduceat(count, start)
    return Buckets(
        np.minimum.reduceat(begin, start),
        np.maximum.reduceat(end, start),
        np.minimum.reduceat(low, start),
        np.maximum.reduceat(high, start),
        np.add.reduceat(total, start) / number,
        number,
    )
