"""Spherical k-means: an approximate look at all centroids, then passes in which a row looks at the neighbours of its centroid only.

A full pass costs rows x centroids; a neighbour pass costs rows x 32, so there can be many. A further look, from the better
centroids, frees rows that the neighbours hold fast. The objective ends above that of a few full passes. Source of the neighbour graph: Deng and Zhao 2018 (arXiv:1705.01813); variants tried: docs/design/0039.
"""

# N rows, D dimensions, K centroids, M neighbours of a centroid, itself among them

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from forerun.base.errors import DataError

BLOCK = 4096  # assumed: rows whose scores against 5,000 centroids fit in cache-friendly 80 MiB
NUM_NEIGHBOURS = 32  # measured: after two looks 48 gain nothing (docs/design/0039)
NUM_LOOKS = 2  # measured: one leaves rows stuck, mean cosine 0.730 for 0.751; a third gains 0.0003 with 5,000 centroids
LOOKED_AT_AGAIN = 2048  # measured: fewer centroids get a third look, which is cheap there and gains 0.003 with 1,155
NUM_PASSES = 5  # measured: after each look; more change the fourth digit
D_LOOK = 128  # measured: directions kept for a look; exact looks end no higher, the passes mend its mistakes
LEAST_FOR_PROJECTION = 512  # assumed: for fewer centroids an exact look is cheap


@dataclass(frozen=True, eq=False)
class Centroids:
    """A trained k-means."""

    vectors: np.ndarray
    """float32 `[K, D]`, unit length."""
    weights: np.ndarray
    """int64 `[K]`, rows of the sample that chose each."""
    mean_cosine: float
    """Of rows to their centroid."""


def train(rows: np.ndarray, num_centroids: int, *, seed: int, num_passes: int = NUM_PASSES) -> Centroids:
    """Spherical k-means of unit rows.

    Raises: DataError when there are fewer distinct rows than centroids, which would leave empty clusters.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    if len(rows) < num_centroids:
        raise DataError(f"{len(rows)} documents cannot make {num_centroids} clusters", hint="lower cluster.num_fine")
    rng = np.random.default_rng(seed)
    centroids = rows[np.sort(rng.choice(len(rows), num_centroids, replace=False))].copy()
    cosine = np.zeros(len(rows), np.float32)
    for _ in range(NUM_LOOKS + (num_centroids < LOOKED_AT_AGAIN)):
        labels = _look(rows, centroids, rng)
        sums, weights = _sums(rows, labels, num_centroids)
        for _ in range(num_passes):
            centroids = _recentred(sums, weights, rows, cosine)
            order = np.argsort(labels, kind="stable")
            _neighbour_pass(rows, order, labels, cosine, centroids, _neighbours(centroids))
            sums, weights = _sums(rows, labels, num_centroids)
    filled = weights > 0
    if not filled.all() and len(rows) < 1 << 20 and len(np.unique(rows, axis=0)) < num_centroids:
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


def _look(rows: np.ndarray, centroids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The nearest centroid of each row, for many centroids judged in a few random directions."""
    if len(centroids) < LEAST_FOR_PROJECTION or rows.shape[1] <= D_LOOK:
        return assign(rows, centroids)[0]
    directions = np.linalg.qr(rng.standard_normal((rows.shape[1], D_LOOK)))[0].astype(np.float32)
    near = centroids @ directions
    near /= np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1e-12)
    return assign(rows @ directions, near)[0]


def _neighbours(centroids: np.ndarray) -> np.ndarray:
    """Int32 `[K, M]`, the nearest centroids of each, itself among them."""
    num = len(centroids)
    if num <= NUM_NEIGHBOURS:
        return np.tile(np.arange(num, dtype=np.int32), (num, 1))
    out = np.empty((num, NUM_NEIGHBOURS), np.int32)
    for start in range(0, num, BLOCK):
        score = centroids[start : start + BLOCK] @ centroids.T
        out[start : start + BLOCK] = np.argpartition(score, num - NUM_NEIGHBOURS, axis=1)[:, num - NUM_NEIGHBOURS :]
    return np.sort(out, axis=1)  # ties between centroids then go to the same one everywhere


def _recentred(sums: np.ndarray, weights: np.ndarray, rows: np.ndarray, cosine: np.ndarray) -> np.ndarray:
    """Normalised sums; an empty cluster takes one of the rows that fit worst."""
    out = sums.copy()
    empty = np.flatnonzero(weights == 0)
    if len(empty):
        out[empty] = rows[np.argsort(cosine, kind="stable")[: len(empty)]]
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)


@numba.njit(cache=True, nogil=True)
def _sums(rows, labels, num_centroids):
    sums, sizes = np.zeros((num_centroids, rows.shape[1]), np.float32), np.zeros(num_centroids, np.int64)
    for index in range(len(rows)):
        own = sums[labels[index]]
        for place in range(rows.shape[1]):
            own[place] += rows[index, place]
        sizes[labels[index]] += 1
    return sums, sizes


@numba.njit(cache=True, nogil=True, fastmath=True)
def _neighbour_pass(rows, order, labels, cosine, centroids, neighbours):
    """Move each row to the nearest neighbour of its centroid, in place. Rows of a centroid come together, so it stays in cache."""
    for index in order:
        best, most = labels[index], np.float32(-2)
        for candidate in neighbours[labels[index]]:
            score = np.float32(0)
            for place in range(rows.shape[1]):
                score += rows[index, place] * centroids[candidate, place]
            if score > most:
                best, most = candidate, score
        labels[index], cosine[index] = best, most
