"""Cheap facts about each text, from masks over 64 bytes and from its words, and the content type they suggest."""

# N documents

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.text.registers import bits_within, ones_in, trailing_zeros
from forerun.curate.text.spelling import spelling
from forerun.curate.text.words import LETTER, arguments, buffers, room_for, scan_words, word_hashes

TYPES = ("prose", "code", "math", "multilingual", "structured", "agentic", "other")
FUNCTION_WORDS = (
    b"the of and to a in is that it for was as with be by on not he his but at are this have from or had an they which one you were all her she "
    b"there would their we him been has when who will no more if out so what up its about into than them can only other time some could these two"
)  # source: the most frequent words of English (Brown corpus ranks 1-70), the usual test of running English text
NAMES = (
    "letters", "digits", "marks", "spaces", "newlines", "upper", "wide", "accented", "code_marks", "math_marks", "separators",
    "sentence_ends", "indented_lines", "words", "function_words", "distinct_words", "role_words", "longest_line", "num_bytes",
)  # fmt: skip
_COLUMN = {name: index for index, name in enumerate(NAMES)}
_MOST_DISTINCT = 4096  # assumed: words whose repetition is counted; bounds the work on a long document


def text_statistics(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Counts named by `NAMES`, float32 `[N, len(NAMES)]`."""
    content, offsets = buffers(texts)
    out = np.zeros((len(offsets) - 1, len(NAMES)), np.float32)
    _bytes(content, offsets, out)
    _words(content, offsets, *arguments(spelling("words")), *_lookup(FUNCTION_WORDS, b"assistant"), out)
    return out


def content_types(statistics: np.ndarray) -> np.ndarray:
    """Index into `TYPES` of each document, int8, by fixed rules on shares of characters and words."""
    column = {name: statistics[:, index] for name, index in _COLUMN.items()}
    size = np.maximum(column["num_bytes"], 1)
    words = np.maximum(column["words"], 1)
    function = column["function_words"] / words
    rules = [
        ("multilingual", (column["wide"] * 3 > 0.2 * size) | ((column["accented"] * 2 > 0.08 * size) & (function < 0.1))),
        ("agentic", (column["role_words"] > 0.004 * words) & (column["role_words"] >= 2)),
        ("math", column["math_marks"] > 0.01 * size),
        ("code", (column["code_marks"] > 0.04 * size) & (function < 0.25)),
        (
            "structured",
            (column["digits"] + column["separators"] > 0.2 * size) | ((function < 0.08) & (column["sentence_ends"] < 0.02 * words)),
        ),
        ("prose", function >= 0.15),
    ]  # assumed: thresholds read off the bench corpus, where source names confirm them
    return np.select([rule for _, rule in rules], [TYPES.index(name) for name, _ in rules], TYPES.index("other")).astype(np.int8)


def shares(statistics: np.ndarray) -> np.ndarray:
    """Statistics on comparable scales, float32 `[N, len(NAMES)]`: shares of bytes or words, and logarithms of sizes."""
    out = statistics / np.maximum(statistics[:, _COLUMN["num_bytes"]], 1)[:, None]
    words = np.maximum(statistics[:, _COLUMN["words"]], 1)
    for name in ("sentence_ends", "function_words", "role_words"):
        out[:, _COLUMN[name]] = statistics[:, _COLUMN[name]] / words
    out[:, _COLUMN["distinct_words"]] = statistics[:, _COLUMN["distinct_words"]] / np.minimum(words, _MOST_DISTINCT)
    out[:, _COLUMN["indented_lines"]] = statistics[:, _COLUMN["indented_lines"]] / (statistics[:, _COLUMN["newlines"]] + 1)
    for name in ("num_bytes", "longest_line", "words"):
        out[:, _COLUMN[name]] = np.log1p(statistics[:, _COLUMN[name]]) / 10
    return out.astype(np.float32)


def column_of(name: str) -> int:
    """Position of a statistic."""
    return _COLUMN[name]


def _lookup(*lists: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A hash table of words: keys, and the number of the list (from 1) each came from."""
    keys, which = np.zeros(1024, np.uint64), np.zeros(1024, np.uint8)
    for number, words in enumerate(lists, 1):
        for value in word_hashes(pa.array([words.decode()], pa.large_string()))[0]:
            slot = (int(value) >> 3) & 1023
            while keys[slot] and keys[slot] != value:
                slot = (slot + 1) & 1023
            keys[slot], which[slot] = value, number
    return keys, which


@nb.njit(nogil=True, cache=True)
def _bytes(content, offsets, out):
    last_block = np.zeros(64, np.uint8)
    for document in range(len(offsets) - 1):
        counts = np.zeros(12, np.int64)
        stop = offsets[document + 1]
        after_newline, after_end = np.uint64(1), np.uint64(0)
        line_start, longest, indented, ends = offsets[document], 0, 0, 0
        for block in range(offsets[document], stop, 64):
            text, at = content, block
            if block + 64 > len(content):
                last_block[: len(content) - block] = content[block:]
                text, at = last_block, 0
            valid = ~np.uint64(0) if stop - block >= 64 else (np.uint64(1) << np.uint64(stop - block)) - np.uint64(1)
            upper = bits_within(text, at, 65, 26) & valid
            lower = bits_within(text, at, 97, 26) & valid
            digit = bits_within(text, at, 48, 10) & valid
            wide = bits_within(text, at, 0xE0, 24) & valid
            accented = bits_within(text, at, 0xC2, 30) & valid
            inner = bits_within(text, at, 128, 0x42) & valid
            white = bits_within(text, at, 0, 33) & valid
            newline = bits_within(text, at, 10, 1) & valid
            blank = (bits_within(text, at, 32, 1) | bits_within(text, at, 9, 1)) & valid
            stops = (bits_within(text, at, 46, 1) | bits_within(text, at, 33, 1) | bits_within(text, at, 63, 1)) & valid
            code = (
                bits_within(text, at, 40, 2) | bits_within(text, at, 59, 4) | bits_within(text, at, 95, 1) | bits_within(text, at, 123, 1)
            )
            math = bits_within(text, at, 92, 1) | bits_within(text, at, 94, 1) | bits_within(text, at, 36, 1)
            between = (
                bits_within(text, at, 44, 1) | bits_within(text, at, 47, 1) | bits_within(text, at, 58, 1) | bits_within(text, at, 124, 1)
            )
            counts[0] += ones_in(upper | lower | accented)
            counts[1] += ones_in(digit)
            counts[2] += ones_in(valid & ~(upper | lower | accented | digit | wide | inner | white))
            counts[3] += ones_in(blank)
            counts[4] += ones_in(newline)
            counts[5] += ones_in(upper)
            counts[6] += ones_in(wide)
            counts[7] += ones_in(accented)
            counts[8] += ones_in(code & valid)
            counts[9] += ones_in(math & valid)
            counts[10] += ones_in((between | bits_within(text, at, 9, 1)) & valid)
            ends += ones_in(white & ((stops << np.uint64(1)) | after_end))
            indented += ones_in(white & ~newline & ((newline << np.uint64(1)) | after_newline))
            after_end, after_newline = stops >> np.uint64(63), newline >> np.uint64(63)
            while newline:
                place = block + trailing_zeros(newline)
                newline &= newline - np.uint64(1)
                longest, line_start = max(longest, place - line_start), place + 1
        row = out[document]
        row[:11] = counts[:11]
        if stop > offsets[document]:
            last = content[stop - 1]
            ends += (last == 33) | (last == 46) | (last == 63)
        row[11], row[12] = ends, indented
        row[17], row[18] = max(longest, stop - line_start), stop - offsets[document]


@nb.njit(nogil=True, cache=True)
def _words(content, offsets, low, wide, folds, punctuated, keys, which, out):
    seen, stamp = np.zeros(4 * _MOST_DISTINCT, np.uint64), np.full(4 * _MOST_DISTINCT, -1, np.int32)
    most = room_for(offsets)
    hashes, ends = np.empty(most, np.uint64), np.empty(most, np.int64)
    for document in range(len(offsets) - 1):
        row = out[document]
        num = scan_words(content, offsets[document], offsets[document + 1], low, wide, folds, punctuated, hashes, ends)
        words, distinct, function, roles = 0, 0, 0, 0
        for index in range(num):
            value = hashes[index]
            if not value & LETTER:
                continue
            words += 1
            slot = (value >> np.uint64(3)) & np.uint64(1023)
            while keys[slot] != 0 and keys[slot] != value:
                slot = (slot + np.uint64(1)) & np.uint64(1023)
            function += which[slot] == 1
            roles += which[slot] == 2
            if words <= _MOST_DISTINCT:
                slot = (value >> np.uint64(13)) & np.uint64(len(seen) - 1)
                while stamp[slot] == document and seen[slot] != value:
                    slot = (slot + np.uint64(1)) & np.uint64(len(seen) - 1)
                distinct += stamp[slot] != document
                seen[slot], stamp[slot] = value, document
        row[13], row[14], row[15], row[16] = words, function, distinct, roles
