"""Rung backtests: every public ladder that ships here, forecast from its smaller rungs, never from the runs the benchmark is scored on.

Settings of `forerun.ladder` are chosen here and nowhere else. Families of tasks:

- `olmo sizes`    190M, 370M, 760M -> 1B, five lengths x eleven evaluations, whole curves
- `olmo lengths`  one size up to 1B, shorter runs -> the two longest, final losses: not one ratio, so a ladder as strangers bring it
- `gadre sizes`   5.7M, 53M, 125M -> 360M at one ratio, three corpora x eight evaluations, final losses
- `speedrun`      families of speedrun records, all but the largest -> the largest, bits per byte, final losses

`--vary` scores one change of one setting at a time, on every third task; note 0050 keeps the table.

Usage: python benchmarks/forecast/backtest.py [--vary] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from forerun.ladder import level, smooth
from forerun.ladder.forecast import forecast
from forerun.ladder.public import GADRE_CORPORA, GADRE_EVALS, OLMO_EVALS, OLMO_LENGTHS, gadre_ladder, olmo_runs, speedrun_ladders
from forerun.ladder.rungs import Rung, Target
from forerun.ladder.score import score

SMALL_OLMO_SIZES = ("190M", "370M", "760M", "1B")
VARIANTS: tuple[tuple[object, str, tuple[float, ...]], ...] = (
    (level, "EXPONENT_CENTRE", (0.11, 0.16)),
    (level, "EXPONENT_SPREAD", (0.2, 0.45, 0.7)),
    (level, "LENGTH_EXPONENT_CENTRE", (0.13, 0.25, 0.4)),
    (level, "MISFIT_REACH", (1.0, 4.0)),
    (level, "DRIFT_REACH", (0.5, 2.0)),
    (level, "STARTUP_SPREAD", (1e-6, 0.14)),
    (level, "STARTUP_MISFIT", (0.0, 0.01, 0.04)),
    (level, "STARTUP_STEPS", (250.0, 1000.0)),
    (smooth, "HALF_WINDOW", (0.0, 0.08)),
)


@dataclass(frozen=True)
class Family:
    """How one family of backtests went."""

    name: str
    num_tasks: int
    error: float
    """Mean |forecast / outcome - 1| over all points of all tasks."""
    bias: float
    inside90: float
    inside50: float
    width90: float
    interval_score90: float
    """Mean of (width + 20 x miss) / outcome."""


def tasks() -> Iterator[tuple[str, list[Rung], Rung]]:
    """(family, rungs, the larger rung they are to forecast)."""
    runs = {(run.size, run.length): run for run in olmo_runs()}
    for name in OLMO_EVALS:
        for length in OLMO_LENGTHS:
            *smaller, top = (runs[size, length].rung(name) for size in SMALL_OLMO_SIZES)
            yield "olmo sizes", smaller, top
        for size in SMALL_OLMO_SIZES:
            by_length = [ended(runs[size, length].rung(name)) for length in OLMO_LENGTHS]
            for top in (3, 4):
                yield "olmo lengths", by_length[:top], by_length[top]
    for corpus in GADRE_CORPORA:
        for name in GADRE_EVALS:
            for multiplier in ("0.25", "0.5", "1", "2", "4", "8", "16", "32"):
                ladder = gadre_ladder(corpus, name, multiplier, largest=5e8)
                if len(ladder) > 3:
                    yield "gadre sizes", ladder[:-1], ladder[-1]
    for ladder in speedrun_ladders():
        for top in range(3, len(ladder)):
            yield "speedrun", ladder[:top], ladder[top]


def ended(rung: Rung) -> Rung:
    """The rung with its final loss alone."""
    return Rung(
        name=rung.name,
        train_steps=rung.train_steps,
        compute_per_step=rung.compute_per_step,
        steps=rung.steps[-1:],
        losses=rung.losses[-1:],
    )


def run(every: int = 1) -> list[Family]:
    """Every family, and all of them with equal weight; only each `every`-th task."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for family, rungs, top in itertools.islice(tasks(), 0, None, every):
        answer = forecast(rungs, Target(train_steps=top.train_steps, compute_per_step=top.compute_per_step))
        at = np.array([point.fraction for point in answer.curve])
        losses = top.loss_at(at)
        known = ~np.isnan(losses)
        truth = losses[known]
        result = score(answer, at[known] * top.train_steps, truth)
        rows.setdefault(family, []).append(
            (
                result.absolute_error,
                result.signed_error,
                result.coverage90,
                result.coverage50,
                result.width90,
                result.interval_score90 / float(truth.mean()),
            )
        )
    found = [Family(name, len(values), *(float(value) for value in np.mean(values, axis=0))) for name, values in rows.items()]
    columns = list(asdict(found[0]))[2:]
    means = (float(np.mean([getattr(family, column) for family in found])) for column in columns)
    return [*found, Family("all, families equal", sum(family.num_tasks for family in found), *means)]


def vary() -> Iterator[tuple[str, Family]]:
    """The overall row as the settings are, then with each variant."""
    yield "as they are", run(every=3)[-1]
    for module, name, values in VARIANTS:
        kept = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            try:
                yield f"{name} {kept:g} -> {value:g}", run(every=3)[-1]
            finally:
                setattr(module, name, kept)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vary", action="store_true", help="score variants of the settings instead")
    parser.add_argument("--json", type=Path, default=None, help="write the rows here")
    arguments = parser.parse_args()
    began = time.process_time()
    found = [replace(family, name=name) for name, family in vary()] if arguments.vary else run()
    print(f"{'family':34} tasks   error    bias  in 90%  in 50%   width   score")
    for one in found:
        print(
            f"{one.name:34} {one.num_tasks:5} {one.error:7.2%} {one.bias:+7.2%} {one.inside90:7.0%} {one.inside50:7.0%} {one.width90:7.1%} {one.interval_score90:7.4f}"
        )
    print(f"{time.process_time() - began:.0f} s of CPU")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
