"""Documents as arrays of word hashes, straight from Arrow's buffers: what deduplication, decontamination and scoring compare.

Scripts written without spaces give one word a character, and the characters say how much of a word they are: grams of `n` words
are runs that weigh `n` words, so a gram of 3 words is 6 Chinese or Japanese characters or 12 Thai ones.
"""

# N documents, W words of all documents

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forerun.curate.text.registers import HIGH, letters, trailing_zeros, up_to_eight, word_bits
from forerun.curate.text.spelling import DECODED, SEPARATES, SKIPPED, Spelling, spelling, symbol

UNITS = 4  # units of weight in a spaced word
KINDS = np.array([4, 2, 1, 4], np.int64)  # assumed: words of about 2 Han or kana and 4 Thai characters; entry 3 is never used
KIND, LETTER, TAG = np.uint64(3), np.uint64(4), np.uint64(7)  # of a word hash: its kind of script, whether it holds a letter, both
GRAM_BASE = np.uint64(0x9E3779B97F4A7C15)  # assumed: any odd number spreads sums of mixed words
_SEED = np.uint64(0xCBF29CE484222325)  # assumed: any number that is no word of eight letters


def buffers(texts: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bytes and int64 offsets of a string column; nulls are empty."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    whole = whole.cast(pa.large_string())
    if whole.null_count:
        whole = pc.fill_null(whole, "")
    if not len(whole):
        return np.zeros(1, np.uint8), np.zeros(1, np.int64)
    _, offsets, data = whole.buffers()
    starts = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return (np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)), starts


def word_hashes(texts: pa.Array | pa.ChunkedArray, name: str = "words") -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """All words' 64-bit hashes back to back, and where each document's begin (one more entry than documents)."""
    tables = spelling(name)
    return _all_words(*buffers(texts), *arguments(tables))


def ngram_hashes(hashes: NDArray[np.uint64], starts: NDArray[np.int64], n: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all runs that weigh `n` words within a document; a lighter document with any word gives one, of all its words."""
    return _ngrams(hashes, starts, n)


def arguments(tables: Spelling) -> tuple[NDArray[np.uint8], NDArray[np.uint32], int, int]:
    """A spelling as kernels take it."""
    return tables.low, tables.wide, tables.folds, tables.punctuated


@numba.njit(cache=True, nogil=True)
def mix(value):
    """64 well-mixed bits. Source: MurmurHash3 finaliser (Appleby, public domain)."""
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@numba.njit(cache=True, nogil=True)
def room_for(offsets):
    """Words that the longest document may have: every other byte begins one."""
    longest = 0
    for document in range(len(offsets) - 1):
        longest = max(longest, offsets[document + 1] - offsets[document])
    return longest // 2 + 2


@numba.njit(cache=True, nogil=True)
def scan_words(content, first, stop, low, wide, folds, punctuated, hashes, ends):
    """Write the tagged hashes of a document's words, and the byte after each; returns how many.

    The lowest bits of a hash tell the kind of script and whether the word holds a letter.
    """
    count, start, carry = 0, -1, np.uint64(0)
    for block in range(first, stop + 1, 64):  # one more block where the last is full: the edge of a word that ends the document
        if block + 64 <= len(content):
            bits = word_bits(content, block, punctuated)
        else:
            bits = _last_bits(content, block, stop, low)
        if stop - block < 64:
            bits &= (np.uint64(1) << np.uint64(stop - block)) - np.uint64(1)
        edges = bits ^ ((bits << np.uint64(1)) | carry)
        carry = bits >> np.uint64(63)
        while edges:
            place = block + trailing_zeros(edges)
            edges &= edges - np.uint64(1)
            if start < 0:
                start = place
                continue
            value, of_letters, high = _SEED, np.uint64(0), np.uint64(0)
            for at in range(start, place, 8):  # written out here: a call would cost more than it does
                eight = up_to_eight(content, at, min(8, place - at))
                here = letters(eight)
                of_letters |= here
                high |= eight
                if folds:
                    eight |= here >> np.uint64(2)
                value = mix(value ^ eight)
            if high & HIGH:
                count = _mixed_run(content, start, place, low, wide, hashes, ends, count)
            else:
                hashes[count] = (value & ~TAG) | (LETTER if of_letters else np.uint64(0)) | np.uint64(8)
                ends[count] = place
                count += 1
            start = -1
    return count


@numba.njit(cache=True, nogil=True)
def _last_bits(content, block, stop, low):
    """`word_bits` where the buffer ends within 64 bytes."""
    bits = np.uint64(0)
    for index in range(block, stop):
        bits |= np.uint64(low[content[index]] != SEPARATES) << np.uint64(index - block)
    return bits


@numba.njit(cache=True, nogil=True)
def _mixed_run(content, start, stop, low, wide, hashes, ends, count):
    """Words of a run without ASCII separators, character by character: other scripts, folded characters, separators beyond ASCII."""
    value, packed, filled = _SEED, np.uint64(0), 0  # bytes collected for the next eight
    letter, inside, at = False, False, start
    while at < stop:
        folded = low[content[at]]
        entry, width = (np.uint32(folded), 1) if folded < DECODED else symbol(content, at, stop, wide)
        kind = entry >> np.uint32(24)
        if inside and (entry == SEPARATES or kind):
            if filled:
                value = mix(value ^ packed)
            hashes[count] = (value & ~TAG) | (LETTER if letter else np.uint64(0)) | np.uint64(8)
            ends[count] = at
            count += 1
            value, packed, filled, letter, inside = _SEED, np.uint64(0), 0, False, False
        at += width
        if entry in (SEPARATES, SKIPPED):
            continue
        code = np.uint64(entry & np.uint32(0xFFFFFF))
        if kind:
            hashes[count] = (mix(_SEED ^ code) & ~TAG) | np.uint64(kind) | LETTER | np.uint64(8)
            ends[count] = at
            count += 1
            continue
        inside = True
        letter |= code >= 128 or 97 <= (code | np.uint64(32)) <= 122
        bytes_of = 3 if code >= 128 else 1
        if filled + bytes_of > 8:
            value, packed, filled = mix(value ^ packed), np.uint64(0), 0
        packed |= code << np.uint64(8 * filled)
        filled += bytes_of
        if filled == 8:
            value, packed, filled = mix(value ^ packed), np.uint64(0), 0
    if inside:
        if filled:
            value = mix(value ^ packed)
        hashes[count] = (value & ~TAG) | (LETTER if letter else np.uint64(0)) | np.uint64(8)
        ends[count] = stop
        count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _all_words(content, offsets, low, wide, folds, punctuated):
    num = len(offsets) - 1
    most = room_for(offsets)
    words, ends = np.empty(most, np.uint64), np.empty(most, np.int64)
    room = (offsets[num] - offsets[0]) // 5 + 1024
    hashes, starts = np.empty(room, np.uint64), np.zeros(num + 1, np.int64)
    for document in range(num):
        count = scan_words(content, offsets[document], offsets[document + 1], low, wide, folds, punctuated, words, ends)
        total = starts[document] + count
        if total > room:
            room = 2 * total
            larger = np.empty(room, np.uint64)
            larger[: starts[document]] = hashes[: starts[document]]
            hashes = larger
        hashes[starts[document] : total] = words[:count]
        starts[document + 1] = total
    return hashes[: starts[num]].copy(), starts


@numba.njit(cache=True, nogil=True)
def powers(most):
    """Powers of the base of gram hashes up to `most`."""
    out = np.ones(most + 1, np.uint64)
    for index in range(most):
        out[index + 1] = out[index] * GRAM_BASE
    return out


@numba.njit(cache=True, nogil=True)
def grams_of(words, n, out):
    """Write the hashes of a document's grams, as `ngram_hashes`; returns how many."""
    if len(words) == 0:
        return 0
    kinds = np.uint64(0)
    for index in range(len(words)):
        kinds |= words[index]
    if kinds & KIND or len(words) < n:
        return _uneven_grams(words, n, out)
    whole = len(words) - n + 1
    out[:whole] = 0
    for place in range(n):  # words of one weight: loops that become vector instructions
        for index in range(whole):
            out[index] = out[index] * GRAM_BASE + words[index + place]
    for index in range(whole):
        out[index] = mix(out[index])
    return whole


@numba.njit(cache=True, nogil=True)
def _uneven_grams(words, n, out):
    """The same for words of different weights, or of too little weight for one gram."""
    need = n * UNITS
    power = powers(need)
    value, weight, head, count = np.uint64(0), 0, 0, 0
    for index in range(len(words)):
        value = value * GRAM_BASE + words[index]
        weight += KINDS[words[index] & KIND]
        while weight - KINDS[words[head] & KIND] >= need:
            weight -= KINDS[words[head] & KIND]
            value -= words[head] * power[index - head]
            head += 1
        if weight >= need:
            out[count] = mix(value)
            count += 1
    if count == 0:
        out[0] = mix(value)
        count = 1
    return count


@numba.njit(cache=True, nogil=True)
def _ngrams(hashes, starts, n):
    out, out_starts = np.empty(len(hashes), np.uint64), np.zeros(len(starts), np.int64)
    for document in range(len(starts) - 1):
        begin = out_starts[document]
        out_starts[document + 1] = begin + grams_of(hashes[starts[document] : starts[document + 1]], n, out[begin:])
    return out[: out_starts[-1]].copy(), out_starts
