"""Cheap facts about each text, in one pass over its bytes, and the content type they suggest."""

# N documents

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.curate.embed.words import CLASSES, LETTER, MARK, WIDE, buffers, split

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
    _words(hashes, starts, first, data, *_lookup(FUNCTION_WORDS, b"assistant"), out)
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
        for value in split(*buffers(pa.array([words.decode()], pa.large_string())), CLASSES, True)[0]:
            slot = int(value) & 1023
            while keys[slot] and keys[slot] != value:
                slot = (slot + 1) & 1023
            keys[slot], which[slot] = value, number
    return keys, which


@nb.njit(nogil=True, cache=True)
def _bytes(data, offsets, classes, kinds, out):
    by_byte = np.zeros(256, np.int64)
    for document in range(len(offsets) - 1):
        row = out[document]
        by_byte[:] = 0
        line, longest, indented, ends, last = 0, 0, 0, 0, np.uint8(10)
        for index in range(offsets[document], offsets[document + 1]):
            byte = data[index]
            by_byte[byte] += 1
            if byte <= 32:
                ends += last in (33, 46, 63)
                if byte == 10:
                    longest = max(longest, line)
                    line = -1
                else:
                    indented += last == 10
            line += 1
            last = byte
        for byte in range(256):
            count, kind, group = by_byte[byte], classes[byte], kinds[byte]
            if kind == LETTER:
                row[0] += count
                if 65 <= byte <= 90:
                    row[5] += count
                elif byte >= 0xC2:
                    row[7] += count
            elif kind == MARK:
                row[2] += count
            elif kind == WIDE:
                row[6] += count
            elif 48 <= byte <= 57:
                row[1] += count
            if group == 1:
                row[8] += count
            elif group == 2:
                row[9] += count
            elif group == 3:
                row[10] += count
        row[3], row[4] = by_byte[32] + by_byte[9], by_byte[10]
        row[11], row[12] = ends + (last in (33, 46, 63)), indented
        row[17], row[18] = max(longest, line), offsets[document + 1] - offsets[document]


@nb.njit(nogil=True, cache=True)
def _words(hashes, starts, first, data, keys, which, out):
    seen, stamp = np.zeros(4 * _MOST_DISTINCT, np.uint64), np.full(4 * _MOST_DISTINCT, -1, np.int64)
    for document in range(len(first) - 1):
        row = out[document]
        words, distinct, function, roles = 0, 0, 0, 0
        for index in range(first[document], first[document + 1]):
            byte = data[starts[index]]
            if not (65 <= byte <= 90 or 97 <= byte <= 122 or byte >= 0xC2):
                continue
            words += 1
            value = hashes[index]
            slot = value & np.uint64(1023)
            while keys[slot] != 0 and keys[slot] != value:
                slot = (slot + np.uint64(1)) & np.uint64(1023)
            if which[slot] == 1:
                function += 1
            elif which[slot] == 2:
                roles += 1
            if words <= _MOST_DISTINCT:
                slot = (value >> np.uint64(13)) & np.uint64(len(seen) - 1)
                while stamp[slot] == document and seen[slot] != value:
                    slot = (slot + np.uint64(1)) & np.uint64(len(seen) - 1)
                if stamp[slot] != document:
                    seen[slot], stamp[slot] = value, document
                    distinct += 1
        row[13], row[14], row[15], row[16] = words, function, distinct, roles
