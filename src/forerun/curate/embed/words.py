"""Text as numbered words, over Arrow's string buffers: split, hash and count without making a Python string.

A word is a run of letters (up to 40 bytes), one digit, a run of punctuation (up to 8), one newline, or one character of a
script written without spaces (any character of three or four UTF-8 bytes). Words remember whether a space came before;
further spaces, such as indentation, are a word of their own.
"""

# U words of a call in text order, V distinct words seen so far

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.growing import grown
from forerun.curate.text.words import buffers

LONGEST_WORD = 40  # assumed: longer runs of letters are encoded data; cutting them keeps the word cache bounded
LONGEST_RUN = 8  # assumed: longer rules of marks repeat the word
LONGEST_SPACE = 32  # assumed: deeper indentation repeats the word
SPACE, LETTER, DIGIT, MARK, NEWLINE, WIDE, INNER = range(7)


def _classes() -> np.ndarray:
    table = np.full(256, MARK, np.uint8)
    table[:33] = SPACE
    table[10] = NEWLINE
    table[48:58] = DIGIT
    for first, last in ((65, 91), (97, 123), (0xC2, 0xE0)):
        table[first:last] = LETTER
    table[0x80:0xC0] = INNER  # continues a character
    table[0xE0:0xF8] = WIDE
    return table


CLASSES = _classes()
CHUNKS = np.where(np.isin(CLASSES, (SPACE, NEWLINE, INNER)), CLASSES, LETTER).astype(np.uint8)
"""Whole runs between white space as words, for tokenizers that split them by rules of their own."""
LONGEST_CHUNK = 1024  # assumed: longer runs without white space are data, or pages of an unspaced script that may be cut anywhere


@nb.njit(nogil=True, cache=True)
def mix(value):
    """64 well-mixed bits. Source: splitmix64 finaliser (Steele et al. 2014)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def split(data, offsets, classes, fold, longest=LONGEST_WORD, begins_spaced=True):
    """Words of each document.

    Args:
        fold: ASCII letters are compared without case, and preceding spaces do not count.
        longest: bytes of a word of letters.
        begins_spaced: a document's first word counts as one after a space.
    Returns: hash `[U]` uint64, start `[U]`, length `[U]`, and the first word of each document `[documents + 1]`.
    """
    room = int((offsets[-1] - offsets[0]) // 4) + 1024
    hashes, starts, lengths = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int32)
    first = np.zeros(len(offsets), np.int64)
    count = 0
    for document in range(len(offsets) - 1):
        at, end = offsets[document], offsets[document + 1]
        spaced = begins_spaced
        while at < end:
            kind = classes[data[at]]
            stop = at + 1
            if kind == SPACE:
                spaced = True
                while stop < end and stop - at < LONGEST_SPACE and classes[data[stop]] == SPACE:
                    stop += 1
                if fold or stop == at + 1:
                    at = stop
                    continue
                stop -= 1  # the last space belongs to the next word
            elif kind == LETTER:
                while stop < end and stop - at < longest and (classes[data[stop]] == LETTER or classes[data[stop]] == INNER):
                    stop += 1
                while stop < end and classes[data[stop]] == INNER:
                    stop += 1
            elif kind in (WIDE, INNER):
                while stop < end and classes[data[stop]] == INNER:
                    stop += 1
            elif kind == MARK:
                while stop < end and classes[data[stop]] == MARK and stop - at < LONGEST_RUN:
                    stop += 1
            marked = spaced and not fold and kind != SPACE
            value = np.uint64(0x9E3779B97F4A7C15 if marked else 0xCBF29CE484222325)  # far apart, so a mark never equals a letter
            for index in range(at, stop):
                byte = data[index]
                if fold and 65 <= byte <= 90:
                    byte += 32
                value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
            if count == room:
                room *= 2
                hashes, starts, lengths = grown(hashes, room), grown(starts, room), grown(lengths, room)
            hashes[count], starts[count] = mix(value), at
            lengths[count] = -(stop - at) if marked else stop - at
            count += 1
            at = stop
            if kind == SPACE:
                at += 1
            else:
                spaced = False
        first[document + 1] = count
    return hashes[:count], starts[:count], lengths[:count], first


@nb.njit(nogil=True, cache=True)
def intern(hashes, keys, values, known):
    """Number each word, new ones from `known` on.

    Returns: word id `[U]` int32, position of the first occurrence of each new word, and the grown hash table.
    """
    ids = np.empty(len(hashes), np.int32)
    fresh = np.empty(1024, np.int64)
    count = known
    for index in range(len(hashes)):
        if 2 * count >= len(keys):
            keys, values = _rehashed(keys, values)
        key = hashes[index] | np.uint64(1)  # 0 marks an empty slot
        slot = key & np.uint64(len(keys) - 1)
        while keys[slot] != 0 and keys[slot] != key:
            slot = (slot + np.uint64(1)) & np.uint64(len(keys) - 1)
        if keys[slot] == 0:
            keys[slot], values[slot] = key, count
            if count - known == len(fresh):
                fresh = grown(fresh, 2 * len(fresh))
            fresh[count - known] = index
            count += 1
        ids[index] = values[slot]
    return ids, fresh[: count - known], keys, values


@nb.njit(nogil=True, cache=True)
def _rehashed(keys, values):
    larger, moved = np.zeros(2 * len(keys), keys.dtype), np.empty(2 * len(keys), values.dtype)
    for index in range(len(keys)):
        if keys[index] != 0:
            slot = keys[index] & np.uint64(len(larger) - 1)
            while larger[slot] != 0:
                slot = (slot + np.uint64(1)) & np.uint64(len(larger) - 1)
            larger[slot], moved[slot] = keys[index], values[index]
    return larger, moved


class WordTable:
    """Numbers for the distinct words of a corpus, kept over calls."""

    def __init__(self, *, fold: bool = False, whole: bool = False, begins_spaced: bool = True) -> None:
        self.fold, self.whole, self.begins_spaced = fold, whole, begins_spaced
        self._keys, self._values = np.zeros(1 << 16, np.uint64), np.zeros(1 << 16, np.int32)
        self.num_words = 0

    def number(self, column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, list[bytes], np.ndarray]:
        """Word ids `[U]`, first word of each document, the bytes of the words not seen before, and whether a space precedes each."""
        data, offsets = buffers(column)
        classes, longest = (CHUNKS, LONGEST_CHUNK) if self.whole else (CLASSES, LONGEST_WORD)
        hashes, starts, lengths, first = split(data, offsets, classes, self.fold, longest, self.begins_spaced)
        ids, fresh, self._keys, self._values = intern(hashes, self._keys, self._values, self.num_words)
        self.num_words += len(fresh)
        new: np.ndarray = np.asarray(fresh, np.int64)
        places = zip(np.asarray(starts)[new].tolist(), np.abs(np.asarray(lengths)[new]).tolist())
        return ids, first, [data[start : start + length].tobytes() for start, length in places], np.asarray(lengths)[new] < 0
