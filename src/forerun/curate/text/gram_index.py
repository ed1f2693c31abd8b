"""An index of evaluation items by their word grams, and one pass over documents that finds every occurrence.

Long items are known by each of their grams. An item lighter than a gram is known as a whole: by its last few words, and where
those occur the words before them are compared too.
"""

# I items, G grams of long items, S short items, H hits

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.curate.growing import grown
from forerun.curate.text.spelling import spelling
from forerun.curate.text.words import (
    GRAM_BASE,
    KIND,
    KINDS,
    LETTER,
    UNITS,
    arguments,
    buffers,
    grams_of,
    mix,
    room_for,
    scan_words,
    word_hashes,
)

LEAST_DISTINCT = 4  # assumed: a gram of fewer different words is a rule, a run of numbers or a refrain, and says nothing about an item
FILTER_BITS = 16  # assumed: bits per gram of the filter before the table; about 1 in 16 words passes it by chance


@dataclass(frozen=True, eq=False)
class GramIndex:
    """Arrays only, so that workers can share or copy it."""

    match: str
    """Spelling of both sides."""
    gram_words: int
    least_words: int
    entry_item: NDArray[np.int32]
    """`[pairs]`, the item of each (entry, item) pair, ordered by entry; entries are G grams, then S short items."""
    entry_starts: NDArray[np.int64]
    """`[G + S + 1]`, where each entry's pairs begin."""
    num_grams: int
    item_grams: NDArray[np.int64]
    """`[I]`, distinct grams of each item; 1 for a short item, 0 for one too short to search for."""
    gram_table: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint64]]
    """Keys, entries and filter bits of grams."""
    last_table: tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint64]]
    """The same of the last words of short items; the entry is the first in `short_of_last` to try."""
    short_words: NDArray[np.int32]
    """`[S]`, words of each short item, ordered by their last words."""
    short_hash: NDArray[np.uint64]
    """`[S]`, hash of all its words."""
    short_last: NDArray[np.uint64]
    """`[S]`, hash of its last words."""

    def items_of(self, entry: int) -> NDArray[np.int32]:
        """Items that hold an entry."""
        return self.entry_item[int(self.entry_starts[entry]) : int(self.entry_starts[entry + 1])]


@dataclass(frozen=True, eq=False)
class Hits:
    """Every occurrence, by document; those of grams first."""

    document: NDArray[np.int64]
    """`[H]`"""
    entry: NDArray[np.int64]
    """`[H]`"""
    end: NDArray[np.int64]
    """`[H]`, byte of the document after its last word."""
    num_grams: NDArray[np.int64]
    """Grams of each document that could have been hit."""


def build_index(texts: pa.Array | pa.ChunkedArray, *, match: str, gram_words: int, least_words: int) -> GramIndex:
    """Index items by grams of `gram_words`; items lighter than `least_words` cannot be searched for."""
    words, starts = word_hashes(texts, match)
    grams, gram_item, short_item, short_hash, short_last, short_words = _entries(words, starts, gram_words, least_words)
    order = np.lexsort((gram_item, grams))
    grams, gram_item = grams[order], gram_item[order]
    again = np.concatenate([[False], (np.diff(grams) == 0) & (np.diff(gram_item) == 0)]) if len(grams) else np.zeros(0, bool)
    grams, gram_item = grams[~again], gram_item[~again]
    first = np.flatnonzero(np.concatenate([[True], np.diff(grams) != 0])) if len(grams) else np.zeros(0, np.int64)
    by_last = np.lexsort((short_item, short_hash, short_last))
    item_grams = np.bincount(gram_item, minlength=len(starts) - 1)
    item_grams[short_item] = 1
    last = short_last[by_last]
    last_first = np.flatnonzero(np.concatenate([[True], np.diff(last) != 0])) if len(last) else np.zeros(0, np.int64)
    return GramIndex(
        match=match,
        gram_words=gram_words,
        least_words=least_words,
        entry_item=np.concatenate([gram_item, short_item[by_last]]).astype(np.int32),
        entry_starts=np.concatenate([first, len(grams) + np.arange(len(by_last) + 1)]).astype(np.int64),
        num_grams=len(first),
        item_grams=item_grams,
        gram_table=_table(grams[first], np.arange(len(first), dtype=np.int32)),
        last_table=_table(last[last_first], last_first.astype(np.int32)),
        short_words=short_words[by_last],
        short_hash=short_hash[by_last],
        short_last=last,
    )


def scan(texts: pa.Array | pa.ChunkedArray, index: GramIndex) -> Hits:
    """All occurrences of the index's grams and short items in some documents."""
    document, entry, end, num_grams = _scan(
        *buffers(texts),
        *arguments(spelling(index.match)),
        index.gram_words,
        index.least_words,
        *index.gram_table,
        *index.last_table,
        index.short_words,
        index.short_hash,
        index.short_last,
        index.num_grams,
    )
    return Hits(*(np.asarray(array, np.int64) for array in (document, entry, end, num_grams)))


def _table(keys: NDArray[np.uint64], entries: NDArray[np.int32]) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint64]]:
    slots = 1 << max(6, int(2 * len(keys)).bit_length())
    bits = 1 << max(12, int(FILTER_BITS * len(keys)).bit_length())
    return _filled(keys, entries, slots, bits)


@numba.njit(cache=True, nogil=True)
def _filled(keys, entries, slots, bits):
    table, values, passed = np.zeros(slots, np.uint64), np.zeros(slots, np.int32), np.zeros(bits // 64, np.uint64)
    for index in range(len(keys)):
        key = keys[index]
        slot = key & np.uint64(slots - 1)
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & np.uint64(slots - 1)
        table[slot], values[slot] = key, entries[index]
        bit = (key >> np.uint64(32)) & np.uint64(bits - 1)
        passed[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    return table, values, passed


@numba.njit(cache=True, nogil=True)
def _look_up(key, table, values):
    """The entry of a key, or -1."""
    slot = key & np.uint64(len(table) - 1)
    while table[slot] != 0:
        if table[slot] == key:
            return values[slot]
        slot = (slot + np.uint64(1)) & np.uint64(len(table) - 1)
    return np.int32(-1)


@numba.njit(cache=True, nogil=True)
def _distinct_enough(words, least_words):
    """Whether some words hold enough different ones."""
    enough = min(LEAST_DISTINCT, least_words)
    different = 0
    for index in range(len(words)):
        fresh = True
        for earlier in range(index):
            fresh &= words[earlier] != words[index]
        different += fresh
        if different == enough:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _hash_of(words):
    value = np.uint64(0)
    for word in words:
        value = value * GRAM_BASE + word
    return mix(value) | np.uint64(1)  # 0 marks a free slot


@numba.njit(cache=True, nogil=True)
def _entries(words, starts, gram_words, least_words):
    """Grams of long items, and last words and whole hash of short ones."""
    grams, gram_item = np.empty(len(words), np.uint64), np.empty(len(words), np.int64)
    num = len(starts) - 1
    short_item, short_words = np.empty(num, np.int64), np.empty(num, np.int32)
    short_hash, short_last = np.empty(num, np.uint64), np.empty(num, np.uint64)
    count, shorts = 0, 0
    for item in range(num):
        first, last = starts[item], starts[item + 1]
        weight, letters = 0, 0
        head, head_weight = first, 0  # the grams' first word
        tail, tail_weight = first, 0  # the last few words' first
        for index in range(first, last):
            units = KINDS[words[index] & KIND]
            weight += units
            head_weight += units
            tail_weight += units
            letters += (words[index] & LETTER) != 0
            while head_weight - KINDS[words[head] & KIND] >= gram_words * UNITS:
                head_weight -= KINDS[words[head] & KIND]
                letters -= (words[head] & LETTER) != 0
                head += 1
            while tail_weight - KINDS[words[tail] & KIND] >= least_words * UNITS:
                tail_weight -= KINDS[words[tail] & KIND]
                tail += 1
            if head_weight >= gram_words * UNITS and letters and _distinct_enough(words[head : index + 1], least_words):
                grams[count], gram_item[count] = _hash_of(words[head : index + 1]), item
                count += 1
        if least_words * UNITS <= weight < gram_words * UNITS and letters and _distinct_enough(words[first:last], least_words):
            short_item[shorts], short_words[shorts] = item, last - first
            short_hash[shorts], short_last[shorts] = _hash_of(words[first:last]), _hash_of(words[tail:last])
            shorts += 1
    return (
        grams[:count].copy(),
        gram_item[:count].copy(),
        short_item[:shorts],
        short_hash[:shorts],
        short_last[:shorts],
        short_words[:shorts],
    )


@numba.njit(cache=True, nogil=True)
def _scan(
    content, offsets, low, wide, folds, punctuated, gram_words, least_words, keys, entries, passed, last_keys, last_entries, last_passed, short_words, short_hash, short_last, num_grams
):  # fmt: skip
    room = 1024
    document_of, entry_of, end_of = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    totals = np.zeros(len(offsets) - 1, np.int64)
    most = room_for(offsets)
    words, ends, grams = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.uint64)
    bits = np.uint64(64 * len(passed) - 1)
    last_bits = np.uint64(64 * len(last_passed) - 1)
    hits = 0
    for document in range(len(offsets) - 1):
        begin = offsets[document]
        num = scan_words(content, begin, offsets[document + 1], low, wide, folds, punctuated, words, ends)
        weight = 0
        for index in range(num):
            weight += KINDS[words[index] & KIND]
        if weight >= gram_words * UNITS:
            count = grams_of(words[:num], gram_words, grams)
            totals[document] = count
            for gram in range(count):
                key = grams[gram] | np.uint64(1)
                bit = (key >> np.uint64(32)) & bits
                if not (passed[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                    continue
                entry = _look_up(key, keys, entries)
                if entry < 0:
                    continue
                if hits == room:
                    room *= 2
                    document_of, entry_of, end_of = grown(document_of, room), grown(entry_of, room), grown(end_of, room)
                document_of[hits], entry_of[hits], end_of[hits] = document, entry, ends[num - count + gram] - begin
                hits += 1
        if weight >= least_words * UNITS and len(short_words):
            count = grams_of(words[:num], least_words, grams)
            for gram in range(count):
                key = grams[gram] | np.uint64(1)
                bit = (key >> np.uint64(32)) & last_bits
                if not (last_passed[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                    continue
                short = np.int64(_look_up(key, last_keys, last_entries))
                last = num - count + gram + 1
                while 0 <= short < len(short_last) and short_last[short] == key:
                    length = np.int64(short_words[short])
                    if length <= last and _hash_of(words[last - length : last]) == short_hash[short]:
                        if hits == room:
                            room *= 2
                            document_of, entry_of, end_of = grown(document_of, room), grown(entry_of, room), grown(end_of, room)
                        document_of[hits], entry_of[hits], end_of[hits] = document, num_grams + short, ends[last - 1] - begin
                        hits += 1
                    short += 1
    return document_of[:hits].copy(), entry_of[:hits].copy(), end_of[:hits].copy(), totals
