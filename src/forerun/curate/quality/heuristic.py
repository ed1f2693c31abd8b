"""The teacher of last resort: rules on text statistics, ranked within each content type.

It knows nothing of meaning. It rewards what careful text of a type tends to show and keeps the pipeline running without an
endpoint; the manifest says when it was used.
"""

from __future__ import annotations

import numpy as np

from forerun.curate.quality.report import ranks
from forerun.curate.quality.statistics import TYPES, column_of, shares

NAME = "heuristic-1"
LABEL_SHARES = (0.10, 0.20, 0.35, 0.25, 0.10)  # assumed: close to Marin's document shares Q0-Q4 (10.6/15.7/39.9/24.4/9.3)
RULES: dict[str, dict[str, float]] = {
    "prose": {
        "function_words": 1.0,
        "sentence_ends": 0.3,
        "distinct_words": 0.7,
        "upper": -0.7,
        "marks": -0.7,
        "digits": -0.5,
        "words": 0.6,
    },
    "code": {"indented_lines": 0.6, "function_words": 0.6, "distinct_words": 0.8, "longest_line": -0.8, "digits": -0.6, "words": 0.4},
    "other": {"distinct_words": 0.8, "letters": 0.5, "marks": -0.5, "longest_line": -0.3, "words": 0.6},
}  # assumed: signs and rough sizes by judgement; measured only against planted damage (tests/curate/test_store_quality.py)


def heuristic_labels(statistics: np.ndarray, types: np.ndarray) -> np.ndarray:
    """A label 1-5 for each document, float32: the same share of every type gets each label."""
    return by_rank(heuristic_scores(statistics, types), types)


def by_rank(scores: np.ndarray, types: np.ndarray) -> np.ndarray:
    """A label 1-5 by each score's place among those of its type, float32; equal scores get one label."""
    labels = np.zeros(len(scores), np.float32)
    edges = np.cumsum(LABEL_SHARES)[:-1]
    for index in range(len(TYPES)):
        members = np.flatnonzero(types == index)
        if len(members):
            labels[members] = 1 + np.searchsorted(edges, (ranks(scores[members]) + 0.5) / len(members))
    return labels


def heuristic_scores(statistics: np.ndarray, types: np.ndarray) -> np.ndarray:
    """How each document does by the rules of its type, against the others of that type; float64, comparable within a type only."""
    features = shares(statistics)
    scores = np.zeros(len(statistics))
    for index, name in enumerate(TYPES):
        members = np.flatnonzero(types == index)
        if not len(members):
            continue
        rules = RULES.get(name, RULES["other"])
        chosen = features[members][:, [column_of(rule) for rule in rules]]
        spread = np.maximum(chosen.std(axis=0), 1e-6)
        scores[members] = (np.clip((chosen - np.median(chosen, axis=0)) / spread, -3, 3) * np.array(list(rules.values()))).sum(axis=1)
    return scores
