"""A small regressor distilled from the teacher: ridge on the stored embedding, text statistics and hashed words and word pairs.

Scoring is a sum of looked-up weights over the text, in one pass over its bytes.
"""

# N documents, D embedding dimensions, S statistics, F hashed features, T targets

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.quality.statistics import shares
from forerun.curate.text.spelling import spelling
from forerun.curate.text.words import LETTER, arguments, buffers, mix, room_for, scan_words

NUM_FEATURES = 1 << 18  # assumed: as fastText's usual bucket count of 200,000
HASHED_SCALE = 8.0  # assumed: a word of a 1,000-word text then weighs about as much as one embedding dimension
DAMPING = 1.0  # assumed: ridge strength; chosen once on the bench corpus's held-out half
STATISTIC_SCALE = 0.3  # assumed: statistics are standardised, embeddings have entries near 1/16


@dataclass(frozen=True, eq=False)
class Student:
    """Linear weights; the same bytes give the same scores."""

    dense: np.ndarray
    """float32 `[D + S + 1, T]`, the last row the intercept."""
    hashed: np.ndarray
    """float32 `[F, T]`."""
    centre: np.ndarray
    """float32 `[S]`."""
    spread: np.ndarray
    """float32 `[S]`."""

    @property
    def digest(self) -> str:
        """Of all weights."""
        sha = hashlib.sha256()
        for array in (self.dense, self.hashed, self.centre, self.spread):
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    def predict(self, texts: pa.Array | pa.ChunkedArray, vectors: np.ndarray, statistics: np.ndarray) -> np.ndarray:
        """Raw scores, float32 `[N, T]`."""
        out = np.zeros((len(vectors), self.dense.shape[1]), np.float32)
        _add_dense(_dense(vectors, statistics, self.centre, self.spread), self.dense, out)
        _add_hashed(*buffers(texts), *arguments(spelling("words")), self.hashed, np.float32(HASHED_SCALE), out)
        return out


def fit(texts: pa.Array | pa.ChunkedArray, vectors: np.ndarray, statistics: np.ndarray, targets: np.ndarray) -> Student:
    """The student nearest the targets, float `[N, T]`, in least squares with ridge."""
    from scipy import sparse
    from scipy.sparse.linalg import lsqr

    ratios = shares(statistics)
    centre, spread = ratios.mean(axis=0), np.maximum(ratios.std(axis=0), 1e-6)
    dense = _dense(vectors, statistics, centre, spread)
    columns, rows, values = _features(*buffers(texts), *arguments(spelling("words")), NUM_FEATURES, np.float32(HASHED_SCALE))
    words = sparse.csr_matrix((values, columns, rows), shape=(len(rows) - 1, NUM_FEATURES))
    both = sparse.hstack([sparse.csr_matrix(dense), words]).tocsr()
    mean = targets.mean(axis=0)
    solution = np.stack(
        [lsqr(both, targets[:, index] - mean[index], damp=DAMPING, iter_lim=60)[0] for index in range(targets.shape[1])], axis=1
    )
    weights = solution.astype(np.float32)
    num_dense = dense.shape[1]
    weights[num_dense - 1] += mean
    return Student(weights[:num_dense], np.ascontiguousarray(weights[num_dense:]), centre.astype(np.float32), spread.astype(np.float32))


def _dense(vectors: np.ndarray, statistics: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    standard = np.clip((shares(statistics) - centre) / spread, -4, 4) * STATISTIC_SCALE
    return np.hstack([vectors, standard, np.ones((len(vectors), 1))]).astype(np.float32)


@nb.njit(nogil=True, cache=True)
def _add_dense(rows, weights, out):
    """A matrix product with one order of summation, so that a score does not depend on how many rows are scored together."""
    for document in range(rows.shape[0]):
        for index in range(rows.shape[1]):
            for target in range(weights.shape[1]):
                out[document, target] += rows[document, index] * weights[index, target]


@nb.njit(nogil=True, cache=True)
def _slots_of(words, mask, slots):
    """Features of a document's words and of pairs of neighbours; words without a letter have none. Returns how many."""
    previous, count = np.uint64(0), 0
    for word in words:
        if word & LETTER:
            slots[count] = np.int32((word >> np.uint64(3)) & mask)
            slots[count + 1] = np.int32((mix(word + previous * np.uint64(31)) >> np.uint64(3)) & mask)
            previous = word
            count += 2
    return count


@nb.njit(nogil=True, cache=True)
def _add_hashed(content, offsets, low, wide, folds, punctuated, weights, scale, out):
    mask = np.uint64(weights.shape[0] - 1)
    most = room_for(offsets)
    words, ends, slots = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(2 * most, np.int32)
    for document in range(len(offsets) - 1):
        num = scan_words(content, offsets[document], offsets[document + 1], low, wide, folds, punctuated, words, ends)
        count = _slots_of(words[:num], mask, slots)
        for target in range(weights.shape[1]):
            total = np.float32(0)
            for index in range(count):
                total += weights[slots[index], target]
            if count:
                out[document, target] += scale * total / np.float32(count) ** np.float32(0.5)


@nb.njit(nogil=True, cache=True)
def _features(content, offsets, low, wide, folds, punctuated, num_features, scale):
    """The same features as CSR arrays, for the fit; repeated entries are summed by the matrix."""
    most = room_for(offsets)
    words, ends = np.empty(most, np.uint64), np.empty(most, np.int64)
    room = int(offsets[-1] - offsets[0]) + 2 * len(offsets)
    columns, values = np.empty(room, np.int32), np.empty(room, np.float32)
    rows = np.zeros(len(offsets), np.int64)
    for document in range(len(offsets) - 1):
        begin = rows[document]
        num = scan_words(content, offsets[document], offsets[document + 1], low, wide, folds, punctuated, words, ends)
        count = _slots_of(words[:num], np.uint64(num_features - 1), columns[begin:])
        values[begin : begin + count] = scale / np.float32(max(count, 1)) ** np.float32(0.5)
        rows[document + 1] = begin + count
    return columns[: rows[-1]].copy(), rows, values[: rows[-1]].copy()
