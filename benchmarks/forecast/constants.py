"""Where the measured constants of `forerun.ladder` come from: each is looked up on smaller rungs of public ladders, never on outcomes.

Prints one block a constant; design note 0050 keeps the table. Usage: python benchmarks/forecast/constants.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from forerun.ladder import backtest, forecast, schedules, shape
from forerun.ladder.censoring import ends_of
from forerun.ladder.level import EXPONENT_CENTRE
from forerun.ladder.public import OLMO_EVALS, OLMO_LENGTHS, marin_ladder, olmo_runs, schedule_curves
from forerun.ladder.rungs import Rung
from forerun.ladder.shape import Curves, curves_of
from forerun.ladder.smooth import smoothed

SIZES = ("190M", "370M", "760M", "1B")
NOISY = "ice"
DEATHS = (0.35, 0.5, 0.65, 0.8)


def ladders() -> Iterator[list[Rung]]:
    """Rungs of public ladders with dense curves: OLMo up to 1B on ten evaluations, Marin without the rung that died."""
    runs = {(run.size, run.length): run for run in olmo_runs()}
    for name in OLMO_EVALS:
        for length in OLMO_LENGTHS:
            if name != NOISY:
                yield [smoothed(runs[size, length].rung(name)) for size in SIZES]
    yield marin_ladder()[0][:3]


def gains(rungs: list[Rung]) -> Curves:
    """Their gains, measured from the largest."""
    return curves_of(rungs, np.array([rung.losses[-1] for rung in rungs]), math.log(rungs[-1].compute))


def shape_errors() -> np.ndarray:
    """ln(carried / true gain) of the largest rung, before 95% of training."""
    errors = []
    for rungs in ladders():
        all_gains, top = gains(rungs), rungs[-1]
        carried = gains(rungs[:-1]).gain_at(math.log(top.compute / rungs[-2].compute), top.train_steps, EXPONENT_CENTRE, by_updates=0.5)
        if len(carried) != len(all_gains.progress):
            continue
        true = all_gains.gain[-1]
        seen = ~np.isnan(true) & (all_gains.progress < 0.95) & (true > 0) & (carried > 0)
        errors += np.log(carried[seen] / true[seen]).tolist()
    return np.array(errors)


def death_errors() -> dict[float, np.ndarray]:
    """(inferred - true end) over the gain still to come, when the largest rung dies at a share of its training."""
    found: dict[float, list[float]] = {death: [] for death in DEATHS}
    for rungs in ladders():
        top = rungs[-1]
        for death in DEATHS:
            kept = [index for index, step in enumerate(top.steps) if step <= death * top.train_steps]
            if not kept:
                continue
            cut = replace(top, steps=tuple(top.steps[i] for i in kept), losses=tuple(top.losses[i] for i in kept))
            if len({rung.compute for rung in rungs}) < 3:
                continue
            ends, _ = ends_of([*rungs[:-1], cut])
            found[death].append((float(ends.losses[-1]) - top.losses[-1]) / (cut.losses[-1] - top.losses[-1]))
    return {death: np.array(values) for death, values in found.items()}


def draws_spread(num_draws: int, num_seeds: int = 12) -> float:
    """Relative sd over seeds of the final 90% interval's edges with that many draws."""
    rungs, target = marin_ladder()
    kept_draws, kept_seed = forecast.NUM_DRAWS, forecast.SEED
    edges = []
    try:
        forecast.NUM_DRAWS = num_draws
        for seed in range(num_seeds):
            forecast.SEED = seed
            final = forecast.forecast(rungs, target).final
            edges.append((final.low90, final.loss, final.high90))
    finally:
        forecast.NUM_DRAWS, forecast.SEED = kept_draws, kept_seed
    return float((np.std(edges, axis=0) / np.mean(edges, axis=0)).max())


def schedule_runs(size: int) -> dict[str, schedules.ScheduledRun]:
    """One size's runs by schedule."""
    return {
        name: schedules.ScheduledRun(schedules.logged_rates(steps, rates), steps.astype(int), losses)
        for (found, name), (steps, rates, losses) in schedule_curves().items()
        if found == size
    }


def memory_scores(values: tuple[float, ...]) -> dict[float, float]:
    """Mean |error| of the momentum law on the curves it is fitted to, for each decay of its memory."""
    kept, scores = schedules.MEMORY, {}
    try:
        for value in values:
            schedules.MEMORY = value
            errors = []
            for size in (25, 100, 400):
                runs = schedule_runs(size)
                fitted = [runs[name] for name in ("cosine_24000", "constant_24000", "wsdcon_9")]
                law = schedules.fit_momentum(fitted)
                errors += [float(np.abs(law.at(run) / run.losses - 1).mean()) for run in fitted]
            scores[value] = float(np.mean(errors))
    finally:
        schedules.MEMORY = kept
    return scores


def block_change(fewer: int, more: int) -> float:
    """Largest relative change of a multi-power prediction when its drops are summed in `more` blocks instead of `fewer`."""
    kept, change = schedules.NUM_BLOCKS, 0.0
    try:
        for size in (25, 400):
            runs = schedule_runs(size)
            law = schedules.fit_multi_power([runs[name] for name in ("cosine_24000", "constant_24000", "wsdcon_9")])
            for run in runs.values():
                answers = []
                for schedules.NUM_BLOCKS in (fewer, more):
                    answers.append(law.at(run))
                change = max(change, float(np.abs(answers[1] / answers[0] - 1).max()))
    finally:
        schedules.NUM_BLOCKS = kept
    return change


def locality_scores(values: tuple[float, ...]) -> dict[float, float]:
    """Rms of the carried gain's ln error, for each reach of the rungs' weights."""
    kept, scores = shape.LOCALITY, {}
    try:
        for shape.LOCALITY in values:
            scores[shape.LOCALITY] = rms(shape_errors())
    finally:
        shape.LOCALITY = kept
    return scores


def rms(values: np.ndarray) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))


def main() -> None:
    """Print every constant beside what it was read from."""
    errors = shape_errors()
    print(
        f"SHAPE_ERROR {backtest.SHAPE_ERROR}: carried gain, {len(errors)} points, rms {rms(errors):.3f}, median |.| {np.median(np.abs(errors)):.3f}"
    )
    deaths = death_errors()
    for death, values in deaths.items():
        print(
            f"SHARE_UNKNOWN: died at {death:.0%}, {len(values)} ends, rms {rms(values):.3f}, mean {values.mean():+.3f}, median |.| {np.median(np.abs(values)):.3f}"
        )
    print("LOCALITY", {value: round(score, 4) for value, score in locality_scores((1.0, 1.5, 3.0, 6.0, 100.0)).items()})
    print("NUM_DRAWS", {num: f"{draws_spread(num):.3%}" for num in (1000, 4000, 16000)})
    print("MEMORY", {value: f"{score:.3%}" for value, score in memory_scores((0.99, 0.995, 0.998, 0.999, 0.9995)).items()})
    print("NUM_BLOCKS 250 -> 1000, largest change", f"{block_change(250, 1000):.1e}")


if __name__ == "__main__":
    main()
