"""The numbers a forecast starts from: rungs with their evaluations, and the target. Reading them refuses what cannot be meant."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forerun.base.config import digest_of, load_json
from forerun.base.errors import DataError

FINISHED_FRACTION = 0.985  # assumed: evaluations at every 1-5% miss the last step by less than this
SAME_LEVEL = 0.01  # assumed: ln compute apart by less than this is the same rung run again (other seed), not another rung


@dataclass(frozen=True, kw_only=True)
class Target:
    """The run to be forecast."""

    train_steps: int
    """Optimizer steps of the whole run."""
    compute_per_step: float
    """FLOPs of one step, by the same definition as the rungs'."""

    def __post_init__(self) -> None:
        _make_plain(self, train_steps=int(self.train_steps), compute_per_step=float(self.compute_per_step))
        _check_size("target", self.train_steps, self.compute_per_step)

    @property
    def compute(self) -> float:
        """FLOPs of the whole run."""
        return self.train_steps * self.compute_per_step


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One small run of the same recipe, with its held-out losses."""

    name: str
    train_steps: int
    """Steps the run was planned for; it may have died earlier."""
    compute_per_step: float
    """FLOPs of one step."""
    steps: tuple[int, ...]
    """Where it was evaluated, rising."""
    losses: tuple[float, ...]
    """Held-out loss there, any unit as long as all rungs share it."""

    def __post_init__(self) -> None:
        _make_plain(
            self,
            train_steps=int(self.train_steps),
            compute_per_step=float(self.compute_per_step),
            steps=tuple(int(step) for step in self.steps),
            losses=tuple(float(loss) for loss in self.losses),
        )
        _check_size(f"rung {self.name!r}", self.train_steps, self.compute_per_step)
        _check_evals(self)

    @property
    def compute(self) -> float:
        """FLOPs of the planned run."""
        return self.train_steps * self.compute_per_step

    @property
    def fractions(self) -> np.ndarray:
        """Progress at each evaluation, 0..1."""
        return np.minimum(np.asarray(self.steps, float) / self.train_steps, 1.0)

    @property
    def last_fraction(self) -> float:
        """Progress at the last evaluation."""
        return float(self.fractions[-1])

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is the end of the planned run."""
        return self.last_fraction >= FINISHED_FRACTION

    def loss_at(self, fractions: np.ndarray) -> np.ndarray:
        """Loss by interpolation over ln(step); NaN outside the evaluated range (2% slack for rounding of steps)."""
        known = self.fractions
        loss = np.interp(np.log(fractions), np.log(known), self.losses)
        outside = (fractions < known[0] * 0.98) | (fractions > known[-1] * 1.02)
        return np.where(outside, np.nan, loss)


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


def inputs_digest(rungs: Sequence[Rung], target: Target) -> str:
    """SHA-256 over every number the forecast read, in the order of compute; renaming files does not change it."""
    rows = [
        [
            rung.name,
            int(rung.train_steps),
            float(rung.compute_per_step),
            [int(step) for step in rung.steps],
            [float(loss) for loss in rung.losses],
        ]
        for rung in sorted(rungs, key=lambda rung: (rung.compute, rung.name))
    ]
    return digest_of({"rungs": rows, "target": [int(target.train_steps), float(target.compute_per_step)]})


def check_ladder(rungs: Sequence[Rung]) -> None:
    """Refuse a ladder from which nothing honest can be said: under three different sizes, or under two finished ones."""
    levels = num_levels(rungs)
    if levels < 3:
        raise DataError(
            f"a forecast needs at least 3 rungs of different compute, got {levels}",
            hint="add rungs; repeats with other seeds measure noise but are not rungs",
        )
    finished = num_levels([rung for rung in rungs if rung.finished])
    if finished < 2:
        raise DataError(
            f"at least 2 rungs of different compute must have finished, got {finished}", hint="finish more rungs, or lower train_steps"
        )


def num_levels(rungs: Sequence[Rung]) -> int:
    """How many different amounts of compute there are."""
    logs = sorted(math.log(rung.compute) for rung in rungs)
    return sum(1 for index, value in enumerate(logs) if index == 0 or value - logs[index - 1] > SAME_LEVEL)


def seed_noise(rungs: Sequence[Rung]) -> float | None:
    """Relative sd of the final loss between repeats of the same rung, pooled; None when no rung was repeated."""
    finished = sorted((rung for rung in rungs if rung.finished), key=lambda rung: rung.compute)
    groups: list[list[Rung]] = []
    for rung in finished:
        if groups and math.log(rung.compute / groups[-1][-1].compute) <= SAME_LEVEL:
            groups[-1].append(rung)
        else:
            groups.append([rung])
    squares, freedom = 0.0, 0
    for group in groups:
        logs = np.log([rung.losses[-1] for rung in group])
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else None


def _make_plain(frozen: Target | Rung, **values: object) -> None:
    """Store Python numbers where NumPy ones were given: they are digested and written as JSON."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def _check_size(where: str, train_steps: int, compute_per_step: float) -> None:
    if train_steps < 1:
        raise DataError(f"{where}: train_steps must be at least 1, got {train_steps}", hint="give the planned optimizer steps")
    if not (compute_per_step > 0 and math.isfinite(compute_per_step)):
        raise DataError(f"{where}: compute_per_step must be a positive number, got {compute_per_step}", hint="give FLOPs of one step")


def _check_evals(rung: Rung) -> None:
    where = f"rung {rung.name!r}"
    if not rung.steps or len(rung.steps) != len(rung.losses):
        raise DataError(
            f"{where}: needs as many losses as steps, at least one, got {len(rung.losses)} and {len(rung.steps)}", hint="check the table"
        )
    for step, loss in zip(rung.steps, rung.losses):
        if not (math.isfinite(loss) and loss > 0):
            raise DataError(f"{where}: loss at step {step} must be a positive number, got {loss}", hint="drop the row or mend the value")
    for earlier, later in itertools.pairwise(rung.steps):
        if later <= earlier:
            raise DataError(
                f"{where}: steps must rise, got {later} after {earlier}",
                hint="sort by step; rows of several evaluations need a column `eval` and --eval NAME",
            )
    if rung.steps[0] < 1:
        raise DataError(f"{where}: steps start at 1, got {rung.steps[0]}", hint="leave out the evaluation before training")
    if rung.steps[-1] > rung.train_steps * 1.005:
        raise DataError(f"{where}: evaluated at step {rung.steps[-1]}, past train_steps={rung.train_steps}", hint="mend train_steps")


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
