"""Documents as arrays of word hashes, straight from Arrow's buffers: what deduplication and decontamination compare.

A word is a run of letters and digits, ASCII folded to lower case; punctuation and white space only separate. Scripts written
without spaces (Chinese, Japanese, Thai, Lao, Khmer, Myanmar) give one word per character.
"""

# N documents, W words of all documents

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_OFFSET = np.uint64(0xCBF29CE484222325)  # derived: FNV-1a, 64 bits
_PRIME = np.uint64(0x100000001B3)


def word_hashes(texts: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """All words' 64-bit hashes back to back, and where each document's begin (one more entry than documents)."""
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    array = array.cast(pa.large_string())
    if len(array) == 0:
        return np.empty(0, np.uint64), np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(1, np.uint8)
    counts = _scan(content, offsets, np.empty(0, np.uint64), np.empty(0, np.int64))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    hashes = np.empty(int(starts[-1]), np.uint64)
    _scan(content, offsets, hashes, starts)
    return hashes, starts


def ngram_hashes(hashes: NDArray[np.uint64], starts: NDArray[np.int64], n: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all runs of `n` words within a document; a shorter document with any word gives one, of all its words."""
    return _ngrams(hashes, starts, n)


@numba.njit(cache=True, nogil=True)
def _mix(value):
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@numba.njit(cache=True, nogil=True)
def _scan(content, offsets, hashes, starts):
    """Count words per document; with `starts` given also write their hashes."""
    num = len(offsets) - 1
    counts = np.zeros(num, np.int64)
    write = len(starts) > 0
    for document in range(num):
        place, stop, count = offsets[document], offsets[document + 1], 0
        inside, value = False, _OFFSET
        while place < stop:
            byte = content[place]
            width = 1
            letter = False
            alone = False
            if byte < 0x80:
                if 65 <= byte <= 90:
                    byte = np.uint8(byte + 32)
                letter = (97 <= byte <= 122) or (48 <= byte <= 57)
            elif byte >= 0xF0:
                width = 4
                letter = True
                alone = byte == 0xF0 and place + 1 < stop and content[place + 1] >= 0xA0
            elif byte >= 0xE0:
                width = 3
                second = content[place + 1] if place + 1 < stop else np.uint8(0)
                alone = (
                    (0xE3 <= byte <= 0xE9)
                    or (byte == 0xE0 and (0xB8 <= second <= 0xBB))
                    or (byte == 0xE1 and (second <= 0x82 or 0x9E <= second <= 0x9F))
                )
                letter = byte != 0xE2 and not (byte == 0xE3 and second == 0x80) and not (byte == 0xEF and second == 0xBC)
            else:
                width = 2
                letter = byte != 0xC2
            if inside and (alone or not letter):
                if write:
                    hashes[starts[document] + count] = _mix(value)
                count += 1
                inside = False
            if letter:
                if not inside:
                    value = _OFFSET
                for index in range(place, min(place + width, stop)):
                    piece = content[index]
                    if width == 1:
                        piece = byte
                    value = (value ^ np.uint64(piece)) * _PRIME
                inside = True
                if alone:
                    if write:
                        hashes[starts[document] + count] = _mix(value)
                    count += 1
                    inside = False
            place += width
        if inside:
            if write:
                hashes[starts[document] + count] = _mix(value)
            count += 1
        counts[document] = count
    return counts


@numba.njit(cache=True, nogil=True)
def _ngrams(hashes, starts, n):
    num = len(starts) - 1
    out_starts = np.zeros(num + 1, np.int64)
    for document in range(num):
        words = starts[document + 1] - starts[document]
        out_starts[document + 1] = out_starts[document] + (0 if words == 0 else max(1, words - n + 1))
    out = np.empty(out_starts[num], np.uint64)
    for document in range(num):
        first, last = starts[document], starts[document + 1]
        words = last - first
        if words == 0:
            continue
        length = min(n, words)
        for index in range(max(1, words - n + 1)):
            value = np.uint64(length)
            for inner in range(length):
                value = value * np.uint64(0x9E3779B97F4A7C15) + hashes[first + index + inner]
            out[out_starts[document] + index] = _mix(value)
    return out, out_starts
