"""How bytes are read: which characters make words, what is folded, and which scripts are written without spaces.

Several spellings of a text, each a pair of tables:

- `words`: a word is a run of letters and digits; case, accents and full-width forms are folded; everything else separates.
- `characters`: the same, but punctuation is dropped instead of separating.
- `tokens`: white space separates, punctuation is part of a token, case is folded. What a strict comparison of contents sees.
- `as_written`: white space separates, nothing is folded.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

SEPARATES, SKIPPED, DECODED = 0, 1, 0x80
HALF, QUARTER = 1, 2  # kinds of script: a Han or kana character is half a word, one of Thai and its neighbours a quarter
_HALVES = ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x30FF), (0x3105, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x4DBF), (0x4E00, 0x9FFF),
           (0xA000, 0xA48F), (0xF900, 0xFAFF), (0xFF66, 0xFF9F))  # fmt: skip  # source: Unicode blocks of Han, kana, bopomofo, Yi
_QUARTERS = ((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF),
             (0xAA60, 0xAADF))  # fmt: skip  # source: Unicode blocks of Thai, Lao, Tibetan, Myanmar, Khmer, Tai scripts


@dataclass(frozen=True, eq=False)
class Spelling:
    """How bytes are read."""

    low: NDArray[np.uint8]
    """`[256]`: 0 separates, 1 is skipped, 128 begins a longer character, else the folded ASCII byte."""
    wide: NDArray[np.uint32]
    """`[65536]` by code point: 0 and 1 as above, else the folded code point, and the kind of script from bit 24 on."""
    folds: int
    """1 when ASCII letters are read in lower case, else 0."""
    punctuated: int
    """1 when ASCII punctuation is part of words, else 0."""


@cache
def spelling(name: str) -> Spelling:
    """Tables of `words`, `characters`, `tokens` or `as_written`."""
    wide = np.array([_entry(code, name) for code in range(0x10000)], np.uint32)
    low = np.full(256, DECODED, np.uint8)
    low[:128] = wide[:128]
    return Spelling(low, wide, int(name != "as_written"), int(name in ("tokens", "as_written")))


def _entry(code: int, name: str) -> int:
    char = chr(code)
    if char.isspace() or code < 2 or (name in ("words", "characters") and (code < 33 or code == 127)):
        return SEPARATES  # to `tokens` and `as_written` only white space is; 0 and 1 are no text, and marks of these tables
    if code < 128:
        if char.isalnum():
            return code if name == "as_written" else ord(char.lower())
        return {"words": SEPARATES, "characters": SKIPPED}.get(name, code)
    category = unicodedata.category(char)
    if name in ("words", "characters") and (0x300 <= code < 0x370 or category == "Cf"):
        return SKIPPED  # accents on their own, soft hyphens, zero-width marks
    if 0xD800 <= code < 0xE000:
        return SEPARATES
    kind = HALF if _within(code, _HALVES) else QUARTER if _within(code, _QUARTERS) else 0
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
