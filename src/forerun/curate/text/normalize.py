"""One spelling per text, and the id that follows from it."""

# N documents

from __future__ import annotations

import re
from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from forerun.base.errors import ConfigError

BLANK, TOO_SHORT = "blank", "too_short"


@dataclass(frozen=True, kw_only=True)
class NormalizeConfig:
    """What happens to a text before it gets its id."""

    max_whitespace_run: int = 128
    """Longer runs of white space are cut to this many characters. Source: the longest run Llama's tokenizer folds into one token,
    so nothing is lost; runs of megabytes stop tokenizers."""
    min_document_bytes: int = 64
    """Shorter documents are dropped."""
    partition_bytes: int = 16 << 20
    """Text in one partition, about; what a worker holds at a time."""

    def __post_init__(self) -> None:
        for name in ("max_whitespace_run", "min_document_bytes", "partition_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"normalize.{name} must be at least 1, got {getattr(self, name)}", hint="1 keeps every document with text"
                )


def normalize(documents: pa.Table, config: NormalizeConfig) -> pa.Table:
    """Cut long white-space runs and name each document by its content.

    Args:
        documents: `text` and any other columns.
    Returns: the same rows with `id` first (xxh3-128 of the UTF-8 text, 32 hex digits) and `reason` last: null, `blank` or `too_short`.
    """
    texts = documents["text"].combine_chunks().cast(pa.large_string()) if documents.num_rows else pa.array([], pa.large_string())
    texts = _compacted(texts, config.max_whitespace_run)
    content, offsets = _buffers(texts)
    view = content.data
    edges = offsets.tolist()
    ids = [xxhash.xxh3_128_hexdigest(view[start:stop]) for start, stop in zip(edges, edges[1:])]
    blank = _longest_runs(content, offsets)[1]
    short = np.diff(offsets) < config.min_document_bytes
    reason = np.where(blank, BLANK, np.where(short, TOO_SHORT, ""))
    table = documents.set_column(documents.column_names.index("text"), "text", texts).add_column(0, "id", pa.array(ids, pa.string()))
    return table.append_column("reason", pa.array(reason.tolist(), pa.string(), mask=reason == ""))


def _compacted(texts: pa.Array, most: int) -> pa.Array:
    """Only texts that have a long run are touched."""
    longest, _ = _longest_runs(*_buffers(texts))
    rows = np.flatnonzero(longest > most)
    if not len(rows):
        return texts
    run = re.compile(rf"\s{{{most + 1},}}")
    whole = texts.to_pylist()
    for row in rows.tolist():
        whole[row] = run.sub(lambda found: found.group()[:most], whole[row])
    return pa.array(whole, pa.large_string())


def _buffers(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if len(texts) == 0:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    return (np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)), offsets


@numba.njit(cache=True, nogil=True)
def _longest_runs(content, offsets):
    """Longest run of white space in characters, as Python's `str.isspace` sees it, and whether the text is nothing else; both `[N]`."""
    num = len(offsets) - 1
    longest, blank = np.zeros(num, np.int64), np.zeros(num, np.bool_)
    for document in range(num):
        place, stop, run, only = offsets[document], offsets[document + 1], 0, True
        while place < stop:
            byte = content[place]
            width, space = 1, False
            if byte < 0x80:
                space = byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31
            elif byte >= 0xF0:
                width = 4
            elif byte >= 0xE0:
                width = 3
                second, third = content[place + 1], content[place + 2]
                space = (
                    (byte == 0xE1 and second == 0x9A and third == 0x80)  # U+1680
                    or (byte == 0xE2 and second == 0x80 and (third <= 0x8A or third in (0xA8, 0xA9, 0xAF)))  # U+2000-200A, 2028, 2029, 202F
                    or (byte == 0xE2 and second == 0x81 and third == 0x9F)  # U+205F
                    or (byte == 0xE3 and second == 0x80 and third == 0x80)  # U+3000
                )
            else:
                width = 2
                space = byte == 0xC2 and content[place + 1] in (0x85, 0xA0)
            place += width
            if space:
                run += 1
                longest[document] = max(longest[document], run)
            else:
                run, only = 0, False
        blank[document] = only
    return longest, blank
