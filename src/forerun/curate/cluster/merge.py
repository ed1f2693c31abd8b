"""Fine centroids to a few domains: always split the cluster with the highest loss in two, never below a floor, then polish.

The loss of a cluster is its weight minus the length of its weighted vector sum: 0 when all its centroids point one way.
Source: Marin's domain clustering, 5,000 to 40 (data-pipeline reference, section 1.8).
"""

# K fine centroids, D dimensions, G domains

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NUM_SEEDS = 3  # Marin: seeds 42-44, the best kept
NUM_RESTARTS = 10  # Marin: per split
NUM_ITERATIONS = 20  # Marin: per restart
MOST_SWEEPS = 50  # assumed: hill climbing stopped by itself within 12 sweeps wherever it was tried


@dataclass(frozen=True, eq=False)
class Domains:
    """Which domain each fine centroid belongs to."""

    labels: np.ndarray
    """int32 `[K]`."""
    loss: float
    """Sum over domains, of the total weight."""
    seed: int
    """That gave the least loss."""
    fractions: np.ndarray
    """float64 `[G]`, weight of each domain of the whole."""


def merge(vectors: np.ndarray, weights: np.ndarray, num_domains: int, *, floor: float, seed: int = 42) -> Domains:
    """Group centroids into at most `num_domains`, each of at least `floor` of the weight; fewer when the floor allows no more."""
    vectors, weights = vectors.astype(np.float64), weights.astype(np.float64)
    best: Domains | None = None
    for attempt in range(seed, seed + NUM_SEEDS):
        labels = _divide(vectors, weights, num_domains, floor, np.random.default_rng(attempt))
        labels = _climb(vectors, weights, labels, floor)
        loss = _losses(vectors, weights, labels).sum() / weights.sum()
        if best is None or loss < best.loss - 1e-12:
            fractions = np.bincount(labels, weights) / weights.sum()
            best = Domains(labels.astype(np.int32), float(loss), attempt, fractions)
    assert best is not None
    return best


def _losses(vectors: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    sums = _sums(vectors, weights, labels)
    return np.bincount(labels, weights) - np.linalg.norm(sums, axis=1)


def _sums(vectors: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    sums = np.zeros((int(labels.max()) + 1, vectors.shape[1]))
    np.add.at(sums, labels, vectors * weights[:, None])
    return sums


def _divide(vectors: np.ndarray, weights: np.ndarray, num_domains: int, floor: float, rng: np.random.Generator) -> np.ndarray:
    least = floor * weights.sum()
    labels = np.zeros(len(vectors), np.int64)
    final: set[int] = set()
    while labels.max() + 1 < num_domains:
        losses = _losses(vectors, weights, labels)
        mass = np.bincount(labels, weights)
        candidates = [index for index in np.argsort(-losses) if mass[index] >= 2 * least and index not in final]
        if not candidates:
            break
        chosen = int(candidates[0])
        members = np.flatnonzero(labels == chosen)
        side = _split(vectors[members], weights[members], least, rng)
        if side is None:
            final.add(chosen)
        else:
            labels[members[side]] = labels.max() + 1
    return labels


def _split(vectors: np.ndarray, weights: np.ndarray, least: float, rng: np.random.Generator) -> np.ndarray | None:
    """Which members leave, by the best of several weighted 2-means, both sides at least `least`; None when impossible."""
    best, best_loss = None, np.inf
    if len(vectors) < 2:
        return None
    for _ in range(NUM_RESTARTS):
        centres = vectors[rng.choice(len(vectors), 2, replace=False, p=weights / weights.sum())]
        side = np.zeros(len(vectors), bool)
        for _ in range(NUM_ITERATIONS):
            gap = vectors @ (centres[1] - centres[0])
            moved = _repaired(gap > 0, gap, weights, least)
            if moved is None or np.array_equal(moved, side):
                side = moved if moved is not None else side
                break
            side = moved
            sums = np.stack([(vectors[~side] * weights[~side, None]).sum(axis=0), (vectors[side] * weights[side, None]).sum(axis=0)])
            centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        if not (weights[side].sum() >= least and weights[~side].sum() >= least):
            continue
        loss = _losses(vectors, weights, side.astype(np.int64)).sum()
        if loss < best_loss:
            best, best_loss = side, loss
    return best


def _repaired(side: np.ndarray, gap: np.ndarray, weights: np.ndarray, least: float) -> np.ndarray | None:
    """Move the cheapest members until both sides reach the floor."""
    side = side.copy()
    for small in (True, False):
        short = least - weights[side == small].sum()
        if short > 0:
            others = np.flatnonzero(side != small)
            cheapest = others[np.argsort(-gap[others] if small else gap[others], kind="stable")]
            needed = int(np.searchsorted(np.cumsum(weights[cheapest]), short)) + 1
            if needed >= len(others):
                return None
            side[cheapest[:needed]] = small
    return side


def _climb(vectors: np.ndarray, weights: np.ndarray, labels: np.ndarray, floor: float) -> np.ndarray:
    """Move single centroids wherever the total loss falls and the floor holds, until no move gains."""
    labels = labels.copy()
    num_domains = int(labels.max()) + 1
    if num_domains < 2:
        return labels
    sums, mass = _sums(vectors, weights, labels), np.bincount(labels, weights, minlength=num_domains)
    least = floor * weights.sum()
    for _ in range(MOST_SWEEPS):
        moved = False
        for index in range(len(labels)):
            home, step = int(labels[index]), weights[index] * vectors[index]
            if mass[home] - weights[index] < least:
                continue
            lengths = np.linalg.norm(sums, axis=1)
            gains = np.linalg.norm(sums + step, axis=1) - lengths
            gains += np.linalg.norm(sums[home] - step) - lengths[home]
            gains[home] = 0
            target = int(gains.argmax())
            if gains[target] > 1e-9 * weights.sum():
                sums[home] -= step
                sums[target] += step
                mass[home] -= weights[index]
                mass[target] += weights[index]
                labels[index], moved = target, True
        if not moved:
            break
    return labels
