"""A run for other tools: TensorBoard event files, CSV, Parquet. From the stitched record, so replayed steps appear once."""

from __future__ import annotations

import csv
import io
import math
import struct
from pathlib import Path

from forerun.base.errors import ConfigError
from forerun.base.files import write_atomic
from forerun.record.query import wide_table
from forerun.record.segments import write_table
from forerun.record.series import RunRecord
from forerun.record.tfrecord import delimited, frame, varint

FORMATS = ("tensorboard", "csv", "parquet")


def export(record: RunRecord, kind: str, out: Path) -> Path:
    """Write one run. Returns: the file written. Raises: ConfigError for an unknown kind.

    Args:
        out: the file for csv and parquet, the folder for tensorboard.
    """
    if kind not in FORMATS:
        raise ConfigError(f"--to must be one of {', '.join(FORMATS)}, got {kind!r}", hint="choose one of them")
    return {"tensorboard": to_tensorboard, "csv": to_csv, "parquet": to_parquet}[kind](record, out)


def to_tensorboard(record: RunRecord, folder: Path) -> Path:
    """One event file: a version event, then one event a step with its scalars."""
    columns = {metric: record.series(metric) for metric in record.metrics()}
    rows: dict[int, tuple[float, list[bytes]]] = {}
    for metric, series in columns.items():
        tag = delimited(1, metric.encode())
        for step, value, when in zip(series.step.tolist(), series.value.tolist(), series.time.tolist()):
            scalar = delimited(1, tag + varint(2 << 3 | 5) + struct.pack("<f", value))
            rows.setdefault(step, (when, []))[1].append(scalar)
    parts = [frame(_event(record.info.created, 0, delimited(3, b"brain.Event:2")))]
    for step in sorted(rows):
        when, scalars = rows[step]
        parts.append(frame(_event(when if math.isfinite(when) else 0.0, step, delimited(5, b"".join(scalars)))))
    path = folder / f"events.out.tfevents.{int(record.info.created)}.{record.info.run_id}"
    write_atomic(path, b"".join(parts))
    return path


def to_csv(record: RunRecord, path: Path) -> Path:
    """One row a step, empty where a step lacks a metric."""
    table = wide_table(record)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in zip(*(column.to_pylist() for column in table.columns)):
        writer.writerow(["" if value is None else repr(value) for value in row])
    write_atomic(path, text.getvalue().encode())
    return path


def to_parquet(record: RunRecord, path: Path) -> Path:
    """The same rows as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, wide_table(record))
    return path


def _event(when: float, step: int, rest: bytes) -> bytes:
    """An Event message: wall_time 1, step 2, then what it is about."""
    return varint(1 << 3 | 1) + struct.pack("<d", when) + varint(2 << 3) + varint(step) + rest
