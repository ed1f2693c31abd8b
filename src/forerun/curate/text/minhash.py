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
from forerun.curate.text.registers import bits_within, folded, load_eight, word_bits
from forerun.curate.text.spelling import DECODED, SEPARATES, SKIPPED, cut, spelling, symbol
from forerun.curate.text.words import arguments, buffers, grams_of, room_for, scan_words

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

    A document's row depends on its text alone. A text shorter than a shingle is one shingle. Permutations come in pairs of a
    product and its complement: half the work, and no more variance. The two of a pair stand in the two halves of the signature, so
    never in one band: in a document of five shingles the least is not the largest, and a band of pairs would agree too seldom.
    Source: Min-max hash (Ji et al., ICDM 2013).
    """
    random = np.random.default_rng(config.seed).integers(0, 1 << 32, -(-config.num_permutations // 2), np.uint64)
    factors = random.astype(np.uint32) | np.uint32(1)  # of mixed hashes; adding a term as well would change nothing
    content, offsets = buffers(texts)
    tables = spelling(config.shingle)
    if config.shingle == "characters":
        out = _from_characters(content, offsets, tables.low, tables.wide, factors, config.shingle_size, config.max_chars)
    else:
        out = _from_words(content, offsets, *arguments(tables), factors, config.shingle_size, config.max_chars)
    return out[:, : config.num_permutations], (out != EMPTY).any(axis=1)


@numba.njit(cache=True, nogil=True)
def _lower(row, factors, shingles, count):
    """One permutation at a time, so that the loop over shingles becomes vector instructions.

    Each product gives two hashes: its least value, and the least of its complement, which is the complement of its largest.
    """
    half = len(factors)
    for column in range(half):
        factor, least, most = factors[column], row[column], np.uint32(EMPTY - row[half + column])
        for index in range(count):
            value = np.uint32(factor * shingles[index])
            least = min(least, value)
            most = max(most, value)
        row[column], row[half + column] = least, np.uint32(EMPTY - most)


@numba.njit(cache=True, nogil=True)
def _mix32(values, count):
    """32 well-mixed bits each, in place, never 0. Source: MurmurHash3 finaliser (Appleby, public domain)."""
    for index in range(count):
        value = values[index]
        value ^= value >> np.uint32(16)
        value = np.uint32(value * np.uint32(0x85EBCA6B))
        value ^= value >> np.uint32(13)
        value = np.uint32(value * np.uint32(0xC2B2AE35))
        values[index] = (value ^ (value >> np.uint32(16))) | np.uint32(1)


@numba.njit(cache=True, nogil=True)
def _unseen(values, count, recent, slots):
    """Move values that are not among the recent ones to the front; returns how many. Some repeated ones slip through."""
    kept = 0
    for index in range(count):
        value = values[index]
        slot = (value >> np.uint32(1)) & np.uint32(slots - 1)
        values[kept] = value
        kept += recent[slot] != value
        recent[slot] = value
    return kept


@numba.njit(cache=True, nogil=True)
def _slots(length):
    """Slots for a document of `length` shingles at most, a power of two."""
    slots = 64
    while slots < length and slots < RECENT:
        slots *= 2
    return slots


@numba.njit(cache=True, nogil=True)
def _codes(content, first, stop, low, wide, codes):
    """Write a document's folded characters: punctuation dropped, white space between words one space. Returns how many.

    64 ASCII bytes at a time: bit masks say which are kept, then each is written and the place moves on if it was, without a branch.
    """
    at, count = first, 0
    while at < stop:
        if at + 64 > stop or bits_within(content, at, 128, 128):
            at, count = _decoded_codes(content, at, min(at + 64, stop), stop, low, wide, codes, count)
            continue
        words = word_bits(content, at, 0)
        spaces = bits_within(content, at, 0, 33) | bits_within(content, at, 127, 1)
        dropped = ~(words | spaces)
        after = (words << np.uint64(1)) | np.uint64(count > 0 and codes[count - 1] != 32)  # behind a word that is written
        beyond = (dropped + (after & dropped)) & ~dropped  # a carry runs through what is dropped behind a word to the next byte
        kept = words | (spaces & (after | beyond))
        place = np.uint64(count)
        for index in range(0, 64, 8):
            eight, bits = folded(load_eight(content, at + index)), kept >> np.uint64(index)
            for _ in range(8):
                codes[place] = np.uint32(eight & np.uint64(0xFF))
                place += bits & np.uint64(1)
                eight, bits = eight >> np.uint64(8), bits >> np.uint64(1)
        at, count = at + 64, np.int64(place)
    return count - (count > 0 and codes[count - 1] == 32)


@numba.njit(cache=True, nogil=True)
def _decoded_codes(content, at, until, stop, low, wide, codes, count):
    """The characters that begin before `until`, one by one. Returns where they end, and how many codes there are then."""
    while at < until:
        byte = low[content[at]]
        entry, width = (np.uint32(byte), 1) if byte < DECODED else symbol(content, at, stop, wide)
        at += width
        code = entry & np.uint32(0xFFFFFF)
        if code == SEPARATES:
            codes[count] = 32
            count += count > 0 and codes[count - 1] != 32
        elif code != SKIPPED:
            codes[count] = code
            count += 1
    return at, count


@numba.njit(cache=True, nogil=True)
def _from_characters(content, offsets, low, wide, factors, size, max_chars):
    num = len(offsets) - 1
    out = np.full((num, 2 * len(factors)), EMPTY, np.uint32)
    most = min(2 * room_for(offsets), 4 * max_chars)
    codes, shingles, recent = np.empty(most + 64, np.uint32), np.empty(BLOCK, np.uint32), np.empty(RECENT, np.uint32)
    base = np.uint32(0x9E3779B1)  # assumed: any odd number; what it leaves regular is mixed afterwards
    for document in range(num):
        first = offsets[document]
        stop = cut(content, first, offsets[document + 1], max_chars)
        total = _codes(content, first, stop, low, wide, codes)
        slots = _slots(stop - first)
        recent[:slots] = 0
        width = min(size, total)  # a text shorter than a shingle is one shingle
        for begin in range(0, min(total, total - width + 1), BLOCK):
            count = min(BLOCK, total - width + 1 - begin)
            window = codes[begin : begin + count + width]  # indices without an offset, so that the loop becomes vector instructions
            shingles[:count] = 0
            for place in range(width):
                for index in range(count):
                    shingles[index] = np.uint32(shingles[index] * base + window[index + place])
            _mix32(shingles, count)
            _lower(out[document], factors, shingles, _unseen(shingles, count, recent, slots))
    return out


@numba.njit(cache=True, nogil=True)
def _from_words(content, offsets, low, wide, folds, punctuated, factors, size, max_chars):
    num = len(offsets) - 1
    out = np.full((num, 2 * len(factors)), EMPTY, np.uint32)
    most = room_for(offsets)
    words, ends, grams = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.uint64)
    shingles, recent = np.empty(BLOCK, np.uint32), np.empty(RECENT, np.uint32)
    for document in range(num):
        first = offsets[document]
        stop = cut(content, first, offsets[document + 1], max_chars)
        total = scan_words(content, first, stop, low, wide, folds, punctuated, words, ends)
        total = grams_of(words[:total], size, grams)
        slots = _slots(total)
        recent[:slots] = 0
        for begin in range(0, total, BLOCK):
            count = min(BLOCK, total - begin)
            for index in range(count):
                shingles[index] = np.uint32(grams[begin + index] >> np.uint64(32)) | np.uint32(1)
            _lower(out[document], factors, shingles, _unseen(shingles, count, recent, slots))
    return out
