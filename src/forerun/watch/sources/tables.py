"""Files of rows: CSV, Parquet or JSON lines with a column `step` and one column a metric, or long rows `step,metric,value`.

What trackers offer as a download is read too: W&B's chart export (`Step`, `RUN - METRIC`, with `__MIN` and `__MAX` beside it),
TensorBoard's (`Wall time,Step,Value`, the metric in the file's name), histories as JSON lines.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.watch.sources.source import Collected

STEP_NAMES = ("step", "_step", "global_step", "trainer/global_step", "iteration", "iter", "Step")
TIME_NAMES = ("time", "_timestamp", "timestamp", "wall_time", "Wall time")
RUN_AND_METRIC = " - "
SPREAD = ("__MIN", "__MAX")
TEXT_COLUMNS = ("run", "name", "tags")


def connect(where: str) -> Table:
    """`where` is a file ending in .csv, .tsv, .parquet or .jsonl, with `#RUN` behind it where it holds several runs.

    Lines of a CSV that start with # are comments.
    """
    path, _, run = where.partition("#")
    return Table(Path(path), run)


class Table:
    """Read whole each time; tables are small or finished."""

    def __init__(self, path: Path, run: str = "") -> None:
        self.path, self.run = path, run

    def read(self) -> RunRecord:
        """All rows. Raises: SourceError when the file is absent, has no step column, a step is no number, or it holds several runs."""
        collected = Collected(self.run or self.path.stem)
        runs: set[str] = set()
        for number, cells in enumerate(self._rows(), start=1):
            row, names = self._of_one_run(cells)
            runs |= names
            if len(runs) > 1:
                raise SourceError(f"{self.path} holds several runs: {sorted(runs)}", hint=f"name one: {self.path}#{min(runs)}")
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
            if not math.isfinite(step):
                raise SourceError(
                    f"{self.path}: row {number} has step {row[step_name]!r}, expected a number", hint="mend or remove the row"
                )
            when = next((value for name in TIME_NAMES if (value := _number(row.get(name))) is not None), float("nan"))
            if {"metric", "value"} <= set(row):
                collected.add(str(row["metric"]), int(step), _number(row["value"]), when)
            elif "Value" in row and set(row) <= {"Step", "Wall time", "Value"}:
                collected.add(self.path.stem.split("tag-")[-1], int(step), _number(row["Value"]), when)
            else:
                collected.add_row(
                    int(step), {name: _number(value) for name, value in row.items()}, when, skip=(*STEP_NAMES, *TIME_NAMES, *TEXT_COLUMNS)
                )
        return collected.record()

    def _of_one_run(self, row: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """A row of a chart export with its columns named by metric, and the runs in it; other rows come back as they are."""
        kept, runs = {}, set()
        for column, value in row.items():
            run, dash, metric = str(column).rpartition(RUN_AND_METRIC)
            if not dash:
                kept[column] = value
            elif not metric.endswith(SPREAD) and metric not in (*STEP_NAMES, *TIME_NAMES) and (not self.run or run == self.run):
                runs.add(run)
                kept[metric] = value
        return kept, runs

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
        if self.path.suffix in (".jsonl", ".ndjson"):
            yield from self._json_rows()
            return
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                lines = (line for line in file if not line.startswith("#") and line.strip())
                yield from csv.DictReader(lines, delimiter="\t" if self.path.suffix == ".tsv" else ",")
        except (UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{self.path} is not text: {error}", hint="save it as UTF-8 CSV") from None

    def _json_rows(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self.path.read_bytes().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)  # the standard library's: histories write NaN, which orjson refuses
            except ValueError as error:
                raise SourceError(f"{self.path}: line {number} is not JSON: {error}", hint="mend or remove the line") from None
            if not isinstance(row, dict):
                raise SourceError(f"{self.path}: line {number} is no object", hint="one object a line, with its step")
            yield row


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
