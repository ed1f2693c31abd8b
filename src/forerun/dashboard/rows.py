"""Every recorded row of a run, for scripts and for people: Parquet files a browser can read column by column.

Metrics that share their steps share a file, so no file has holes. Steps are packed as differences. Values of runs that fit a row group
are packed by bytes of equal weight under zstd, 0.70 of plain ones under snappy over the runs of the demo; longer ones are plain
under snappy, because a browser decodes a million of those at once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.dashboard.run_view import RunView

ROW_GROUP = 65_536  # assumed: rows a browser fetches at a time when it zooms into a long run
ZSTD_LEVEL = 9  # assumed: 65,536 values in 20 ms
FOLDER = "rows"


def index_path(run: RunView) -> str:
    """The list of a run's files and what is in each."""
    return f"{FOLDER}/{run.name}/index.json"


def place(run: RunView) -> str:
    """Rows written so far by each writer, as `0=120,1=7`: where a live page goes on from."""
    return ",".join(f"{writer}={rows}" for writer, rows in sorted(run.rows_written().items()))


def files_of(run: RunView) -> Mapping[str, Callable[[], bytes]]:
    """Path to content of the index and of every Parquet file; made when asked for, grouped once."""
    groups = _groups(run)
    found: dict[str, Callable[[], bytes]] = {index_path(run): lambda: _index(run, groups)}
    for number in range(len(groups)):
        found[f"{FOLDER}/{run.name}/{number}.parquet"] = lambda number=number: _parquet(run, groups[number])
    return found


def _groups(run: RunView) -> list[list[str]]:
    """Metrics by the steps they were logged at, in the order of their first metric."""
    by_steps: dict[tuple[int, int, int], list[str]] = {}
    for metric in run.metrics():
        step = run.series(metric).step
        if len(step):
            key = (len(step), int(step[0]), hash(step.tobytes()))
            by_steps.setdefault(key, []).append(metric)
    return list(by_steps.values())


def _index(run: RunView, groups: list[list[str]]) -> bytes:
    entries = [
        {"file": f"{number}.parquet", "rows": len(run.series(metrics[0])), "metrics": metrics} for number, metrics in enumerate(groups)
    ]
    content = {"schema": 1, "run": run.name, "num_steps": run.info.num_steps, "place": place(run), "files": entries}
    return json.dumps(content, indent=1).encode() + b"\n"


def _parquet(run: RunView, metrics: list[str]) -> bytes:
    step = run.series(metrics[0]).step
    columns = [_narrow(run.series(metric).value) for metric in metrics]
    fields = [pa.field("step", pa.int32() if int(step.max()) < 2**31 else pa.int64(), nullable=False)]
    fields += [pa.field(metric, pa.from_numpy_dtype(column.dtype), nullable=False) for metric, column in zip(metrics, columns)]
    table = pa.table([pa.array(step).cast(fields[0].type), *map(pa.array, columns)], schema=pa.schema(fields))
    out, short = io.BytesIO(), len(step) <= ROW_GROUP
    pq.write_table(
        table,
        out,
        compression="zstd" if short else "snappy",
        compression_level=ZSTD_LEVEL if short else None,
        use_dictionary=False,
        write_statistics=False,
        column_encoding={"step": "DELTA_BINARY_PACKED", **dict.fromkeys(metrics, "BYTE_STREAM_SPLIT" if short else "PLAIN")},
        row_group_size=ROW_GROUP,
        store_schema=False,
    )
    return out.getvalue()


def _narrow(value: np.ndarray) -> np.ndarray:
    """float32 when that loses nothing."""
    with np.errstate(over="ignore"):
        narrow = value.astype(np.float32)
    return narrow if np.array_equal(narrow.astype(np.float64), value, equal_nan=True) else value
