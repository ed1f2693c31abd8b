"""The numbers a forecast starts from: rungs with their evaluations, and the target; what cannot be meant is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.base.config import digest_of
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
            f"at least 2 rungs of different compute must have been evaluated at {FINISHED_FRACTION:.1%} of their training or later, got {finished}; "
            f"the last evaluation is at {max(rung.last_fraction for rung in rungs):.1%}",
            hint="add the evaluations of their ends, or set train_steps to where they ended",
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
