"""The forecast as a band: what the loss should be at a step, and how far off a healthy run may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.base.errors import ConfigError
from forerun.record.run import Segment

EVAL_LOSS = "eval/macro_loss_nats"
SD_OF_90 = 2 * 1.6448536269514722  # derived: a normal 90% interval is this many standard deviations wide

BIAS_SD_AT_TENTH = 0.015  # measured: relative; hero runs against published ladder forecasts at 10% of training were 2.4% off
BIAS_EXPONENT = 0.75  # measured: three Marin rungs predict the fourth, and four the hero, 2.1-3.4% off at 5%, 0.2-0.5% from 30% on
"""No ladder forecast has been closer than this on average, whatever interval it states; small rungs are biased early in a run."""

CHANGE_SD = {"data": 0.015, "context": 0.03, "optimizer": 0.005, "systems": 0.005}
"""Relative sd a declared change adds. Measured on one run (train loss +1.8% at a data change, -0.5% at a transport change); context: assumed."""
OTHER_CHANGE_SD = 0.01  # assumed: a change of a kind not listed


@dataclass(frozen=True)
class Band:
    """Forecast loss over steps, in logarithms, with one standard deviation each way."""

    log_step: np.ndarray
    log_loss: np.ndarray
    sd_low: np.ndarray
    sd_high: np.ndarray
    num_steps: int
    metrics: tuple[str, ...]
    """The series the forecast is about; of several, the first that a run has."""

    @property
    def first_step(self) -> float:
        """Before this step the forecast says nothing."""
        return float(np.exp(self.log_step[0]))

    def expected(self, step: np.ndarray) -> np.ndarray:
        """Forecast loss in nats; NaN where the forecast says nothing."""
        inside = (_log(step) >= self.log_step[0] - 1e-9) & (_log(step) <= self.log_step[-1] + 1e-9)
        return np.where(inside, np.exp(self.through(step)), np.nan)

    def through(self, step: np.ndarray) -> np.ndarray:
        """Log forecast loss, smooth between curve points (straight pieces would bend the residual) and flat outside them."""
        return _smooth(_log(step), self.log_step, self.log_loss)

    def sd(self, step: np.ndarray, side: np.ndarray, segments: Sequence[Segment] = ()) -> np.ndarray:
        """Relative standard deviation at `step`, above (`side` > 0) or below the forecast, declared changes included."""
        stated = np.where(side > 0, np.interp(_log(step), self.log_step, self.sd_high), np.interp(_log(step), self.log_step, self.sd_low))
        trusted = BIAS_SD_AT_TENTH * (0.1 / np.maximum(step / self.num_steps, 1e-6)) ** BIAS_EXPONENT
        variance = stated**2 + trusted**2
        for segment in segments:
            if segment.changed:
                variance = variance + np.where(step >= segment.first_step, CHANGE_SD.get(segment.kind, OTHER_CHANGE_SD) ** 2, 0.0)
        return np.sqrt(variance)


def band_of(forecast: dict[str, Any], *, where: str = "forecast") -> Band:
    """Read the forecast JSON. Raises: ConfigError when its curve is missing, unsorted or not positive."""
    curve = forecast.get("curve")
    if not isinstance(curve, list) or len(curve) < 2:
        raise ConfigError(
            f"{where}: curve must list at least 2 points, got {type(curve).__name__}", hint="write it with `forerun forecast`"
        )
    try:
        step = np.array([point["step"] for point in curve], dtype=np.float64)
        loss = np.array([point["loss"] for point in curve], dtype=np.float64)
        low = np.array([point.get("low90", point["loss"]) for point in curve], dtype=np.float64)
        high = np.array([point.get("high90", point["loss"]) for point in curve], dtype=np.float64)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{where}: a curve point needs step, loss, low90 and high90 ({error})", hint="write it with `forerun forecast`"
        ) from None
    kept = step > 0
    step, loss, low, high = step[kept], loss[kept], low[kept], high[kept]
    ordered = len(step) >= 2 and bool(np.all(np.diff(step) > 0)) and bool(np.all((low > 0) & (low <= loss) & (loss <= high)))
    if not ordered:
        raise ConfigError(f"{where}: curve steps must ascend and 0 < low90 <= loss <= high90 must hold", hint="mend the forecast file")
    return Band(
        log_step=np.log(step),
        log_loss=np.log(loss),
        sd_low=np.log(loss / low) / (SD_OF_90 / 2),
        sd_high=np.log(high / loss) / (SD_OF_90 / 2),
        num_steps=int(step[-1]),
        metrics=_metrics(subject_of(forecast)),
    )


def subject_of(forecast: Mapping[str, Any]) -> str:
    """What a forecast's losses measure, without the remarks behind a comma."""
    return str(forecast.get("metric") or forecast.get("eval") or "").split(",")[0].strip()


def _metrics(subject: str) -> tuple[str, ...]:
    """A metric by its own name; a label of the forecast's tables as that evaluation, or as the only one a run logs."""
    if subject.startswith(("eval/", "eval_with_drops/")):
        return (subject,)
    return (EVAL_LOSS,) if subject in ("", "loss_nats") else (f"eval/{subject}/loss_nats", EVAL_LOSS)


def _smooth(x: np.ndarray, knots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Monotone cubic interpolation. Source: Fritsch and Butland 1984, harmonic means of neighbouring slopes."""
    width, slope = np.diff(knots), np.diff(values) / np.diff(knots)
    same = slope[1:] * slope[:-1] > 0
    harmonic = np.where(same, 2 * slope[1:] * slope[:-1] / np.where(same, slope[1:] + slope[:-1], 1.0), 0.0)
    tangent = np.concatenate([slope[:1], harmonic, slope[-1:]])
    x = np.clip(x, knots[0], knots[-1])
    piece = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    t, h = (x - knots[piece]) / width[piece], width[piece]
    left = (1 + 2 * t) * (1 - t) ** 2 * values[piece] + t * (1 - t) ** 2 * h * tangent[piece]
    return left + t**2 * (3 - 2 * t) * values[piece + 1] + t**2 * (t - 1) * h * tangent[piece + 1]


def _log(step: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.asarray(step, dtype=np.float64), 1e-9))
