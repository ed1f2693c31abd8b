"""Documents as arrays of word hashes, straight from Arrow's buffers: what deduplication, decontamination and scoring compare.

One scanner, several spellings of a text, each a pair of tables:

- `words`: a word is a run of letters and digits; case, accents and full-width forms are folded; everything else separates.
- `tokens`: white space separates, punctuation is part of a token, case is folded. What a strict comparison of contents sees.
- `as_written`: white space separates, nothing is folded.

Scripts written without spaces give one word a character, and the characters say how much of a word they are: grams of `n` words
are runs that weigh `n` words, so a gram of 3 words is 6 Chinese or Japanese characters or 12 Thai ones.
"""

# N documents, W words of all documents

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forerun.curate.text.eight_bytes import HIGH, between, first_clear, first_of, letters, load, trailing_zeros

SEPARATES, SKIPPED, DECODED = 0, 1, 0x80
UNITS = 4  # units of weight in a spaced word; a Han or kana character weighs 2, a character of Thai and its neighbours 1
KINDS = np.array([4, 2, 1, 4], np.int64)  # assumed: words of about 2 Han or kana and 4 Thai characters; entry 3 is never used
KIND, LETTER, TAG = np.uint64(3), np.uint64(4), np.uint64(7)  # of a word hash: its kind, whether it holds a letter, both
_HALVES = ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x30FF), (0x3105, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x4DBF), (0x4E00, 0x9FFF),
           (0xA000, 0xA48F), (0xF900, 0xFAFF), (0xFF66, 0xFF9F))  # fmt: skip  # source: Unicode blocks of Han, kana, bopomofo, Yi
_QUARTERS = ((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF),
             (0xAA60, 0xAADF))  # fmt: skip  # source: Unicode blocks of Thai, Lao, Tibetan, Myanmar, Khmer, Tai scripts
_SEED = np.uint64(0xCBF29CE484222325)  # assumed: any number that is no word of eight letters
GRAM_BASE = np.uint64(0x9E3779B97F4A7C15)  # assumed: any odd number spreads sums of mixed words


@dataclass(frozen=True, eq=False)
class Spelling:
    """How bytes are read."""

    low: NDArray[np.uint8]
    """`[256]`: 0 separates, 1 is skipped, 128 begins a longer character, else the folded ASCII byte."""
    wide: NDArray[np.uint32]
    """`[65536]` by code point: 0 and 1 as above, else the folded code point, and the kind of script from bit 24 on."""
    rules: int
    """What the tables say of ASCII, for eight bytes at once: 1 when letters are folded, 2 when punctuation is part of words."""


@cache
def spelling(name: str) -> Spelling:
    """Tables of `words`, `tokens`, `as_written` or `characters` (as `words`, but punctuation is skipped instead of separating)."""
    wide = np.array([_entry(code, name) for code in range(0x10000)], np.uint32)
    low = np.full(256, DECODED, np.uint8)
    low[:128] = wide[:128]
    return Spelling(low, wide, {"words": 1, "tokens": 3, "as_written": 2}.get(name, 0))


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
    return _all_words(*buffers(texts), tables.low, tables.wide, tables.rules)


def ngram_hashes(hashes: NDArray[np.uint64], starts: NDArray[np.int64], n: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all runs that weigh `n` words within a document; a lighter document with any word gives one, of all its words."""
    return _ngrams(hashes, starts, n)


def _entry(code: int, name: str) -> int:
    char = chr(code)
    if char.isspace() or code < 33 or code == 127:
        return SEPARATES
    if code < 128:
        if char.isalnum():
            return code if name == "as_written" else ord(char.lower())
        return {"words": SEPARATES, "characters": SKIPPED}.get(name, code)
    category = unicodedata.category(char)
    if name in ("words", "characters") and (0x300 <= code < 0x370 or category == "Cf"):
        return SKIPPED  # accents on their own, soft hyphens, zero-width marks
    if 0xD800 <= code < 0xE000:
        return SEPARATES
    kind = 1 if _within(code, _HALVES) else 2 if _within(code, _QUARTERS) else 0
    if category[0] in "PSZC" and category not in ("Cn", "Co"):
        if name in ("words", "characters"):
            return SEPARATES if name == "words" else SKIPPED
        return code | kind << 24
    if name == "as_written":
        return code | kind << 24
    form = "NFC" if name == "tokens" else "NFKD" if kind == 0 and code < 0x2000 else "NFKC"
    folded = unicodedata.normalize(form, char).lower()
    return (ord(folded[0]) if folded and ord(folded[0]) < 0x10000 else code) | kind << 24


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


@numba.njit(cache=True, nogil=True)
def mix(value):
    """64 well-mixed bits. Source: MurmurHash3 finaliser (Appleby, public domain)."""
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xFF51AFD7ED558CCD)
    value ^= value >> np.uint64(33)
    value *= np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@numba.njit(cache=True, nogil=True)
def symbol(content, at, stop, wide):
    """Table entry of the character of several bytes at `at`, and its width in bytes."""
    byte = np.uint32(content[at])
    if byte >= 0xF0:
        code = (byte & np.uint32(7)) << np.uint32(18)
        for index in range(1, 4):
            if at + index < stop:
                code |= (np.uint32(content[at + index]) & np.uint32(63)) << np.uint32(18 - 6 * index)
        if code >= 0x20000:
            return code | np.uint32(1 << 24), 4  # Han beyond the first plane
        return (np.uint32(SEPARATES) if 0x1F000 <= code < 0x20000 else code), 4  # pictures separate
    if byte >= 0xE0:
        code = (byte & np.uint32(15)) << np.uint32(12)
        if at + 2 < stop:
            code |= (np.uint32(content[at + 1]) & np.uint32(63)) << np.uint32(6) | (np.uint32(content[at + 2]) & np.uint32(63))
        return wide[code], 3
    if byte >= 0xC0 and at + 1 < stop:
        return wide[(byte & np.uint32(31)) << np.uint32(6) | (np.uint32(content[at + 1]) & np.uint32(63))], 2
    return np.uint32(SKIPPED), 1


@numba.njit(cache=True, nogil=True)
def next_word(content, at, stop, low, wide, rules):
    """The tagged hash of the next word from `at` on, and where to go on; 0 when there is none.

    The lowest bits of a hash tell the kind of script and whether the word holds a letter. Bytes are hashed by eights from the
    word's beginning: at once where they are ASCII, collected one by one where not.
    """
    value, letter, kind = _SEED, False, np.uint32(0)
    packed, count = np.uint64(0), 0  # folded bytes not hashed yet
    inside = False
    while at < stop:
        if count == 0 and stop - at >= 8:
            eight = load(content, at)
            if eight & HIGH == 0:
                of_letters = letters(eight)
                mask = between(eight, 33, 126) if rules & 2 else of_letters | between(eight, 48, 57)
                run = first_clear(mask)
                if not inside and run == 0:
                    skipped = trailing_zeros(mask) >> 3
                    at += skipped
                    if skipped == 8:
                        continue
                    eight >>= np.uint64(8 * skipped)
                    of_letters >>= np.uint64(8 * skipped)
                    run = first_clear(mask >> np.uint64(8 * skipped))
                    if run == 8 - skipped:  # may go on: load from its beginning
                        continue
                if run:
                    folded = eight | (of_letters >> np.uint64(2)) if rules & 1 else eight
                    value = mix(value ^ first_of(folded, run))
                    letter |= first_of(of_letters, run) != 0
                    inside = True
                    at += run
                if run < 8:
                    break
                continue
        folded = low[content[at]]
        if folded < DECODED:
            if folded == SEPARATES:
                if inside:
                    break
                at += 1
                continue
            at += 1
            if folded == SKIPPED:
                continue
            packed |= np.uint64(folded) << np.uint64(8 * count)
            count += 1
            letter |= 97 <= (folded | 32) <= 122
            inside = True
        else:
            entry, width = symbol(content, at, stop, wide)
            if entry == SEPARATES:
                if inside:
                    break
                at += width
                continue
            if entry == SKIPPED:
                at += width
                continue
            kind = entry >> np.uint32(24)
            code = np.uint64(entry & np.uint32(0xFFFFFF))
            if kind:
                if inside:
                    kind = np.uint32(0)
                    break
                return (mix(_SEED ^ code) & ~TAG) | np.uint64(kind) | LETTER | np.uint64(8), at + width
            at += width
            inside, letter = True, True
            if code >= 128:
                if count > 5:
                    value, packed, count = mix(value ^ packed), np.uint64(0), 0
                packed |= code << np.uint64(8 * count)
                count += 3
            else:
                packed |= code << np.uint64(8 * count)
                count += 1
        if count == 8:
            value, packed, count = mix(value ^ packed), np.uint64(0), 0
    if not inside:
        return np.uint64(0), at
    if count:
        value = mix(value ^ packed)
    return (value & ~TAG) | (LETTER if letter else np.uint64(0)) | np.uint64(8), at


@numba.njit(cache=True, nogil=True)
def cut(content, first, stop, max_chars):
    """Where the first `max_chars` characters of a document end."""
    if stop - first <= max_chars:
        return stop
    chars = 0
    for at in range(first, stop):
        chars += (content[at] & 0xC0) != 0x80
        if chars > max_chars:
            return at
    return stop


@numba.njit(cache=True, nogil=True)
def _all_words(content, offsets, low, wide, rules):
    num = len(offsets) - 1
    room = (offsets[num] - offsets[0]) // 5 + 1024
    hashes, starts = np.empty(room, np.uint64), np.zeros(num + 1, np.int64)
    count = 0
    for document in range(num):
        at, stop = offsets[document], offsets[document + 1]
        while True:
            value, at = next_word(content, at, stop, low, wide, rules)
            if value == 0:
                break
            if count == room:
                room *= 2
                larger = np.empty(room, np.uint64)
                larger[:count] = hashes
                hashes = larger
            hashes[count] = value
            count += 1
        starts[document + 1] = count
    return hashes[:count].copy(), starts


@numba.njit(cache=True, nogil=True)
def powers(most):
    """Powers of the base of gram hashes up to `most`."""
    out = np.ones(most + 1, np.uint64)
    for index in range(most):
        out[index + 1] = out[index] * GRAM_BASE
    return out


@numba.njit(cache=True, nogil=True)
def _ngrams(hashes, starts, n):
    num, need = len(starts) - 1, n * UNITS
    power = powers(need)
    out, out_starts = np.empty(len(hashes), np.uint64), np.zeros(num + 1, np.int64)
    count = 0
    for document in range(num):
        first, last = starts[document], starts[document + 1]
        value, weight, head = np.uint64(0), 0, first
        before = count
        for index in range(first, last):
            value = value * GRAM_BASE + hashes[index]
            weight += KINDS[hashes[index] & KIND]
            while weight - KINDS[hashes[head] & KIND] >= need:
                weight -= KINDS[hashes[head] & KIND]
                value -= hashes[head] * power[index - head]
                head += 1
            if weight >= need:
                out[count] = mix(value)
                count += 1
        if count == before and last > first:
            out[count] = mix(value)
            count += 1
        out_starts[document + 1] = count
    return out[:count].copy(), out_starts
