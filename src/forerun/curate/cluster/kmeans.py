"""Spherical k-means on matrix products: a two-level start, then flat passes over all rows.

Two-level: a few dozen coarse clusters, each split on its own, so most work is on small blocks. The flat passes then move every row to
its true nearest centroid. Assignment is one GEMM a block; sums go through a sort, so results do not depend on the order of rows within equal labels.
"""

# N rows, D dimensions, K centroids

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.base.errors import DataError

BLOCK = 4096  # assumed: rows whose scores against 5,000 centroids fit in cache-friendly 80 MiB
TWO_LEVEL_FROM = 512  # assumed: below this many centroids the flat passes alone are cheap
FLAT_PASSES = 2  # assumed from a bfloat16 probe; in float32 NumPy the bar is missed (docs/design/0041-measured-stages.md)


@dataclass(frozen=True, eq=False)
class Centroids:
    """A trained k-means."""

    vectors: np.ndarray
    """float32 `[K, D]`, unit length."""
    weights: np.ndarray
    """int64 `[K]`, rows nearest to each."""
    mean_cosine: float
    """Of rows to their centroid."""


def train(rows: np.ndarray, num_centroids: int, *, seed: int, num_iterations: int = 10) -> Centroids:
    """Spherical k-means of unit rows.

    Raises: DataError when there are fewer distinct rows than centroids, which would leave empty clusters.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    if len(rows) < num_centroids:
        raise DataError(f"{len(rows)} documents cannot make {num_centroids} clusters", hint="lower cluster.num_fine")
    rng = np.random.default_rng(seed)
    if num_centroids < TWO_LEVEL_FROM:
        centroids = _lloyd(rows, num_centroids, num_iterations, rng)
        passes = 1
    else:
        centroids = _two_level(rows, num_centroids, num_iterations, rng)
        passes = FLAT_PASSES
    for _ in range(passes):
        labels, cosine = assign(rows, centroids)
        centroids = _recentred(rows, labels, centroids, cosine)
    labels, cosine = assign(rows, centroids)
    weights = np.bincount(labels, minlength=num_centroids)
    filled = weights > 0
    if not filled.all() and num_centroids < TWO_LEVEL_FROM and len(np.unique(rows, axis=0)) < num_centroids:
        raise DataError(f"fewer than {num_centroids} distinct documents to cluster", hint="lower cluster.num_fine")
    return Centroids(centroids[filled], weights[filled], float(cosine.mean(dtype=np.float64)))


def assign(rows: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest centroid of each row, int32 `[N]`, and the cosine to it, float32 `[N]`.

    Blocks are padded to one shape: a product's last bits depend on its shape, and must not depend on how rows are partitioned.
    """
    labels, cosine = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)
    transposed = np.ascontiguousarray(centroids.T)
    block = min(BLOCK, max(64, (1 << 24) // len(centroids)))
    padded = np.zeros((block, rows.shape[1]), np.float32)
    for start in range(0, len(rows), block):
        here = rows[start : start + block]
        if len(here) < block:
            padded[: len(here)], padded[len(here) :] = here, 0
            here = padded
        score = here @ transposed
        best = score.argmax(axis=1)
        stop = min(start + block, len(rows))
        labels[start:stop] = best[: stop - start]
        cosine[start:stop] = score[np.arange(stop - start), best[: stop - start]]
    return labels, cosine


def _lloyd(rows: np.ndarray, num_centroids: int, num_iterations: int, rng: np.random.Generator) -> np.ndarray:
    centroids = rows[np.sort(rng.choice(len(rows), num_centroids, replace=False))].copy()
    for _ in range(num_iterations):
        labels, cosine = assign(rows, centroids)
        centroids = _recentred(rows, labels, centroids, cosine)
    return centroids


def _two_level(rows: np.ndarray, num_centroids: int, num_iterations: int, rng: np.random.Generator) -> np.ndarray:
    num_coarse = round(num_centroids**0.5)
    sample = rows[np.sort(rng.choice(len(rows), min(len(rows), 1024 * num_coarse // 4), replace=False))]
    coarse = _lloyd(sample, num_coarse, num_iterations, rng)
    labels, _ = assign(rows, coarse)
    sizes = np.bincount(labels, minlength=num_coarse)
    shares = np.minimum(np.maximum(1, np.floor(sizes / len(rows) * num_centroids).astype(np.int64)), sizes)
    for index in np.argsort(-(sizes / len(rows) * num_centroids - shares), kind="stable")[: max(0, num_centroids - int(shares.sum()))]:
        shares[index] += shares[index] < sizes[index]
    order = np.argsort(labels, kind="stable")
    edges = np.concatenate([[0], np.cumsum(sizes)])
    parts = [
        _lloyd(np.ascontiguousarray(rows[order[edges[index] : edges[index + 1]]]), int(shares[index]), num_iterations, rng)
        for index in range(num_coarse)
        if sizes[index]
    ]
    return np.concatenate(parts)


def _recentred(rows: np.ndarray, labels: np.ndarray, centroids: np.ndarray, cosine: np.ndarray) -> np.ndarray:
    """Normalised sums of each cluster; an empty cluster takes one of the rows that fit worst."""
    sizes = np.bincount(labels, minlength=len(centroids))
    order = np.argsort(labels, kind="stable")
    filled = np.flatnonzero(sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1][filled]
    out = centroids.copy()
    out[filled] = np.add.reduceat(rows[order], starts, axis=0)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        out[empty] = rows[np.argsort(cosine, kind="stable")[: len(empty)]]
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
