"""Rungs, outcomes and targets from anyone's CSV and JSON files; a cell that cannot be meant is named and refused."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np

from forerun.base.config import load_json
from forerun.base.errors import DataError
from forerun.ladder.rungs import Rung, Target


def read_rungs(rungs_csv: Path, evals_csv: Path, *, eval_name: str = "") -> list[Rung]:
    """Join a table of rungs with a table of their evaluations.

    Args:
        rungs_csv: columns `rung, train_steps, compute_per_step`; others are ignored.
        evals_csv: columns `rung, step, loss_nats`; step 0 is ignored; a column `eval` must hold one name, or `eval_name` chooses it.
    Raises: DataError for a missing column, a value that is no number, steps that do not rise, or evaluations of an unknown rung.
    """
    rows = table(rungs_csv, ("rung", "train_steps", "compute_per_step"))
    evals = _one_eval(table(evals_csv, ("rung", "step", "loss_nats")), evals_csv, eval_name)
    names = [row["rung"] for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{rungs_csv}: rung {name!r} is listed {names.count(name)} times", hint="give each run its own name")
    unknown = sorted({row["rung"] for row in evals} - set(names))
    if unknown:
        raise DataError(
            f"{evals_csv}: evaluations of {unknown[0]!r}, which {rungs_csv} does not list", hint="add the rung or drop its rows"
        )
    rungs = []
    for row in rows:
        where = f"{rungs_csv}: rung {row['rung']!r}"
        mine = [entry for entry in evals if entry["rung"] == row["rung"]]
        pairs = [(_whole(entry["step"], f"{evals_csv}: step"), number(entry["loss_nats"], f"{evals_csv}: loss_nats")) for entry in mine]
        pairs = [pair for pair in pairs if pair[0] > 0]
        if not pairs:
            raise DataError(f"{where} has no evaluation after step 0", hint=f"add its rows to {evals_csv} or remove the rung")
        rungs.append(
            Rung(
                name=row["rung"],
                train_steps=_whole(row["train_steps"], f"{where}: train_steps"),
                compute_per_step=number(row["compute_per_step"], f"{where}: compute_per_step"),
                steps=tuple(step for step, _ in pairs),
                losses=tuple(loss for _, loss in pairs),
            )
        )
    return rungs


def read_outcome(evals_csv: Path, *, eval_name: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Steps and losses of one run; columns `step, loss_nats`, a column `rung` must then hold one name."""
    rows = _one_eval(table(evals_csv, ("step", "loss_nats")), evals_csv, eval_name)
    if len({row.get("rung", "") for row in rows}) > 1:
        raise DataError(f"{evals_csv} holds several runs", hint="keep the rows of the run that was forecast")
    pairs = [(_whole(row["step"], f"{evals_csv}: step"), number(row["loss_nats"], f"{evals_csv}: loss_nats")) for row in rows]
    pairs = [pair for pair in pairs if pair[0] > 0]
    if not pairs:
        raise DataError(f"{evals_csv} holds no evaluation after step 0", hint="add rows of the run")
    if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(pairs)):
        raise DataError(f"{evals_csv}: steps do not rise", hint="sort by step and drop repeats")
    return np.array([step for step, _ in pairs], float), np.array([loss for _, loss in pairs])


def read_target(path: Path) -> Target:
    """The target from a JSON file with `train_steps` and `compute_per_step`; other keys are ignored, as other columns are."""
    raw = load_json(path, dict)
    for name in ("train_steps", "compute_per_step"):
        if isinstance(raw.get(name), bool) or not isinstance(raw.get(name), (int, float)):
            raise DataError(
                f"{path}: {name} must be a number, got {raw.get(name)!r}", hint="a target holds train_steps and compute_per_step"
            )
    return Target(train_steps=_whole(str(raw["train_steps"]), f"{path}: train_steps"), compute_per_step=float(raw["compute_per_step"]))


def table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of a CSV file; lines starting with `#` are comments. Raises: DataError when it is absent, no text, or lacks a column."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", hint="check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, expected a CSV file", hint="name the file inside it") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file", hint="save it as CSV in UTF-8") from None
    reader = csv.DictReader(lines)
    columns = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = columns
    absent = [name for name in needed if name not in columns]
    if absent:
        raise DataError(
            f"{path}: column {absent[0]!r} is missing", hint=f"columns needed: {', '.join(needed)}; found: {', '.join(columns)}"
        )
    rows = [
        {key: (value or "").strip() for key, value in row.items() if isinstance(key, str) and not isinstance(value, list)} for row in reader
    ]
    if not rows:
        raise DataError(f"{path} holds no rows", hint=f"columns needed: {', '.join(needed)}")
    return rows


def _one_eval(rows: list[dict[str, str]], path: Path, wanted: str) -> list[dict[str, str]]:
    names = sorted({row["eval"] for row in rows if row.get("eval")})
    if wanted:
        chosen = [row for row in rows if row.get("eval") == wanted]
        if not chosen:
            raise DataError(f"{path}: there is no eval {wanted!r}", hint=f"evals here: {', '.join(names) or 'none named'}")
        return chosen
    if len(names) > 1:
        raise DataError(f"{path} mixes {len(names)} evaluations: {', '.join(names[:4])}", hint="choose one with --eval NAME")
    return rows


def number(text: str, where: str) -> float:
    """A finite number from a cell. Raises: DataError naming `where`."""
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where} must be a number, got {text!r}", hint="mend the value") from None
    if not math.isfinite(value):
        raise DataError(f"{where} must be finite, got {text!r}", hint="drop the row or mend the value")
    return value


def _whole(text: str, where: str) -> int:
    value = number(text, where)
    if value != int(value):
        raise DataError(f"{where} must be a whole number, got {text!r}", hint="mend the value")
    return int(value)
