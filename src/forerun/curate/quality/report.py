"""What the quality scores are worth: agreement with the teacher inside each type, calibration, and whether they only say the domain."""

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.curate.quality.statistics import TYPES

MOST_BY_DOMAIN = 0.5  # assumed: beyond half of the variance, a mixture over buckets is one over domains (incident D10)
LEAST_SPEARMAN = 0.1  # source: Marin's math labels, held useless, ranked at .086
MOST_TOP, ENOUGH = 0.5, 200  # assumed: a top bucket of more than half says nothing; rates of fewer documents are chance
LEAST = 20  # assumed: rank correlations of fewer documents say nothing


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Rank correlation with average ranks for ties; 0 when one side is constant."""
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """Place of each value from 0, equal ones sharing their average."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse]


def quality_report(
    *,
    score: np.ndarray,
    labels: np.ndarray,
    types: np.ndarray,
    bucket: np.ndarray,
    all_types: np.ndarray,
    domains: np.ndarray,
    levels: np.ndarray | None = None,
) -> dict[str, Any]:
    """Numbers for the manifest.

    Args:
        score, labels, types: of labelled documents the student was not fitted on.
        levels: the labels as they were calibrated, where that is not as given.
        bucket, all_types, domains: of every document; `domains` any grouping, such as source or domain index.
    """
    within = {
        name: {"spearman": spearman(score[types == index], labels[types == index]), "num_labels": int((types == index).sum())}
        for index, name in enumerate(TYPES)
        if (types == index).sum() >= LEAST
    }
    rates = {name: float((bucket[all_types == index] == 4).mean()) for index, name in enumerate(TYPES) if (all_types == index).any()}
    level = np.rint(labels if levels is None else levels)
    by_domain = explained(bucket.astype(float), domains)
    return {
        "spearman": spearman(score, labels),
        "spearman_within_type": within,
        "calibration": [
            {"label": int(step), "mean_score": float(score[level == step].mean()), "num_labels": int((level == step).sum())}
            for step in np.unique(level)
        ],
        "top_bucket_fraction_by_type": rates,
        "bucket_fractions": (np.bincount(bucket, minlength=5) / max(len(bucket), 1)).tolist(),
        "variance_explained_by_domain": by_domain,
        "variance_explained_by_type": explained(bucket.astype(float), all_types.astype(np.int64)),
        "notes": _notes(by_domain, within, rates, np.bincount(all_types, minlength=len(TYPES))),
    }


def _notes(by_domain: float, within: dict[str, Any], rates: dict[str, float], sizes: np.ndarray) -> list[str]:
    """What a reader must know before trusting the buckets; empty when nothing stands out."""
    notes = []
    if by_domain > MOST_BY_DOMAIN:
        notes.append(f"the domain explains {by_domain:.0%} of the buckets: quality mostly repeats the domain")
    notes += [f"{name}: the student does not rank as the teacher" for name, found in within.items() if found["spearman"] < LEAST_SPEARMAN]
    notes += [
        f"{name}: {'no' if rates[name] == 0 else 'nearly every'} document reaches the top bucket"
        for index, name in enumerate(TYPES)
        if sizes[index] >= ENOUGH and (rates[name] == 0 or rates[name] > MOST_TOP)
    ]
    return notes


def explained(values: np.ndarray, groups: np.ndarray) -> float:
    """Share of the variance that group means account for: near 1, the score only repeats the group (incident D10)."""
    total = values.var() * len(values)
    if total == 0:
        return 0.0
    sizes = np.bincount(groups)
    means = np.bincount(groups, values) / np.maximum(sizes, 1)
    return float((sizes * (means - values.mean()) ** 2).sum() / total)
