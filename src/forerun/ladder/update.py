"""A forecast brought up to date with the run's own first part, and carried across declared changes.

What the run is off by at progress x says only so much about the end: small rungs are biased early, and taking a 10% reading at face
value made public forecasts worse. The share that persists from x to y is 1 - (1 - x / y)^2, and what is unseen grows with ln(y / x).

A declared change (data mix, transport, context, optimizer) opens a segment with its own offset: nothing is reset silently, nothing is
reused silently. The jump at the boundary is split into the offset, as far as its prior allows, and the run's own trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.base.config import digest_of
from forerun.base.errors import ConfigError, DataError
from forerun.ladder.answer import Band, CurvePoint, Forecast
from forerun.ladder.store import identity

DRIFT = 0.004  # measured: OLMo ladder, sizes to 760M -> 1B, 50 curves (note 0051); relative sd of the end given a reading at x is DRIFT sqrt(ln(1 / x))
WINDOW = 0.15  # assumed: share of progress before the newest evaluation whose mean is the reading; averages evaluation noise
OFFSET_SD = {"data": 0.015, "context": 0.03, "optimizer": 0.005, "systems": 0.005}
"""Relative sd a declared change may shift the loss by. Measured on one public run: +1.1% at a data change, -0.3% at a transport change;
context assumed."""
OTHER_OFFSET_SD = 0.01  # assumed: a change of a kind not listed


@dataclass(frozen=True, kw_only=True)
class Change:
    """One declared intervention: the segment it opens."""

    first_step: int
    """First step under the change."""
    kind: str
    """data, context, optimizer, systems, or another word."""
    offset: float | None = None
    """Relative shift of the loss where a paired window measured it; None leaves it to the prior of its kind."""
    offset_sd: float = 0.0
    """Of the measured offset."""


def change_of(text: str) -> Change:
    """A change from `STEP:KIND` or `STEP:KIND:OFFSET:SD`. Raises: ConfigError for another shape."""
    parts = text.split(":")
    try:
        if len(parts) == 2:
            return Change(first_step=int(parts[0]), kind=parts[1])
        step, kind, offset, sd = parts
        return Change(first_step=int(step), kind=kind, offset=float(offset), offset_sd=float(sd))
    except ValueError:
        raise ConfigError(f"--change must be STEP:KIND or STEP:KIND:OFFSET:SD, got {text!r}", hint="for example 108000:data") from None


def update(forecast: Forecast, steps: np.ndarray, losses: np.ndarray, changes: Sequence[Change] = ()) -> Forecast:
    """The forecast given the run so far; points already passed keep their promise, later ones move and narrow.

    Args:
        steps, losses: the run's own evaluations, rising.
        changes: declared so far or planned; a planned one widens the band from its first step on.
    Raises: DataError when nothing has been seen in the forecast's range, or the run is longer than promised.
    """
    fractions = steps / forecast.target.train_steps
    if fractions.max() > 1.005:
        raise DataError(
            f"an evaluation at step {int(steps.max())} lies past the forecast's train_steps={forecast.target.train_steps}",
            hint="this run is not the one forecast, or it was lengthened",
        )
    seen = fractions >= forecast.curve[0].fraction * 0.98
    if not seen.any():
        raise DataError(f"no evaluation at or after {forecast.curve[0].fraction:.0%}, where the forecast starts", hint="update later")
    fractions = np.minimum(fractions[seen], 1.0)
    off = np.log(losses[seen] / np.array([forecast.band_at(float(x)).loss for x in fractions]))
    reading = _read(fractions, off, changes, forecast.target.train_steps)
    curve = tuple(_moved(point, reading) for point in forecast.curve)
    end = curve[-1]
    moved = replace(
        forecast,
        id="",
        parent=forecast.id,
        seen_fraction=float(fractions[-1]),
        curve=curve,
        final=Band(loss=end.loss, low90=end.low90, high90=end.high90, low50=end.low50, high50=end.high50),
        method=f"{forecast.method}+run",
        notes=(*forecast.notes, *_notes(reading)),
        inputs_digest=digest_of([forecast.inputs_digest, [int(s) for s in steps], [float(v) for v in losses]]),
    )
    return replace(moved, id=identity(moved))


@dataclass(frozen=True)
class _Reading:
    """What the run so far says: where it stands off the forecast, split into trajectory and segment offsets."""

    at: float
    trajectory: float
    trajectory_sd: float
    offsets: tuple[tuple[float, float, float], ...]
    """(fraction it starts at, relative offset, its sd) of each change."""


def _read(fractions: np.ndarray, off: np.ndarray, changes: Sequence[Change], train_steps: int) -> _Reading:
    noise = _noise(off)
    remaining = off.copy()
    offsets = []
    for change in sorted(changes, key=lambda change: change.first_step):
        start = change.first_step / train_steps
        offset, sd = _offset(change, start, fractions, remaining, noise)
        remaining = np.where(fractions >= start, remaining - offset, remaining)
        offsets.append((start, offset, sd))
    near = fractions >= fractions[-1] - WINDOW * max(fractions[-1], 0.3)
    return _Reading(float(fractions[-1]), float(remaining[near].mean()), noise / math.sqrt(near.sum()), tuple(offsets))


def _offset(change: Change, start: float, fractions: np.ndarray, off: np.ndarray, noise: float) -> tuple[float, float]:
    """Offset of one segment and its sd: the measured one, else the jump at the boundary shrunk by the prior of its kind."""
    if change.offset is not None:
        return change.offset, change.offset_sd
    prior = OFFSET_SD.get(change.kind, OTHER_OFFSET_SD)
    reach = WINDOW * max(start, 0.3)
    before, after = (fractions < start) & (fractions >= start - reach), (fractions >= start) & (fractions <= start + reach)
    if not before.any() or not after.any():
        return 0.0, prior
    blur = noise**2 * (1 / before.sum() + 1 / after.sum()) + DRIFT**2 * reach / max(start, 0.05)
    share = prior**2 / (prior**2 + blur)
    return share * float(off[after].mean() - off[before].mean()), math.sqrt(share * blur)


def _moved(point: CurvePoint, reading: _Reading) -> CurvePoint:
    """A passed point as promised; a later one moved by what persists, inside a band that is never wider than unseen change demands."""
    if point.fraction <= reading.at:
        return point
    kept = persisting(reading.at / point.fraction)
    shift = kept * reading.trajectory + sum(offset for start, offset, _ in reading.offsets if start <= point.fraction)
    unseen = DRIFT * math.sqrt(math.log(point.fraction / reading.at))
    own = math.hypot(unseen, kept * reading.trajectory_sd, (1 - kept) * reading.trajectory)
    segments = math.sqrt(sum(sd**2 for start, _, sd in reading.offsets if start <= point.fraction))
    middle = point.loss * math.exp(shift)

    def edge(promised: float, z: float) -> float:
        before = abs(math.log(promised / point.loss)) / z
        return z * math.hypot(min(before, own), segments)

    return CurvePoint(
        fraction=point.fraction,
        step=point.step,
        loss=middle,
        low90=middle * math.exp(-edge(point.low90, 1.645)),
        high90=middle * math.exp(edge(point.high90, 1.645)),
        low50=middle * math.exp(-edge(point.low50, 0.674)),
        high50=middle * math.exp(edge(point.high50, 0.674)),
    )


def persisting(ratio: float) -> float:
    """Share of a reading at progress x that is still there at y, ratio = x / y: a curve through what the backtest that gave DRIFT measured
    (0.14 at 0.1, 0.39 at 0.25, 0.50 at 0.35, 0.72 at 0.5, 1.00 at 0.75)."""
    return 1 - (1 - ratio) ** 2


def _noise(off: np.ndarray) -> float:
    """Relative sd of one evaluation about the run's trend, from second differences; 0.2% until there are six."""
    if len(off) < 6:
        return 0.002
    return max(2e-4, float(np.sqrt(np.mean(np.diff(off, 2) ** 2) / 6)))


def _notes(reading: _Reading) -> tuple[str, ...]:
    notes = [
        f"at {reading.at:.0%} the run stood {reading.trajectory:+.2%} off the forecast; {persisting(reading.at):.0%} of that is carried to the end"
    ]
    notes += [f"change at {start:.0%}: offset {offset:+.2%}, sd {sd:.2%}" for start, offset, sd in reading.offsets]
    return tuple(notes)
