"""Search by topic: an index of the uniform samples that answers in a few file reads, here and in a browser without a server.

`words.parquet` holds the words in order and, for each, the rows of the samples it occurs in as differences, so a reader takes one
row group a word. `search.json` holds the cell and tokens of each row and the first word of each row group; `search-documents.parquet`
a row's id and beginning. Names and contrast terms of the domains are searched beside the samples.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.base.files import replacing, write_atomic
from forerun.base.lab import Lab
from forerun.dashboard.atlas.address import slug
from forerun.dashboard.atlas.attributes import made_folder
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.samples import UNIFORM_KIND, samples
from forerun.dashboard.atlas.text import words_of

FOLDER = "search"
HEAD, STARTS, WORDS = "search.json", "search-documents.parquet", "words.parquet"
LONGEST_WORD = 32  # assumed: longer runs of letters are no words
GROUP_WORDS, GROUP_STARTS = 2048, 512  # assumed: words, and beginnings of documents, a browser fetches at a time: some 20 KB
ID_DIGITS = 16  # of a document's id in the list of those found; enough to look it up
COMMON, COMMON_ROWS = 0.5, 2000  # assumed: a word in more than half of all samples, and of so many, says nothing of a topic


@dataclass(frozen=True)
class Hit:
    """One domain's part in a topic."""

    domain: str
    share: float
    """Of the domain's tokens that are about the topic, from its samples."""
    num_tokens: float
    """Estimated tokens of the topic in the domain."""
    named: bool
    """Every word occurs in the domain's name or contrast terms."""


@dataclass(frozen=True)
class Answer:
    """What the data holds of a topic."""

    words: tuple[str, ...]
    """Those searched: words that half of all documents hold are left out."""
    num_matched: int
    """Sampled documents with every word."""
    num_sampled: int
    share: float
    """Of all tokens."""
    qualities: tuple[float, ...]
    """Of the topic's tokens, the share in Q0 to Q4."""
    usual: tuple[float, ...]
    """Of all tokens, the share in Q0 to Q4."""
    domains: tuple[Hit, ...]
    """Largest part first."""
    examples: tuple[int, ...]
    """Rows of the uniform samples, at most ten."""


def index(lab: Lab, book: Book) -> Path:
    """The folder of the index; made once, and whole when its head is there."""
    folder = made_folder(lab, book) / FOLDER
    if (folder / HEAD).exists():
        return folder
    table = samples(lab, book)
    rows = [
        row
        for row in table.select(
            [name for name in ("cell", "kind", "id", "source", "num_tokens", "text") if name in table.column_names]
        ).to_pylist()
        if row["kind"] == UNIFORM_KIND
    ]
    postings: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for word in {word for word in words_of(row["text"]) if len(word) <= LONGEST_WORD}:
            postings.setdefault(word, []).append(number)
    common = {word for word, found in postings.items() if len(found) > max(COMMON * len(rows), COMMON_ROWS)}
    words = sorted(postings.keys() - common)
    coded = [_coded([postings[word][0], *(after - before for before, after in zip(postings[word], postings[word][1:]))]) for word in words]
    _write(folder / WORDS, {"word": pa.array(words, pa.string()), "rows": pa.array(coded, pa.binary())}, GROUP_WORDS)
    starts = [" ".join(row["text"][:300].split())[:120] for row in rows]
    ids = pa.array([row["id"][:ID_DIGITS] for row in rows], pa.string())
    _write(folder / STARTS, {"id": ids, "start": pa.array(starts, pa.string())}, GROUP_STARTS)
    head = _head(book, rows) | {"common": sorted(common), "groups": words[::GROUP_WORDS], "group_words": GROUP_WORDS}
    write_atomic(folder / HEAD, json.dumps(head, separators=(",", ":")).encode())
    return folder


def _write(path: Path, columns: dict[str, pa.Array], group: int) -> None:
    """A table as a browser reads it: parts of it by row group, coded without a dictionary."""
    coding = {name: "DELTA_LENGTH_BYTE_ARRAY" for name in columns} | ({"word": "DELTA_BYTE_ARRAY"} if "word" in columns else {})
    with replacing(path) as beside:
        pq.write_table(
            pa.table(columns),
            beside,
            compression="zstd",
            compression_level=12,
            row_group_size=group,
            use_dictionary=False,
            column_encoding=coding,
            store_schema=False,
        )


def _coded(numbers: Sequence[int]) -> bytes:
    """Whole numbers from 0, seven bits a byte, the lowest first; the last byte of each has its highest bit clear."""
    out = bytearray()
    for number in numbers:
        rest = number
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _numbers(coded: bytes) -> Iterator[int]:
    """What `_coded` was given."""
    number = shift = 0
    for byte in coded:
        number |= (byte & 127) << shift
        if byte > 127:
            shift += 7
        else:
            yield number
            number = shift = 0


def _head(book: Book, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    cells = [cell for cell in book.cells]
    place = {cell.name: number for number, cell in enumerate(cells)}
    return {
        "schema": 1,
        "cells": [[cell.name, cell.domain, cell.quality, cell.num_tokens] for cell in cells],
        "titles": {domain: names(book, domain) for domain in book.domains},
        "slugs": {domain: slug(domain) for domain in book.domains},
        "row_cell": [place[row["cell"]] for row in rows],
        "row_tokens": [row["num_tokens"] for row in rows],
    }


def names(book: Book, domain: str) -> str:
    """What a domain is called: folder, name for people, contrast terms."""
    return " ".join([domain, book.title(domain), *book.domain_reports.get(domain, {}).get("terms", [])])


def search(folder: Path, topic: str) -> Answer:
    """How much of the data is about a topic: documents that hold every word of it, weighted by the tokens they stand for.

    Raises: DataError for a topic without a word.
    """
    head = _read_head(folder / HEAD, (folder / HEAD).stat().st_mtime_ns)
    common = set(head["common"])
    words = tuple(word for word in dict.fromkeys(words_of(topic)) if word not in common)
    if not words:
        raise DataError(f"the topic {topic!r} has no word that fewer than half of all documents hold", hint="give rarer words")
    rows = _rows_of(folder, words)
    cells, row_cell, row_tokens = head["cells"], head["row_cell"], head["row_tokens"]
    sampled, matched = [0] * len(cells), [0] * len(cells)
    for cell, tokens in zip(row_cell, row_tokens):
        sampled[cell] += tokens
    for row in rows:
        matched[row_cell[row]] += row_tokens[row]
    of_topic = [cell[3] * part / whole if whole else 0.0 for cell, part, whole in zip(cells, matched, sampled)]
    total, topic_tokens = sum(cell[3] for cell in cells), math.fsum(of_topic)
    by_quality, usual, by_domain, domain_tokens = [0.0] * NUM_QUALITIES, [0] * NUM_QUALITIES, {}, {}
    for (_, domain, quality, tokens), part in zip(cells, of_topic):
        by_quality[quality] += part
        usual[quality] += tokens
        by_domain[domain] = by_domain.get(domain, 0.0) + part
        domain_tokens[domain] = domain_tokens.get(domain, 0) + tokens
    called = {domain: set(words_of(text)) for domain, text in head["titles"].items()}
    hits = [
        Hit(
            domain,
            part / domain_tokens[domain] if domain_tokens[domain] else 0.0,
            part,
            bool(words) and set(words) <= called.get(domain, set()),
        )
        for domain, part in by_domain.items()
    ]
    hits = sorted((hit for hit in hits if hit.num_tokens or hit.named), key=lambda hit: (-hit.num_tokens, hit.domain))
    return Answer(
        words=words,
        num_matched=len(rows),
        num_sampled=len(row_cell),
        share=topic_tokens / total if total else 0.0,
        qualities=tuple(part / topic_tokens if topic_tokens else 0.0 for part in by_quality),
        usual=tuple(part / total if total else 0.0 for part in usual),
        domains=tuple(hits),
        examples=tuple(sorted(rows)[:10]),
    )


def _rows_of(folder: Path, words: Sequence[str]) -> set[int]:
    """Rows that hold every word."""
    path, head = folder / WORDS, _read_head(folder / HEAD, (folder / HEAD).stat().st_mtime_ns)
    found: set[int] | None = None
    for word in words:
        group = bisect_right(head["groups"], word) - 1
        coded = _group(path, path.stat().st_mtime_ns, group).get(word) if group >= 0 else None
        mine = set(accumulate(_numbers(coded))) if coded else set()
        found = mine if found is None else found & mine
    return found or set()


@lru_cache(maxsize=8)
def _read_head(path: Path, changed: int) -> dict[str, Any]:
    return json.loads(path.read_bytes())


@lru_cache(maxsize=64)
def _group(path: Path, changed: int, group: int) -> dict[str, bytes]:
    """Words of one row group. Raises: DataError when the index cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="delete its folder; `forerun data atlas` makes it again") from None
    return dict(zip(table["word"].to_pylist(), table["rows"].to_pylist()))
