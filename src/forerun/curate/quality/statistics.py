"""Cheap facts about each text, in one pass over its bytes, and the content type they suggest."""

# N documents

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.embed.words import CLASSES, LETTER, MARK, WIDE, buffers, mix, split

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
_KINDS = np.zeros(256, np.uint8)
_KINDS[list(b"();=<>_{")] = 1
_KINDS[list(b"\\^$")] = 2
_KINDS[list(b",|\t:/")] = 3
_MOST_DISTINCT = 4096  # assumed: words whose repetition is counted; bounds the work on a long document


def text_statistics(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Counts named by `NAMES`, float32 `[N, len(NAMES)]`."""
    data, offsets = buffers(texts)
    hashes, starts, _, first = split(data, offsets, CLASSES, True)
    out = np.zeros((len(offsets) - 1, len(NAMES)), np.float32)
    _bytes(data, offsets, CLASSES, _KINDS, out)
    _words(hashes, starts, first, data, _hashes(FUNCTION_WORDS), _hashes(b"assistant"), out)
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


def _hashes(words: bytes) -> np.ndarray:
    column = pa.array([words.decode()], pa.large_string())
    return np.sort(split(*buffers(column), CLASSES, True)[0])


@nb.njit(nogil=True, cache=True)
def _bytes(data, offsets, classes, kinds, out):
    for document in range(len(offsets) - 1):
        row = out[document]
        line, longest, fresh = 0, 0, True
        for index in range(offsets[document], offsets[document + 1]):
            byte = data[index]
            kind = classes[byte]
            if kind == LETTER:
                row[0] += 1
                if 65 <= byte <= 90:
                    row[5] += 1
                elif byte >= 0xC2:
                    row[7] += 1
            elif kind == MARK:
                row[2] += 1
            elif kind == WIDE:
                row[6] += 1
            elif 48 <= byte <= 57:
                row[1] += 1
            if kinds[byte] == 1:
                row[8] += 1
            elif kinds[byte] == 2:
                row[9] += 1
            elif kinds[byte] == 3:
                row[10] += 1
            if byte == 10:
                row[4] += 1
                longest = max(longest, line)
                line, fresh = 0, True
            else:
                if byte in (32, 9):
                    row[3] += 1
                    if fresh:
                        row[12] += 1
                line += 1
                fresh = False
            if byte in (33, 46, 63) and (index + 1 == offsets[document + 1] or data[index + 1] <= 32):
                row[11] += 1
        row[17] = max(longest, line)
        row[18] = offsets[document + 1] - offsets[document]


@nb.njit(nogil=True, cache=True)
def _words(hashes, starts, first, data, function, roles, out):
    seen = np.zeros(4 * _MOST_DISTINCT, np.uint64)
    for document in range(len(first) - 1):
        row = out[document]
        seen[:] = 0
        for index in range(first[document], first[document + 1]):
            byte = data[starts[index]]
            if not (65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 0xC2):
                continue
            row[13] += 1
            value = hashes[index]
            place = np.searchsorted(function, value)
            if place < len(function) and function[place] == value:
                row[14] += 1
            place = np.searchsorted(roles, value)
            if place < len(roles) and roles[place] == value:
                row[16] += 1
            if row[13] <= _MOST_DISTINCT:
                slot = mix(value) & np.uint64(len(seen) - 1)
                while seen[slot] != 0 and seen[slot] != value:
                    slot = (slot + np.uint64(1)) & np.uint64(len(seen) - 1)
                if seen[slot] == 0:
                    seen[slot] = value
                    row[15] += 1
