"""Sequential detectors on a series: how far is it from where its own recent past (and the forecast) say it should be.

The baseline is a straight line in log step through the recent rows, ending a gap before the row judged. A forecast's slowly
changing bias is such a line, so it is in the baseline and not in the alarm; a step, a spike or a bend is not.
Scores are in standard deviations of a healthy run, noise correlation and the line's own uncertainty included.
"""

# N rows of the series

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_WINDOW = 5000  # assumed: rows in the baseline; longer follows a changing bias too slowly
MAX_GAP = 300  # assumed: rows between baseline and row judged, so that a departure is not learned while it begins
MIN_ROWS = 60  # assumed: a line and its noise from fewer rows are not worth an alarm
BLOCK = 50  # derived: rows that share a baseline; half the fast memory
CLIP = 5.0  # assumed: one wild row moves an average by no more than a 5-sigma row
FAST, SLOW = 0.02, 0.002  # measured: docs/design/0071; +1% at 1.2% noise is found in about 40 rows by the one, a 2% drift by the other
MODEL_SD = (
    5e-4  # measured: a healthy residual bends about a straight line by this much (docs/design/0071); smaller departures are the model's
)
SPIKE_SD = 0.003  # assumed: relative; a loss 1% off for three steps is not worth an alarm, however smooth the curve (public curves are)
COUNTED_ROWS = 20_000  # derived: rows of the replayed runs on which the limits were set; beyond them a limit has to grow
WARMUP_ROWS = 2500  # derived: five memories of the slow average
MEDIAN_ROWS = 500  # assumed: enough for a robust spread good to 5%
TILE = 64  # derived: rows a matrix product averages at once
NUM_LAGS = 10  # assumed: rows over which noise may be correlated


@dataclass(frozen=True)
class Baseline:
    """Where a healthy series would be, per row; NaN while there is not enough past."""

    expected: np.ndarray
    """[N]"""
    scale: np.ndarray
    """[N] standard deviation of one row."""
    line_sd: np.ndarray
    """[N] standard deviation of the expected value, in units of `scale`."""
    inflation: np.ndarray
    """[N] variance of a long mean over that of independent rows; above 1 when noise is correlated."""


def baseline_of(position: np.ndarray, value: np.ndarray, *, min_rows: int = MIN_ROWS, block: int = BLOCK, from_row: int = 0) -> Baseline:
    """Fit the moving line. `position` is the log step; rows with non-finite values must be gone; nothing is said before `from_row`."""
    size = len(value)
    block = int(np.clip(size // 100, 1, block))
    expected, scale, line_sd, inflation = (np.full(size, np.nan) for _ in range(4))
    for start in range(from_row, size, block):
        end = min(start + block, size)
        stop = start - int(np.clip(start // 20, 0, MAX_GAP))
        begin = max(stop - int(np.clip(stop // 2, min_rows, MAX_WINDOW)), 0)
        if stop - begin < min_rows:
            continue
        x, y = position[begin:stop], value[begin:stop]
        intercept, slope, noise = line(x, y)
        if noise <= 0:
            noise = max(abs(intercept), 1.0) * 1e-9
        centre, spread = x.mean(), max(float(((x - x.mean()) ** 2).sum()), 1e-300)
        ahead = position[start:end] - centre
        residual = np.clip((y - intercept - slope * (x - centre)) / noise, -CLIP, CLIP)
        factor = _long_run(residual)
        expected[start:end] = intercept + slope * ahead
        scale[start:end] = noise
        inflation[start:end] = factor
        line_sd[start:end] = np.sqrt(factor * (1 / len(x) + ahead**2 / spread))
    return Baseline(expected, scale, line_sd, inflation)


def standardised(value: np.ndarray, baseline: Baseline) -> np.ndarray:
    """Distance of each row from its baseline in standard deviations of one row; 0 where there is no baseline."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((value - baseline.expected) / baseline.scale, nan=0.0)


def ewma_score(distance: np.ndarray, baseline: Baseline, weight: float) -> np.ndarray:
    """Exponentially weighted mean of the clipped distances over its own standard deviation, two-sided with sign."""
    mean = ewma(np.clip(distance, -CLIP, CLIP), weight)
    variance = weight / (2 - weight) * baseline.inflation + baseline.line_sd**2 + (MODEL_SD / baseline.scale) ** 2
    return np.nan_to_num(mean / np.sqrt(variance), nan=0.0)


def ewma(value: np.ndarray, weight: float) -> np.ndarray:
    """m[t] = (1 - weight) m[t-1] + weight value[t], from m = 0; in tiles, because a loop over rows is 50 times slower."""
    size, keep = len(value), 1 - weight
    tiles = np.zeros((-(-size // TILE), TILE))
    tiles.ravel()[:size] = value
    lag = np.arange(TILE)[None, :] - np.arange(TILE)[:, None]
    mean = tiles @ np.where(lag >= 0, weight * keep ** np.maximum(lag, 0), 0.0)
    fade, carried = keep ** np.arange(1, TILE + 1), 0.0
    for index in range(len(mean)):
        mean[index] += carried * fade
        carried = mean[index, -1]
    return mean.ravel()[:size]


def spent(limit: float, row: np.ndarray, counted: int = COUNTED_ROWS) -> np.ndarray:
    """What to multiply scores by so that one limit holds over a run of any length; 1 up to `counted` rows.

    With r = row / counted the limit's square grows by 2 ln(r (1 + 2 log2 r)^2): under a normal tail all rows beyond `counted`, however
    many, then alarm at most ln(2) / 2 = 0.35 times as often as those before (the sum of what is spent at r is 1 / (r (1 + 2 log2 r)^2)).
    """
    r = np.maximum(row / counted, 1.0)
    return limit / np.sqrt(limit**2 + 2 * np.log(r * (1 + 2 * np.log2(r)) ** 2))


def three_in_a_row(distance: np.ndarray) -> np.ndarray:
    """Per row, the least of the last three distances when all lie on one side, with sign; else 0."""
    if len(distance) < 3:
        return np.zeros(len(distance))
    window = np.lib.stride_tricks.sliding_window_view(distance, 3)
    high, low = window.min(axis=1), window.max(axis=1)
    return np.concatenate([np.zeros(2), np.where(high > 0, high, np.where(low < 0, low, 0.0))])


def line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Least squares after pulling outliers in to 4 robust deviations: value at the mean of x, slope, noise sd."""
    for _ in range(2):
        centre = x.mean()
        spread = float(((x - centre) ** 2).sum())
        intercept = float(y.mean())
        slope = float(((x - centre) * (y - intercept)).sum() / spread) if spread > 0 else 0.0
        fitted = intercept + slope * (x - centre)
        robust = 1.4826 * float(np.median(np.abs(y - fitted)[:: max(len(y) // MEDIAN_ROWS, 1)]))
        y = np.clip(y, fitted - 4 * robust, fitted + 4 * robust) if robust > 0 else y
    return intercept, slope, float((y - fitted).std(ddof=2))


def _long_run(residual: np.ndarray) -> float:
    """Variance inflation from the first autocorrelations, tapered; at least 1."""
    centred = residual - residual.mean()
    power = float((centred**2).sum())
    if power <= 0:
        return 1.0
    lags = range(1, min(NUM_LAGS, len(centred) // 5) + 1)
    weights = [1 - lag / (NUM_LAGS + 1) for lag in lags]
    return max(1.0, 1 + 2 * sum(weight * float((centred[lag:] * centred[:-lag]).sum()) / power for lag, weight in zip(lags, weights)))
