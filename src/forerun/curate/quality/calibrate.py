"""Raw student scores to 0..1 such that fixed edges cut buckets alike in every content type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.curate.quality.heuristic import by_rank
from forerun.curate.quality.statistics import TYPES

EDGES = (0.2, 0.4, 0.6, 0.8)  # source: Marin's fixed bucket edges
LEAST_LABELS = 40  # assumed: fewer labelled documents of a type calibrate with all types together
LEVELS = (1, 2, 3, 4, 5)
LEAST_GRADES, LEAST_SHARE = 3, 0.05  # assumed: with fewer grades in use, the median of a grade says nothing of most buckets
BELOW_EDGE = 1e-6  # derived: float32 near 1 still tells it from the edge
DEFAULT = "default"


@dataclass(frozen=True)
class Calibration:
    """Cut points per content type."""

    cuts: dict[str, tuple[float, ...]]
    """Raw scores that map to 0, .2, .4, .6, .8, 1; the first or last of them repeated where no label reaches."""

    def apply(self, raw: np.ndarray, types: np.ndarray) -> np.ndarray:
        """Calibrated score of each document, float32 in 0..1."""
        out = np.empty(len(raw), np.float32)
        for index, name in enumerate(TYPES):
            members = types == index
            out[members] = _scores(raw[members], np.array(self.cuts.get(name, self.cuts[DEFAULT])))
        return out


def calibrate(raw: np.ndarray, labels: np.ndarray, types: np.ndarray) -> Calibration:
    """Cut points between the median raw scores of adjacent label levels, per type and for all together.

    Source: Marin's per-type calibration (data-pipeline reference 1.9): midpoints of adjacent medians. Where the medians do not rise with
    the labels, the cuts give each bucket the share of its label instead.
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


def spread(labels: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, str]:
    """Labels to calibrate with, and how they came about; the student learns those given, whose distances say more.

    A small model's expectations may all lie between 1 and 2 and still rank well. Where labels are more than grades and fewer than
    three grades hold a twentieth of them each, a label's rank within its type decides, with the shares of the rules on text.
    """
    grades, sizes = np.unique(np.rint(labels), return_counts=True)
    used = int((sizes >= LEAST_SHARE * len(labels)).sum())
    if used >= LEAST_GRADES or len(np.unique(labels)) <= len(LEVELS):
        return labels, "as given"
    return by_rank(labels, types), f"ranked within each type: the teacher used {len(grades)} of {len(LEVELS)} grades"


def _scores(raw: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Piecewise linear between the cuts; no score lies in a bucket of which no label was seen."""
    first, last = int(np.flatnonzero(cuts == cuts[0])[-1]), int(np.flatnonzero(cuts == cuts[-1])[0])
    values = np.linspace(0, 1, len(cuts))
    if last < len(cuts) - 1:
        values[last] -= BELOW_EDGE
    return np.interp(raw, cuts[first : last + 1], values[first : last + 1])


def _cuts(raw: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    level = np.clip(np.rint(labels), LEVELS[0], LEVELS[-1])
    known = [step for step in LEVELS if (level == step).any()]
    found = np.array([np.median(raw[level == step]) for step in known])
    medians = np.interp(LEVELS, known, found)
    middle = (medians[1:] + medians[:-1]) / 2
    if (np.diff(found) <= 0).any():  # two grades the student cannot tell apart would leave buckets of no width
        middle = np.quantile(raw, [(level <= step).mean() for step in LEVELS[:-1]])
    width = max(float(np.ptp(medians)), 1e-3)
    low = float(min(raw.min(), middle[0] - width / 8))
    high = float(max(raw.max(), middle[-1] + width / 8)) + 1e-5 * width
    inner = np.maximum.accumulate(middle) + np.arange(1, len(LEVELS)) * 1e-6 * width  # strictly increasing, or there is no answer
    inner[: known[0] - 1] = low
    inner[known[-1] - 1 :] = high
    return (low, *inner.tolist(), high)
