"""Hashed word counts weighted by rarity and projected on their main directions: the second built-in encoder, no table needed."""

# N documents, F hashed features, D dimensions

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.arrays import write_arrays
from forerun.curate.embed.static import normalized
from forerun.curate.embed.words import CLASSES, split
from forerun.curate.text.words import buffers

if TYPE_CHECKING:
    from scipy import sparse

NUM_FEATURES = 1 << 16  # assumed: collisions among 65,536 features cost nothing measurable on domain purity at 100 MB
OVERSAMPLING = 10  # source: Halko, Martinsson and Tropp 2011, section 4.2
NUM_POWER_ITERATIONS = 2  # same source: two passes are enough for slowly falling spectra


def counts(texts: pa.Array | pa.ChunkedArray) -> sparse.csr_matrix:
    """`1 + log(count)` of each document's hashed words, letters only, case folded; float32 `[N, F]`."""
    from scipy import sparse

    data, offsets = buffers(texts)
    hashes, starts, _, first = split(data, offsets, CLASSES, True)
    columns, values, rows = _counted(hashes, starts, first, data, np.uint64(NUM_FEATURES - 1))
    matrix = sparse.csr_matrix((values, columns, rows), shape=(len(first) - 1, NUM_FEATURES))
    matrix.data = (1 + np.log(matrix.data)).astype(np.float32)
    return matrix


class TfidfEncoder:
    """A fixed linear map of hashed, rarity-weighted words.

    Args:
        rarity: float32 `[F]`, weight of each feature.
        directions: float32 `[F, D]`.
    """

    def __init__(self, rarity: np.ndarray, directions: np.ndarray) -> None:
        self._rarity, self._directions = rarity, directions
        self.num_dimensions = directions.shape[1]

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors, float32 `[N, D]`; zero for a text without a known word."""
        return normalized(np.asarray(_weighted(counts(texts), self._rarity) @ self._directions, np.float32))

    def save(self, path: Path) -> None:
        """Write the map whole or not at all."""
        write_arrays(path, rarity=self._rarity, directions=self._directions)


def fit_tfidf(sample: pa.Array | pa.ChunkedArray, *, num_dimensions: int = 256, seed: int = 0) -> TfidfEncoder:
    """The encoder of a corpus, from a sample of it."""
    matrix = counts(sample)
    weight = rarity(matrix)
    directions = _main_directions(_weighted(matrix, weight), min(num_dimensions, max(1, len(matrix.indptr) - 2)), seed)
    return TfidfEncoder(weight, directions)


def load_tfidf(path: Path) -> TfidfEncoder:
    """Read what `TfidfEncoder.save` wrote."""
    with np.load(path) as arrays:
        return TfidfEncoder(arrays["rarity"], arrays["directions"])


def word_profiles(texts: pa.Array | pa.ChunkedArray) -> sparse.csr_matrix:
    """Unit rows of rarity-weighted words, the rarity taken from the same texts: what a reader sees who knows no vectors."""
    matrix = counts(texts)
    return _weighted(matrix, rarity(matrix))


def rarity(matrix: sparse.csr_matrix) -> np.ndarray:
    """Inverse document frequency of each feature, float32 `[F]`; 0 for a feature of one document, which joins nothing."""
    held_by = np.bincount(matrix.indices, minlength=NUM_FEATURES)  # counts are positive and each column occurs once a row
    weight = np.log(len(matrix.indptr) / (1 + held_by)).astype(np.float32)
    weight[held_by < 2] = 0
    return weight


def _weighted(matrix: sparse.csr_matrix, weight: np.ndarray) -> sparse.csr_matrix:
    out = matrix.copy()
    out.data = out.data * weight[out.indices]
    squares = np.add.reduceat(np.append(out.data**2, 0), np.minimum(out.indptr[:-1], len(out.data)))
    squares[np.diff(out.indptr) == 0] = 0
    out.data /= np.repeat(np.maximum(np.sqrt(squares), 1e-12), np.diff(out.indptr))
    return out


def _main_directions(matrix: sparse.csr_matrix, num: int, seed: int) -> np.ndarray:
    """Right singular vectors by a randomised range finder."""
    rng = np.random.default_rng(seed)
    basis = np.asarray(matrix @ rng.standard_normal((NUM_FEATURES, num + OVERSAMPLING)).astype(np.float32))
    for _ in range(NUM_POWER_ITERATIONS):
        basis = np.linalg.qr(basis)[0]
        basis = np.asarray(matrix @ np.asarray(matrix.T @ basis))
    rows = np.asarray(matrix.T @ np.linalg.qr(basis)[0]).T
    values, vectors = np.linalg.eigh(rows @ rows.T)
    best = np.argsort(-values)[:num]
    return (rows.T @ (vectors[:, best] / np.sqrt(np.maximum(values[best], 1e-12)))).astype(np.float32)


@nb.njit(nogil=True, cache=True)
def _counted(hashes, starts, first, data, mask):
    """Distinct features of each document and how often, as CSR arrays; only words that begin with a letter or a wide character."""
    columns, values = np.empty(len(hashes), np.int32), np.empty(len(hashes), np.float32)
    rows = np.zeros(len(first), np.int64)
    slot_of = np.full(int(mask) + 1, -1, np.int64)
    count = 0
    for document in range(len(first) - 1):
        begin = count
        for index in range(first[document], first[document + 1]):
            byte = data[starts[index]]
            if not (65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 0xC2):
                continue
            feature = int((hashes[index] >> np.uint64(20)) & mask)
            if slot_of[feature] < begin:
                slot_of[feature] = count
                columns[count], values[count] = feature, 1
                count += 1
            else:
                values[slot_of[feature]] += 1
        rows[document + 1] = count
    return columns[:count].copy(), values[:count].copy(), rows
