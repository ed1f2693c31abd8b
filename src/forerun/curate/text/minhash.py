"""Near-duplicate candidates: MinHash signatures, bands, and connected components that always converge (union-find)."""

# N documents, P permutations = bands x rows

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from forerun.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MinHashConfig:
    """When two documents become candidates: with Jaccard s, with probability 1 - (1 - s^rows)^bands."""

    shingle_words: int = 5
    """Words per shingle."""
    bands: int = 14
    rows: int = 8
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("shingle_words", "bands", "rows"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"fuzzy.{name} must be at least 1, got {getattr(self, name)}", hint="14 bands of 8 rows over 5 words is usual"
                )


def signatures(shingles: NDArray[np.uint64], starts: NDArray[np.int64], config: MinHashConfig) -> NDArray[np.uint32]:
    """`[N, P]`: the smallest of each permuted hash over a document's shingles; all ones for a document without any."""
    rng = np.random.default_rng(config.seed)
    num = config.bands * config.rows
    factors = rng.integers(0, 1 << 32, num, np.uint64).astype(np.uint32) | np.uint32(1)
    terms = rng.integers(0, 1 << 32, num, np.uint64).astype(np.uint32)
    return _signatures(shingles, starts, factors, terms)


def components(signature: NDArray[np.uint32], has_text: NDArray[np.bool_], config: MinHashConfig) -> NDArray[np.int64]:
    """Each document's component, named by its smallest member. The order of documents decides only the names."""
    parents = np.arange(len(signature))
    for band in range(config.bands):
        key = _keys(np.ascontiguousarray(signature[:, band * config.rows : (band + 1) * config.rows]))
        order = np.argsort(key, kind="stable")
        order = order[has_text[order]]
        _join(parents, order, key)
    return _roots(parents)


@numba.njit(cache=True, nogil=True)
def _signatures(shingles, starts, factors, terms):
    num, width = len(starts) - 1, len(factors)
    out = np.full((num, width), np.uint32(0xFFFFFFFF), np.uint32)
    for document in range(num):
        row = out[document]
        for index in range(starts[document], starts[document + 1]):
            value = np.uint32(shingles[index] >> np.uint64(32))
            for column in range(width):
                candidate = np.uint32(value * factors[column] + terms[column])
                row[column] = min(row[column], candidate)
    return out


@numba.njit(cache=True, nogil=True)
def _keys(columns):
    keys = np.empty(len(columns), np.uint64)
    for row in range(len(columns)):
        value = np.uint64(0xCBF29CE484222325)
        for column in range(columns.shape[1]):
            value = (value ^ np.uint64(columns[row, column])) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        keys[row] = value
    return keys


@numba.njit(cache=True, nogil=True)
def _find(parents, member):
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member


@numba.njit(cache=True, nogil=True)
def _join(parents, order, keys):
    for place in range(1, len(order)):
        if keys[order[place]] == keys[order[place - 1]]:
            a, b = _find(parents, order[place]), _find(parents, order[place - 1])
            if a != b:
                parents[max(a, b)] = min(a, b)


@numba.njit(cache=True, nogil=True)
def _roots(parents):
    out = np.empty(len(parents), np.int64)
    for member in range(len(parents)):
        out[member] = _find(parents, member)
    return out
