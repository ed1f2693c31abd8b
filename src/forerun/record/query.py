"""SQL over a run: DuckDB on the stitched rows. The engine reads; it never stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from forerun.base.errors import RecordError
from forerun.record.series import RunRecord


def wide_table(record: RunRecord) -> pa.Table:
    """One row a step, one column a metric, null where a step lacks it."""
    series = {metric: record.series(metric) for metric in record.metrics()}
    steps = np.unique(np.concatenate([part.step for part in series.values()])) if series else np.empty(0, np.int64)
    columns: dict[str, Any] = {"step": steps}
    for metric, part in series.items():
        values, missing = np.zeros(len(steps)), np.ones(len(steps), bool)
        where = np.searchsorted(steps, part.step)
        values[where], missing[where] = part.value, False
        columns[metric] = pa.array(values, mask=missing)
    return pa.table(columns)


def query(record: RunRecord, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run SQL against the table `metrics`. Returns: column names and rows. Raises: RecordError with DuckDB's words."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("metrics", wide_table(record))
        try:
            answer = connection.execute(sql)
            return [column[0] for column in answer.description or []], answer.fetchall()
        except duckdb.Error as error:
            raise RecordError(
                f"the query failed: {' '.join(str(error).partition('LINE ')[0].split())}",
                hint='the table is metrics; quote names with slashes: "grad_norm/head"',
            ) from None
