"""Rungs forecast from smaller rungs: the forecaster put to a test whose answer is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forerun.base.errors import DataError
from forerun.dashboard.lab_files import LabFiles
from forerun.ladder.answer import Band
from forerun.ladder.forecast import forecast as forecast_of
from forerun.ladder.rungs import Rung, Target

FEWEST_SIZES = 3  # derived: what the forecaster asks for
SAME_SIZE = 1.05  # assumed: rungs closer in compute are repeats of one size


@dataclass(frozen=True)
class Tested:
    """One rung beside what smaller ones said of it."""

    rung: str
    outcome: float
    final: Band

    @property
    def held(self) -> bool:
        """Whether the 90% interval did."""
        return self.final.low90 <= self.outcome <= self.final.high90


def backtest(files: LabFiles, forecast: Mapping[str, Any], metric: str) -> list[Tested]:
    """Every finished rung with three smaller sizes below it, in order of compute; rungs whose runs this lab lacks are left out."""
    rungs = sorted(_rungs(files, forecast, metric), key=lambda rung: (rung.compute, rung.name))
    tested = []
    for rung in rungs:
        smaller = tuple(other for other in rungs if other.compute * SAME_SIZE < rung.compute)
        if rung.finished and _num_sizes(smaller) >= FEWEST_SIZES:
            final = _final(smaller, Target(train_steps=rung.train_steps, compute_per_step=rung.compute_per_step))
            if final is not None:
                tested.append(Tested(rung.name, rung.losses[-1], final))
    return tested


def _rungs(files: LabFiles, forecast: Mapping[str, Any], metric: str) -> list[Rung]:
    rungs = []
    for use in forecast["rungs"]:
        run = files.runs.get(use["rung"])
        series = run.series(metric) if run else None
        if run is None or series is None or not run.info.num_steps:
            continue
        points = [(int(step), float(value)) for step, value in zip(series.step, series.value) if step > 0]
        try:
            rungs.append(
                Rung(
                    name=run.name,
                    train_steps=run.info.num_steps,
                    compute_per_step=use["compute"] / run.info.num_steps,
                    steps=tuple(step for step, _ in points),
                    losses=tuple(value for _, value in points),
                )
            )
        except DataError:
            continue  # a rung that diverged or was never evaluated tests nothing
    return rungs


@lru_cache(maxsize=64)
def _final(rungs: tuple[Rung, ...], target: Target) -> Band | None:
    try:
        return forecast_of(rungs, target).final
    except DataError:
        return None


def _num_sizes(rungs: tuple[Rung, ...]) -> int:
    num, last = 0, 0.0
    for rung in rungs:
        if rung.compute > last * SAME_SIZE:
            num, last = num + 1, rung.compute
    return num
