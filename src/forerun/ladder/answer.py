"""What a forecast says: the record that is promised before launch and scored afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.base.config import plain
from forerun.base.errors import DataError
from forerun.ladder.rungs import Target

COMPUTES = ("train_flops", "fit_compute", "unstated")


@dataclass(frozen=True, kw_only=True)
class Band:
    """A central value and its 50% and 90% intervals."""

    loss: float
    low90: float
    high90: float
    low50: float
    high50: float


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The forecast at one point of training."""

    fraction: float
    step: int
    loss: float
    low90: float
    high90: float
    low50: float
    high50: float


@dataclass(frozen=True, kw_only=True)
class FloorPoint:
    """How the answer moves with the floor."""

    floor: float
    final: float
    """Central forecast of the final loss if the floor were this."""
    weight: float
    """Share of belief within half a spacing of this floor; 1 when pinned."""


@dataclass(frozen=True, kw_only=True)
class RungUse:
    """What the forecast took from one rung."""

    rung: str
    compute: float
    end: float
    """Its final loss; inferred when the run died early."""
    last_fraction: float
    inferred: bool


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One rung forecast from the smaller ones, and what it came to."""

    rung: str
    distance: float
    """ln(C / largest C of the rungs used)."""
    loss: float
    low90: float
    high90: float
    outcome: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A promise about a run that can be scored: written to `ledger/forecasts/<id>.json` as `to_json` gives it."""

    schema: int = 1
    id: str = ""
    """First 16 hex digits of the digest of everything else."""
    final: Band
    curve: tuple[CurvePoint, ...]
    floor_profile: tuple[FloorPoint, ...]
    method: str
    compute: str
    """Which compute the numbers were: train_flops, fit_compute (without the output head) or unstated."""
    eval: str
    """Which evaluation the losses are of."""
    target: Target
    rungs: tuple[RungUse, ...]
    exponent: Band
    """Of the reducible loss in compute, as `loss`; not a loss."""
    floor: Band
    floor_pinned: bool
    seed_noise: float | None
    """Relative sd of the end between seeds; None when no rung was repeated, and then assumed inside the misfit."""
    censoring: str
    notes: tuple[str, ...]
    """What widened or limited this forecast, one sentence each."""
    inputs_digest: str
    backtest: tuple[Tested, ...] = ()
    """Every rung past the third size, forecast from smaller ones; empty for three sizes and for other methods."""
    parent: str = ""
    """Id of the forecast this one updates; empty for one from rungs alone."""
    seen_fraction: float = 0.0
    """Progress of the target's own evaluations that were used; 0 for a promise made before launch."""

    def band_at(self, fraction: float) -> Band:
        """The band at any point of progress, between curve points by interpolation over ln(fraction).

        Raises: DataError before the first forecast point or past the end.
        """
        xs = np.array([point.fraction for point in self.curve])
        if not xs[0] * 0.98 <= fraction <= 1.0 + 1e-9:
            raise DataError(f"the forecast covers fractions {xs[0]:g} to 1, got {fraction:g}", hint="ask inside that range")
        values = {
            name: float(np.interp(math.log(fraction), np.log(xs), [getattr(point, name) for point in self.curve]))
            for name in ("loss", "low90", "high90", "low50", "high50")
        }
        return Band(**values)

    def to_json(self) -> dict[str, Any]:
        """Plain data in the shape other packages read."""
        return plain(self)
