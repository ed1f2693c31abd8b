"""MinHash signatures of documents, in one pass over their bytes: shingles are hashed, repeated ones skipped, the rest permuted."""

# N documents, P permutations = bands x rows, M shingles of a block

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.base.errors import ConfigError
from forerun.curate.text.words import (
    DECODED,
    GRAM_BASE,
    KIND,
    KINDS,
    SEPARATES,
    SKIPPED,
    UNITS,
    buffers,
    cut,
    mix,
    next_word,
    powers,
    spelling,
)
from forerun.curate.text.words import symbol as symbol_at

BLOCK = 4096  # assumed: shingles permuted at once; with their hashes they stay in the first-level cache
RECENT = 8192  # assumed: slots that remember shingles of the document already taken; 32 KiB, the first-level cache
EMPTY = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, kw_only=True)
class MinHashConfig:
    """When two documents become candidates: with Jaccard s, with probability 1 - (1 - s^rows)^bands."""

    shingle: Literal["characters", "words"] = "characters"
    """What a shingle is a run of. Characters: lower case, punctuation dropped, white space collapsed."""
    shingle_size: int = 5
    """Characters or words per shingle."""
    bands: int = 26
    """Groups of hashes; documents that agree in one whole group become candidates."""
    rows: int = 11
    """Hashes in a group."""
    seed: int = 42
    """Of the permutations."""
    max_chars: int = 500_000
    """Text after it is not shingled: a document of millions of characters holds every shingle and would glue strangers together.
    Verification reads the whole text."""

    def __post_init__(self) -> None:
        for name in ("bands", "rows", "max_chars"):
            if getattr(self, name) < 1:
                raise ConfigError(f"fuzzy.{name} must be at least 1, got {getattr(self, name)}", hint="26 bands of 11 rows is usual")
        least, most = (2, 8) if self.shingle == "characters" else (1, 32)
        if not least <= self.shingle_size <= most:
            raise ConfigError(
                f"fuzzy.shingle_size must lie in {least}..{most} for fuzzy.shingle={self.shingle!r}, got {self.shingle_size}",
                hint="5 is usual",
            )

    @property
    def num_permutations(self) -> int:
        """Hashes of a signature."""
        return self.bands * self.rows


PRESETS = {
    "marin": MinHashConfig(),  # source: Marin's datakit, 286 permutations, character 5-grams
    "fineweb": MinHashConfig(shingle="words", bands=14, rows=8),  # source: FineWeb (arXiv:2406.17557), word 5-grams
}


def signatures(texts: pa.Array | pa.ChunkedArray, config: MinHashConfig) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """`[N, P]`, the smallest of each permuted hash over a document's shingles; and which documents have any shingle.

    A document's row depends on its text alone. A text shorter than a shingle is one shingle.
    """
    rng = np.random.default_rng(config.seed)
    factors = rng.integers(0, 1 << 32, config.num_permutations, np.uint64).astype(np.uint32) | np.uint32(1)
    terms = rng.integers(0, 1 << 32, config.num_permutations, np.uint64).astype(np.uint32)
    content, offsets = buffers(texts)
    tables = spelling(config.shingle)
    kernel = _from_characters if config.shingle == "characters" else _from_words
    out = kernel(content, offsets, tables.low, tables.wide, tables.rules, factors, terms, config.shingle_size, config.max_chars)
    return out, (out != EMPTY).any(axis=1)


@numba.njit(cache=True, nogil=True)
def _lower(row, factors, terms, shingles, count):
    """One permutation at a time, so that the loop over shingles becomes vector instructions."""
    for column in range(len(row)):
        factor, term, least = factors[column], terms[column], row[column]
        for index in range(count):
            least = min(least, np.uint32(factor * shingles[index] + term))
        row[column] = least


@numba.njit(cache=True, nogil=True)
def _slots(length):
    """Slots for a document of `length` shingles at most, a power of two."""
    slots = 64
    while slots < length and slots < RECENT:
        slots *= 2
    return slots


@numba.njit(cache=True, nogil=True)
def _from_characters(content, offsets, low, wide, rules, factors, terms, size, max_chars):
    num = len(offsets) - 1
    out = np.full((num, len(factors)), EMPTY, np.uint32)
    shingles, recent = np.empty(BLOCK, np.uint32), np.zeros(RECENT, np.uint32)
    bits = np.uint64((64 + size - 1) // size)  # the oldest character falls off the upper end of 64 bits by itself
    mask = (np.uint64(1) << bits) - np.uint64(1)
    for document in range(num):
        at = offsets[document]
        stop = cut(content, at, offsets[document + 1], max_chars)
        slots = _slots(stop - at)
        recent[:slots] = 0
        window, filled, count, space = np.uint64(0), 0, 0, False
        while at < stop:
            folded = low[content[at]]
            if folded < DECODED:
                at += 1
                code = np.uint64(folded)
            else:
                entry, width = symbol_at(content, at, stop, wide)
                at += width
                code = np.uint64(entry & np.uint32(0xFFFFFF))
            if code == SKIPPED:
                continue
            if code == SEPARATES:
                space = filled > 0
                continue
            for _ in range(1 + space):
                if space:
                    piece, space = np.uint64(32), False
                elif code < 128:
                    piece = code
                else:
                    piece = (code * np.uint64(0x9E3779B1)) >> np.uint64(7) & mask
                window = (window << bits) | piece
                filled += 1
                if filled < size:
                    continue
                value = np.uint32(mix(window) >> np.uint64(32)) | np.uint32(1)  # 0 marks a free slot
                slot = (value >> np.uint32(1)) & np.uint32(slots - 1)
                shingles[count] = value
                count += recent[slot] != value
                recent[slot] = value
                if count == BLOCK:
                    _lower(out[document], factors, terms, shingles, count)
                    count = 0
        if 0 < filled < size:
            shingles[0] = np.uint32(mix(window) >> np.uint64(32))
            count = 1
        _lower(out[document], factors, terms, shingles, count)
    return out


@numba.njit(cache=True, nogil=True)
def _from_words(content, offsets, low, wide, rules, factors, terms, size, max_chars):
    num, need = len(offsets) - 1, size * UNITS
    out = np.full((num, len(factors)), EMPTY, np.uint32)
    shingles = np.empty(BLOCK, np.uint32)
    ring, ring_mask = np.zeros(128, np.uint64), 127  # words of the window; at most 32 x 4 of them
    power = powers(need)
    for document in range(num):
        at = offsets[document]
        stop = cut(content, at, offsets[document + 1], max_chars)
        value, weight, head, index, count = np.uint64(0), 0, 0, 0, 0
        while True:
            word, at = next_word(content, at, stop, low, wide, rules)
            if word == 0:
                break
            value = value * GRAM_BASE + word
            weight += KINDS[word & KIND]
            ring[index & ring_mask] = word
            while weight - KINDS[ring[head & ring_mask] & KIND] >= need:
                oldest = ring[head & ring_mask]
                weight -= KINDS[oldest & KIND]
                value -= oldest * power[index - head]
                head += 1
            index += 1
            if weight >= need:
                shingles[count] = np.uint32(mix(value) >> np.uint64(32))
                count += 1
                if count == BLOCK:
                    _lower(out[document], factors, terms, shingles, count)
                    count = 0
        if index > 0 and weight < need:
            shingles[0] = np.uint32(mix(value) >> np.uint64(32))
            count = 1
        _lower(out[document], factors, terms, shingles, count)
    return out
