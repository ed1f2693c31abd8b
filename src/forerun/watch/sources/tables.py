"""Files of rows: CSV, Parquet or JSON with a column of steps and one column a metric, or long rows `step,metric,value`.

What trackers and trainers leave behind is read too: W&B's chart export (`Step`, `RUN - METRIC`, with `__MIN` and `__MAX` beside it),
TensorBoard's (`Wall time,Step,Value`, the metric in the file's name), histories as JSON lines, the `trainer_state.json` of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.watch.band import EVAL_LOSS
from forerun.watch.sources.rows import Row, rows_of
from forerun.watch.sources.source import Collected

STEP_NAMES = (
    "step", "global_step", "trainer/global_step", "train/global_step", "iteration", "iterations", "iter", "steps", "num_updates",
    "train_num_updates", "_step",
)  # fmt: skip
"""In small letters, the first that a file has; `_step` last, since where trainers log their own step it counts calls of the tracker."""
TIME_NAMES = ("time", "_timestamp", "timestamp", "wall_time", "wall time")
HEAD_ROWS = 1000  # assumed: rows in which every column of steps and times occurs
MILLISECONDS_FROM = 1e11  # derived: as seconds the year 5138, as milliseconds 1973
RUN_AND_METRIC = " - "
EVALUATIONS = {"rung", "step", "loss_nats", "eval"}
SPREAD = ("__MIN", "__MAX")
RUN_COLUMNS = ("run", "rung")
TEXT_COLUMNS = (*RUN_COLUMNS, "name", "tags")


def connect(where: str) -> Table:
    """`where` is a .csv, .tsv, .parquet, .jsonl or .json file, also with .gz, with `#RUN` behind it where it holds several runs.

    Lines of a CSV that start with # are comments.
    """
    path, _, run = where.partition("#")
    return Table(Path(path), run)


class Table:
    """Read whole each time; tables are small or finished."""

    def __init__(self, path: Path, run: str = "") -> None:
        self.path, self.run = path, run

    def read(self) -> RunRecord:
        """All rows that have a step. Raises: SourceError when none has, a step is no number, or the file holds several runs."""
        collected = Collected(self.run or self.path.stem)
        rows = self._of_one_run(rows_of(self.path))
        head = list(islice(rows, HEAD_ROWS))
        columns = dict.fromkeys(name for row in head for name in row)
        step_name, time_name = (_first_of(names, columns) for names in (STEP_NAMES, TIME_NAMES))
        if head and not step_name:
            raise SourceError(f"{self.path} has no column step or global_step, but {list(columns)}", hint="name the step column `step`")
        if "loss_nats" in columns and columns.keys() <= EVALUATIONS:
            rows, head = _as_evaluations(rows), list(_as_evaluations(head))
        skip = {name for name in columns if name.lower() in (*STEP_NAMES, *TIME_NAMES, *TEXT_COLUMNS)}
        chart = self.path.stem.split("tag-")[-1] if {name.lower() for name in columns} == {"step", "wall time", "value"} else ""
        for number, row in enumerate(chain(head, rows), start=1):
            step, when = self._step(row.get(step_name), number), _seconds(row.get(time_name))
            if step is None:
                continue
            if {"metric", "value"} <= row.keys():
                collected.add(str(row["metric"]), step, _number(row["value"]), when)
            elif chart:
                collected.add(chart, step, _number(row["Value"]), when)
            else:
                collected.add_row(step, {name: _number(value) for name, value in row.items()}, when, skip=skip)
        return collected.record()

    def _step(self, cell: Any, number: int) -> int | None:
        """None where the row has none: headers and summaries between rows."""
        if cell in (None, ""):
            return None
        step = _number(cell)
        if step is None or not math.isfinite(step):
            raise SourceError(f"{self.path}: row {number} has step {cell!r}, expected a number", hint="mend or remove the row")
        return int(step)

    def _of_one_run(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Rows of the run asked for; those of a chart export with their columns named by metric."""
        runs: set[str] = set()
        for row in rows:
            kept: Row = {}
            named = next((str(row[column]) for column in RUN_COLUMNS if row.get(column)), None)
            if named is not None:
                if self.run and named != self.run:
                    continue
                runs.add(named)
            for column, value in row.items():
                run, dash, metric = column.rpartition(RUN_AND_METRIC)
                if not dash:
                    kept[column] = value
                elif not metric.endswith(SPREAD) and metric.lower() not in (*STEP_NAMES, *TIME_NAMES) and run == (self.run or run):
                    runs.add(run)
                    kept[metric] = value
            if len(runs) > 1:
                raise SourceError(f"{self.path} holds several runs: {sorted(runs)}", hint=f"name one: {self.path}#{min(runs)}")
            yield kept


def _as_evaluations(rows: Iterable[Row]) -> Iterator[Row]:
    """The losses of a table as `forerun forecast` reads it: held-out ones, of the evaluation named beside them."""
    for row in rows:
        name = row.pop("eval", "")
        yield {f"eval/{name}/loss_nats" if name else EVAL_LOSS: row.pop("loss_nats", None)} | row


def _first_of(names: tuple[str, ...], columns: Iterable[str]) -> str:
    """The first of the names that is a column, as it is spelled there; empty when none is."""
    spelled = {column.lower(): column for column in columns}
    return next((spelled[name] for name in names if name in spelled), "")


def _seconds(cell: Any) -> float:
    """Unix seconds of a time in seconds, in milliseconds or as ISO 8601; NaN where there is none."""
    number = _number(cell)
    if number is None and isinstance(cell, str):
        try:
            return datetime.fromisoformat(cell).timestamp()
        except ValueError:
            return math.nan
    if number is None:
        return math.nan
    return number / 1000 if number > MILLISECONDS_FROM else number


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
