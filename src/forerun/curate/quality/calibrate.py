"""Raw student scores to 0..1 such that fixed edges cut buckets alike in every content type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.curate.quality.statistics import TYPES

EDGES = (0.2, 0.4, 0.6, 0.8)  # source: Marin's fixed bucket edges
LEAST_LABELS = 40  # assumed: fewer labelled documents of a type calibrate with all types together
LEVELS = (1, 2, 3, 4, 5)
DEFAULT = "default"


@dataclass(frozen=True)
class Calibration:
    """Cut points per content type: raw scores that map to 0, .2, .4, .6, .8, 1."""

    cuts: dict[str, tuple[float, ...]]

    def apply(self, raw: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Calibrated score of each document, float32 in 0..1."""
        out = np.empty(len(raw), np.float32)
        for index, name in enumerate(TYPES):
            members = types == index
            cuts = self.cuts.get(name, self.cuts[DEFAULT])
            out[members] = np.interp(raw[members], cuts, np.linspace(0, 1, 6))
        return out


def calibrate(raw: np.ndarray, labels: np.ndarray, types: np.ndarray) -> Calibration:
    """Cut points between the median raw scores of adjacent label levels, per type and for all together.

    Source: Marin's per-type calibration (data-pipeline reference 1.9): midpoints of adjacent medians, made increasing.
    """
    cuts = {DEFAULT: _cuts(raw, labels)}
    for index, name in enumerate(TYPES):
        members = types == index
        if members.sum() >= LEAST_LABELS:
            cuts[name] = _cuts(raw[members], labels[members])
    return Calibration(cuts)


def buckets(score: np.ndarray) -> np.ndarray:
    """Q0-Q4 by the fixed edges, int8."""
    return np.searchsorted(EDGES, score, side="right").astype(np.int8)


def _cuts(raw: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    level = np.clip(np.rint(labels), LEVELS[0], LEVELS[-1])
    known = [step for step in LEVELS if (level == step).any()]
    medians = np.interp(LEVELS, known, np.maximum.accumulate([np.median(raw[level == step]) for step in known]))
    middle = (medians[1:] + medians[:-1]) / 2
    width = max(float(np.ptp(medians)), 1e-3)
    low, high = min(float(raw.min()), middle[0] - width / 8), max(float(raw.max()), middle[-1] + width / 8)
    cuts = np.maximum.accumulate([low, *middle, high])
    return tuple((cuts + np.arange(6) * 1e-6 * width).tolist())  # strictly increasing, or interpolation has no answer
