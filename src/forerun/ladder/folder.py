"""A planned ladder as a folder of run configs, and finished rungs as the CSVs `forerun forecast` reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from forerun.base.config import load_json
from forerun.base.errors import ConfigError
from forerun.base.files import write_atomic, write_json
from forerun.ladder.family import target_of
from forerun.ladder.rungs import Rung
from forerun.train.config import RunConfig


def write_plan(runs: Sequence[RunConfig], folder: Path) -> list[Path]:
    """One `<name>.json` a run. Raises: ConfigError when a file of another config is in the way."""
    paths = []
    for run in runs:
        path = folder / f"{run.name}.json"
        if path.exists() and load_json(path, RunConfig) != run:
            raise ConfigError(f"{path} holds another config", hint="choose another folder or base name; a planned rung is not rewritten")
        write_json(path, run)
        paths.append(path)
    return paths


def read_plan(folder: Path) -> list[RunConfig]:
    """The runs of a folder in order of compute. Raises: ConfigError when there are none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name the folder that `forerun ladder plan --out` wrote")
    runs = [load_json(path, RunConfig) for path in sorted(folder.glob("*.json"))]
    if not runs:
        raise ConfigError(f"{folder} holds no run configs", hint="`forerun ladder plan --out` writes them")
    return sorted(runs, key=lambda run: (target_of(run).compute, run.name))


def write_tables(rungs: Sequence[Rung], folder: Path) -> tuple[Path, Path]:
    """`rungs.csv` and `evals.csv`, with every digit."""
    sizes = [(rung.name, rung.train_steps, repr(rung.compute_per_step)) for rung in rungs]
    evals = [(rung.name, step, repr(loss)) for rung in rungs for step, loss in zip(rung.steps, rung.losses)]
    paths = folder / "rungs.csv", folder / "evals.csv"
    write_atomic(paths[0], _csv(("rung", "train_steps", "compute_per_step"), sizes))
    write_atomic(paths[1], _csv(("rung", "step", "loss_nats"), evals))
    return paths


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()
