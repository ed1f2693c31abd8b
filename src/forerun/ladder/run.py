"""Ladder rungs as ordinary runs of a lab: what is done, what is left, and the finished ones as input of a forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.base.errors import RecordError
from forerun.base.lab import Lab
from forerun.ladder.family import target_of
from forerun.ladder.rungs import FINISHED_FRACTION, Rung
from forerun.record.reader import open_run
from forerun.train.config import RunConfig

LADDER_METRIC = "eval/macro_loss_nats"


@dataclass(frozen=True, kw_only=True)
class RungStatus:
    """How far one rung is."""

    run_id: str
    num_steps: int
    last_step: int
    """Finished steps on record, 0 before the start."""
    loss: float | None
    """Newest evaluation."""

    @property
    def state(self) -> str:
        """waiting, interrupted or running (a record exists but is short), finished."""
        if self.last_step >= self.num_steps:
            return "finished"
        return "started" if self.last_step > 0 else "waiting"


def status(runs: Sequence[RunConfig], lab: Lab, metric: str = LADDER_METRIC) -> list[RungStatus]:
    """What the records say about each rung; a rung without a record is waiting."""
    return [_status(run, lab, metric) for run in runs]


def run_ladder(
    runs: Sequence[RunConfig],
    lab: Lab,
    *,
    train: Callable[..., Any],
    registration_of: Callable[[RunConfig], Any],
    on_rung: Callable[[RungStatus], None] | None = None,
) -> list[RungStatus]:
    """Train every rung that is not finished, in order; an interrupted one continues from its last checkpoint.

    Args:
        train: `forerun.train.loop.train`; handed in because this package never imports JAX.
        registration_of: the promise each rung runs under, or None for a deliberately unregistered one.
        on_rung: told the status of each rung when it is done or skipped.
    """
    done = []
    for run in runs:
        if _status(run, lab, LADDER_METRIC).state != "finished":
            train(run, lab, run_id=run.name, registration=registration_of(run))
        done.append(_status(run, lab, LADDER_METRIC))
        if on_rung is not None:
            on_rung(done[-1])
    return done


def rungs_of(runs: Sequence[RunConfig], lab: Lab, metric: str = LADDER_METRIC) -> list[Rung]:
    """The runs' evaluations as rungs of a forecast; compute is `fit_compute`. A run that is short is a rung that died there.

    Raises: RecordError for a run without a record or without that metric.
    """
    rungs = []
    for run in runs:
        series = open_run(lab.run(run.name)).series(metric)
        kept = [(int(step), float(value)) for step, value in zip(series.step, series.value) if step > 0]
        if not kept:
            raise RecordError(f"run {run.name!r} has no {metric} after step 0", hint="let it run to its first evaluation")
        size = target_of(run)
        rungs.append(
            Rung(
                name=run.name,
                train_steps=size.train_steps,
                compute_per_step=size.compute_per_step,
                steps=tuple(step for step, _ in kept),
                losses=tuple(loss for _, loss in kept),
            )
        )
    return rungs


def _status(run: RunConfig, lab: Lab, metric: str) -> RungStatus:
    folder = lab.run(run.name)
    if not (folder / "run.json").exists():
        return RungStatus(run_id=run.name, num_steps=run.train.num_steps, last_step=0, loss=None)
    record = open_run(folder)
    series = record.series(metric)
    evaluated_end = len(series.step) > 0 and series.step[-1] >= FINISHED_FRACTION * run.train.num_steps
    last = max(record.last_step, 0)
    return RungStatus(
        run_id=run.name,
        num_steps=run.train.num_steps,
        last_step=last if evaluated_end or last < run.train.num_steps else run.train.num_steps - 1,
        loss=float(series.value[-1]) if len(series.value) else None,
    )
