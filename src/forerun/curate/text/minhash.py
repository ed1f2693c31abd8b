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
from forerun.curate.text.registers import HIGH, bits_within, letters, store_eight, trailing_zeros, up_to_eight, word_bits
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

    Runs of word bytes come from the edges of bit masks over 64 bytes; a run with bytes beyond ASCII is read character by character.
    """
    count, begin, carry, pending = 0, -1, np.uint64(0), False
    for block in range(first, stop + 1, 64):  # one more block where the last is full: the edge of a run that ends the document
        if block + 64 <= len(content):
            bits = word_bits(content, block, 0)
            blank = bits_within(content, block, 0, 33) | bits_within(content, block, 127, 1)
        else:
            bits, blank = _last_masks(content, block, stop, low)
        if stop - block < 64:
            inside = (np.uint64(1) << np.uint64(stop - block)) - np.uint64(1)
            bits &= inside
            blank &= inside
        edges = bits ^ ((bits << np.uint64(1)) | carry)
        carry = bits >> np.uint64(63)
        while edges:
            lowest = edges & (~edges + np.uint64(1))
            place = block + trailing_zeros(edges)
            edges ^= lowest
            below = blank & (lowest - np.uint64(1))
            blank ^= below
            if begin < 0:
                pending |= below != 0
                begin = place
                continue
            at, high = count + (pending and count > 0), np.uint64(0)
            codes[count] = 32
            for index in range(0, place - begin, 8):  # the last eight may reach beyond the run: what follows writes over it
                eight = up_to_eight(content, begin + index, min(8, place - begin - index))
                high |= eight
                if high & HIGH:  # read anew below; bytes that are no text have no room here
                    break
                store_eight(codes, at + index, eight | (letters(eight) >> np.uint64(2)))
            if high & HIGH:
                count, pending = _mixed_codes(content, begin, place, low, wide, codes, count, pending)
            else:
                count, pending = at + place - begin, False
            begin = -1
        if begin < 0:
            pending |= blank != 0
    return count


@numba.njit(cache=True, nogil=True)
def _last_masks(content, block, stop, low):
    """Word bytes and white space where the buffer ends within 64 bytes."""
    bits, blank = np.uint64(0), np.uint64(0)
    for index in range(block, stop):
        bits |= np.uint64(low[content[index]] > SKIPPED) << np.uint64(index - block)
        blank |= np.uint64(low[content[index]] == SEPARATES) << np.uint64(index - block)
    return bits, blank


@numba.njit(cache=True, nogil=True)
def _mixed_codes(content, at, stop, low, wide, codes, count, pending):
    """The characters of a run without ASCII separators. Returns how many codes there are then, and whether a space is due."""
    while at < stop:
        folded = low[content[at]]
        entry, width = (np.uint32(folded), 1) if folded < DECODED else symbol(content, at, stop, wide)
        at += width
        code = entry & np.uint32(0xFFFFFF)
        if code == SEPARATES:
            pending = True
        elif code != SKIPPED:
            if pending and count:
                codes[count] = 32
                count += 1
            codes[count] = code
            count, pending = count + 1, False
    return count, pending


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
