"""CSV and Parquet files: a column `step` (or `_step`, `global_step`) and one column a metric, or long rows `step,metric,value`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.watch.sources.source import Collected

STEP_NAMES = ("step", "_step", "global_step", "iteration", "Step")
TIME_NAMES = ("time", "_timestamp", "timestamp", "wall_time")
TEXT_COLUMNS = ("run", "name", "tags")


def connect(where: str) -> Table:
    """`where` is a file ending in .csv, .tsv or .parquet. Lines that start with # are comments."""
    return Table(Path(where))


class Table:
    """Read whole each time; tables are small or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> RunRecord:
        """All rows. Raises: SourceError when the file is absent, has no step column or a cell is no number."""
        collected = Collected(self.path.stem)
        for number, row in enumerate(self._rows(), start=1):
            step_name = next((name for name in STEP_NAMES if name in row), None)
            if step_name is None:
                raise SourceError(
                    f"{self.path} has no column {' or '.join(STEP_NAMES[:3])}, but {sorted(row)}", hint="name the step column `step`"
                )
            step = _number(row[step_name])
            if step is None:
                raise SourceError(
                    f"{self.path}: row {number} has step {row[step_name]!r}, expected a number", hint="mend or remove the row"
                )
            when = next((value for name in TIME_NAMES if (value := _number(row.get(name))) is not None), float("nan"))
            if {"metric", "value"} <= set(row):
                collected.add(str(row["metric"]), int(step), _number(row["value"]), when)
            else:
                collected.add_row(
                    int(step), {name: _number(value) for name, value in row.items()}, when, skip=(*STEP_NAMES, *TIME_NAMES, *TEXT_COLUMNS)
                )
        return collected.record()

    def _rows(self) -> Iterator[dict[str, Any]]:
        if not self.path.is_file():
            raise SourceError(f"{self.path} is not a file", hint="check the path")
        if self.path.suffix == ".parquet":
            import pyarrow
            import pyarrow.parquet as pq

            try:
                yield from pq.read_table(self.path).to_pylist()
            except pyarrow.ArrowInvalid as error:
                raise SourceError(f"{self.path} is not Parquet: {error}", hint="check the file") from None
            return
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                lines = (line for line in file if not line.startswith("#") and line.strip())
                yield from csv.DictReader(lines, delimiter="\t" if self.path.suffix == ".tsv" else ",")
        except (UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{self.path} is not text: {error}", hint="save it as UTF-8 CSV") from None


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
