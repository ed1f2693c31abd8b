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

from forerun.curate.embed.words import CLASSES, LETTER, WIDE, buffers, mix
from forerun.curate.quality.statistics import shares

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
        data, offsets = buffers(texts)
        _add_hashed(data, offsets, CLASSES, self.hashed, np.float32(HASHED_SCALE), out)
        return out


def fit(texts: pa.Array | pa.ChunkedArray, vectors: np.ndarray, statistics: np.ndarray, targets: np.ndarray) -> Student:
    """The student nearest the targets, float `[N, T]`, in least squares with ridge."""
    from scipy import sparse
    from scipy.sparse.linalg import lsqr

    ratios = shares(statistics)
    centre, spread = ratios.mean(axis=0), np.maximum(ratios.std(axis=0), 1e-6)
    dense = _dense(vectors, statistics, centre, spread)
    columns, rows, values = _features(*buffers(texts), CLASSES, NUM_FEATURES, np.float32(HASHED_SCALE))
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
def _add_hashed(data, offsets, classes, weights, scale, out):
    mask = np.uint64(weights.shape[0] - 1)
    for document in range(len(offsets) - 1):
        at, end = offsets[document], offsets[document + 1]
        previous, count = np.uint64(0), 0
        total = np.zeros(weights.shape[1], np.float32)
        while at < end:
            kind = classes[data[at]]
            if kind not in (LETTER, WIDE):
                at += 1
                continue
            value = np.uint64(0xCBF29CE484222325)
            while at < end and (classes[data[at]] == LETTER or data[at] >= 0x80):
                byte = data[at]
                if 65 <= byte <= 90:
                    byte += 32
                value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
                at += 1
            word = mix(value)
            one, two = word & mask, mix(word + previous * np.uint64(31)) & mask
            for target in range(weights.shape[1]):
                total[target] += weights[one, target] + weights[two, target]
            previous, count = word, count + 2
        if count:
            for target in range(weights.shape[1]):
                out[document, target] += scale * total[target] / np.float32(count) ** np.float32(0.5)


@nb.njit(nogil=True, cache=True)
def _features(data, offsets, classes, num_features, scale):
    """The same features as CSR arrays, for the fit; repeated entries are summed by the matrix."""
    mask = np.uint64(num_features - 1)
    room = int(offsets[-1] - offsets[0]) + 2
    columns = np.empty(room, np.int32)
    values = np.empty(room, np.float32)
    rows = np.zeros(len(offsets), np.int64)
    filled = 0
    for document in range(len(offsets) - 1):
        at, end = offsets[document], offsets[document + 1]
        previous, begin = np.uint64(0), filled
        while at < end:
            kind = classes[data[at]]
            if kind not in (LETTER, WIDE):
                at += 1
                continue
            value = np.uint64(0xCBF29CE484222325)
            while at < end and (classes[data[at]] == LETTER or data[at] >= 0x80):
                byte = data[at]
                if 65 <= byte <= 90:
                    byte += 32
                value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
                at += 1
            word = mix(value)
            columns[filled], columns[filled + 1] = word & mask, mix(word + previous * np.uint64(31)) & mask
            previous, filled = word, filled + 2
        values[begin:filled] = scale / np.float32(max(filled - begin, 1)) ** np.float32(0.5)
        rows[document + 1] = filled
    return columns[:filled].copy(), rows, values[:filled].copy()
