"""From rungs to a forecast of the big run's whole loss curve, with intervals: the one function of this package others call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.base.errors import DataError
from forerun.ladder.answer import COMPUTES, Band, CurvePoint, FloorPoint, Forecast, RungUse
from forerun.ladder.backtest import backtest, end_inflation, eval_noise, shape_error
from forerun.ladder.censoring import CENSORING_RULE, ends_of
from forerun.ladder.level import Ends, Level, fit_level
from forerun.ladder.marin2026 import published_rule
from forerun.ladder.rungs import Rung, Target, check_ladder, inputs_digest, seed_noise
from forerun.ladder.shape import Curves, curves_of, falling
from forerun.ladder.smooth import smoothed
from forerun.ladder.store import identity

METHOD = "collapse"
NUM_DRAWS = 4000  # measured: edges of the final interval differ by 0.05% between seeds (1,000: 0.14%, 16,000: 0.02%)
SEED = 0
LOUD_MISFIT = 0.015  # assumed: five times the usual misfit of public ladders
LARGEST_INFLATION = 8.0  # assumed: beyond this an interval is a number without meaning
FLOORS_SHOWN = 9
FARTHEST = 1e8  # assumed: target over largest rung, either way; no ladder says anything beyond


def forecast(
    rungs: Sequence[Rung],
    target: Target,
    *,
    floor: float | None = None,
    method: str = METHOD,
    compute: str = "unstated",
    eval_name: str = "loss_nats",
) -> Forecast:
    """What the target's loss will be at every 5% of its training, with 50% and 90% intervals.

    Args:
        rungs: at least 3 sizes of one recipe at one ratio of tokens to parameters; repeats with other seeds measure noise.
        floor: pin the irreducible loss; None leaves it uncertain.
        method: `collapse`, or `marin2026` for the rule of the published 535B forecast (no interval of its own: the same rule refitted
            without each rung).
        compute: what `compute_per_step` counts, recorded.
        eval_name: what the losses measure, recorded.
    Raises: DataError for a ladder from which nothing honest can be said.
    """
    check_ladder(rungs)
    if compute not in COMPUTES:
        raise DataError(f"compute must be one of {', '.join(COMPUTES)}, got {compute!r}", hint="say which FLOPs compute_per_step counts")
    away = target.compute / max(rung.compute for rung in rungs)
    if not 1 / FARTHEST <= away <= FARTHEST:
        raise DataError(
            f"the target's compute is {away:.3g} times the largest rung's",
            hint="check that train_steps and compute_per_step count the same",
        )
    ordered = sorted(rungs, key=lambda rung: (rung.compute, rung.name))
    if method == "marin2026":
        return _with_id(published_rule(ordered, target, floor=floor, compute=compute, eval_name=eval_name))
    if method != METHOD:
        raise DataError(f"method must be {METHOD} or marin2026, got {method!r}", hint=f"leave --method out for {METHOD}")
    return _with_id(_collapse(ordered, target, floor, compute, eval_name))


def _collapse(all_rungs: Sequence[Rung], target: Target, floor: float | None, compute: str, eval_name: str) -> Forecast:
    ends, rungs = ends_of([smoothed(rung) for rung in all_rungs])
    _check_floor(floor, float(ends.losses.min()))
    top = math.log(max(rung.compute for rung in rungs))
    distance = math.log(target.compute) - top
    curves = curves_of(rungs, ends.losses, top)
    level = fit_level(ends, floor=floor)
    tested = backtest(ends, rungs, floor)
    inflation = end_inflation(tested)
    if inflation > LARGEST_INFLATION:
        raise DataError(
            f"the ladder's upper rungs miss the law of its lower ones by {inflation:.0f} times what they should",
            hint="check that all rungs share one evaluation, unit and recipe, or remove the odd one",
        )
    rng = np.random.default_rng(SEED)
    picks = level.draws(NUM_DRAWS, rng)
    finals = _draw_ends(level, picks, distance, target.train_steps, inflation, rng)[:, None]
    gains = _draw_gains(curves, level.exponent[picks], target, rng)
    losses = np.concatenate([finals + gains[:, :-1], finals], axis=1)
    losses *= np.exp(rng.standard_normal(losses.shape) * eval_noise(all_rungs))
    bands = _bands(losses)
    return Forecast(
        final=bands[-1],
        curve=tuple(
            CurvePoint(fraction=float(x), step=max(1, round(float(x) * target.train_steps)), **_plain(band))
            for x, band in zip(curves.progress, bands)
        ),
        floor_profile=floor_profile(ends, distance, target.train_steps, level, floor),
        method=METHOD,
        compute=compute,
        eval=eval_name,
        target=target,
        rungs=tuple(
            RungUse(rung=rung.name, compute=rung.compute, end=float(end), last_fraction=rung.last_fraction, inferred=not rung.finished)
            for rung, end in zip(rungs, ends.losses)
        ),
        exponent=_band_of(level.exponent[picks]),
        floor=_band_of(level.floor[picks]),
        floor_pinned=floor is not None,
        seed_noise=seed_noise(rungs),
        censoring=CENSORING_RULE,
        notes=_left_out(all_rungs, rungs) + _notes(rungs, target, curves, inflation, float(np.median(level.noise[picks]))),
        inputs_digest=inputs_digest(all_rungs, target),
        backtest=tested,
    )


def floor_profile(ends: Ends, distance: float, steps: float, level: Level, pinned: float | None) -> tuple[FloorPoint, ...]:
    """The end of a run of `steps` updates at ln(C / C_top) = distance, for a row of floors from 0 to 95% of the lowest end, and the belief near each."""
    if pinned is not None:
        return (_at_floor(ends, distance, steps, pinned, 1.0),)
    floors = np.linspace(0.0, 0.95 * ends.losses.min(), FLOORS_SHOWN)
    nearest = np.argmin(np.abs(level.floor[:, None] - floors), axis=1)
    beliefs = [float(level.weight[nearest == index].sum() / level.weight.sum()) for index in range(len(floors))]
    return tuple(_at_floor(ends, distance, steps, float(value), belief) for value, belief in zip(floors, beliefs))


def _at_floor(ends: Ends, distance: float, steps: float, floor: float, belief: float) -> FloorPoint:
    level = fit_level(ends, floor=floor)
    mean, _ = level.log_loss(distance, steps)
    return FloorPoint(floor=floor, final=math.exp(float((level.weight * mean).sum() / level.weight.sum())), weight=belief)


def _draw_ends(level: Level, picks: np.ndarray, distance: float, steps: float, inflation: float, rng: np.random.Generator) -> np.ndarray:
    mean, sd = level.log_loss(distance, steps)
    logs = mean[picks] + sd[picks] * rng.standard_normal(len(picks))
    centre = np.median(logs)
    return np.exp(centre + inflation * (logs - centre))


def _draw_gains(curves: Curves, drawn_exponents: np.ndarray, target: Target, rng: np.random.Generator) -> np.ndarray:
    """Gain of each draw: its exponent's collapse, a blend between progress and updates, and a common relative shape error."""
    distance = math.log(target.compute) - curves.top_log_compute
    exponents, which = np.unique(drawn_exponents, return_inverse=True)
    by_progress = np.stack([curves.gain_at(distance, target.train_steps, float(a), by_updates=0.0) for a in exponents])
    by_updates = np.stack([curves.gain_at(distance, target.train_steps, float(a), by_updates=1.0) for a in exponents])
    blend = rng.random((len(drawn_exponents), 1))
    gains = (1 - blend) * by_progress[which] + blend * by_updates[which]
    return falling(gains * np.exp(shape_error(curves, distance) * rng.standard_normal(blend.shape)))


def _bands(draws: np.ndarray) -> list[Band]:
    """Quantiles at each point; the central curve is made monotone, the edges follow."""
    quantiles = falling(np.quantile(draws, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0))
    return [Band(low90=q[0], low50=q[1], loss=q[2], high50=q[3], high90=q[4]) for q in quantiles.T.tolist()]


def _band_of(draws: np.ndarray) -> Band:
    low90, low50, middle, high50, high90 = np.quantile(draws, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
    return Band(loss=middle, low90=low90, high90=high90, low50=low50, high50=high50)


def _plain(band: Band) -> dict[str, float]:
    return {name: getattr(band, name) for name in ("loss", "low90", "high90", "low50", "high50")}


def _check_floor(floor: float | None, lowest: float) -> None:
    if floor is not None and not 0 <= floor < lowest:
        raise DataError(
            f"the floor must lie in 0..{lowest:.4g}, the lowest end of a rung, got {floor:g}",
            hint="lower --floor, or leave it out for a prior",
        )


def _left_out(all_rungs: Sequence[Rung], used: Sequence[Rung]) -> tuple[str, ...]:
    kept = {rung.name for rung in used}
    names = [rung.name for rung in all_rungs if rung.name not in kept]
    return (f"left out, died too early to say where they would have ended: {', '.join(names)}",) if names else ()


def _notes(rungs: Sequence[Rung], target: Target, curves: Curves, inflation: float, misfit: float) -> tuple[str, ...]:
    notes = []
    span = float(np.ptp(curves.distance))
    distance = math.log(target.compute) - curves.top_log_compute
    most = max(rung.train_steps for rung in rungs)
    died = [rung.name for rung in rungs if not rung.finished]
    if distance < 0:
        notes.append("the target is smaller than the largest rung: this is an interpolation")
    if distance > 1.5 * span:
        notes.append(
            f"the target lies {distance / span:.1f} times the ladder's own log-span beyond it; 90% is assumed, not tested, that far"
        )
    if target.train_steps > 2 * most:
        notes.append(
            f"the target takes {target.train_steps / most:.1f} times the updates of any rung: early points spread between two rules"
        )
    if seed_noise(rungs) is None:
        notes.append("no rung was repeated with another seed: seed noise is assumed, not measured")
    if inflation > 1.3:
        notes.append(
            f"the end's interval is {inflation:.1f} times wider: forecasts of the ladder's own upper rungs missed by more than stated"
        )
    if misfit > LOUD_MISFIT:
        notes.append(f"the rungs lie about {misfit:.1%} off any one law: check that they share one evaluation and recipe")
    if died:
        notes.append(f"died early, end inferred: {', '.join(died)}")
    if curves.progress[0] > 0.051:
        notes.append(f"the curve starts at {curves.progress[0]:.0%}: fewer than two rungs were evaluated earlier")
    return tuple(notes)


def _with_id(unnamed: Forecast) -> Forecast:
    return replace(unnamed, id=identity(unnamed))
