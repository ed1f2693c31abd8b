"""Search by topic: an index of the uniform samples that answers in a few file reads, here and in a browser without a server.

`words/<shelf>.json` holds, for the words of one of 256 shelves, the rows of the samples they occur in, as differences; `search.json`
the cell and tokens of each row; `search-documents.json` its id and beginning. Names and contrast terms of the domains are searched beside the samples.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from forerun.base.errors import DataError
from forerun.base.files import storage_errors, write_atomic
from forerun.base.lab import Lab
from forerun.dashboard.atlas.address import slug
from forerun.dashboard.atlas.attributes import made_folder
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.samples import UNIFORM_KIND, samples
from forerun.dashboard.atlas.text import words_of

FOLDER = "search"
HEAD, STARTS = "search.json", "search-documents.json"
LONGEST_WORD = 32  # assumed: longer runs of letters are no words
NUM_SHELVES = 256
SHELVES = tuple(f"{number:02x}" for number in range(NUM_SHELVES))
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
    shelves: dict[str, dict[str, list[int]]] = {}
    common = {word for word, found in postings.items() if len(found) > max(COMMON * len(rows), COMMON_ROWS)}
    for word, found in sorted(postings.items()):
        if word not in common:
            shelves.setdefault(shelf(word), {})[word] = [found[0], *(after - before for before, after in zip(found, found[1:]))]
    with storage_errors(folder):
        (folder / "words").mkdir(parents=True, exist_ok=True)
        for name in SHELVES:
            words = json.dumps(shelves.get(name, {}), separators=(",", ":"), ensure_ascii=False)
            (folder / "words" / f"{name}.json").write_bytes(words.encode("utf-8", "replace"))  # whole once the head is there, written last
    write_atomic(folder / STARTS, json.dumps(_starts(rows), separators=(",", ":")).encode())
    write_atomic(folder / HEAD, json.dumps(_head(book, rows) | {"common": sorted(common)}, separators=(",", ":")).encode())
    return folder


def shelf(word: str) -> str:
    """The file a word is in, by a hash that a browser computes as well. Source: FNV-1a, 32 bits."""
    state = 0x811C9DC5
    for byte in word.encode("utf-8", "surrogatepass"):
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{state % NUM_SHELVES:02x}"


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


def _starts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is shown of a found document; a file of its own, because the answer does not wait for it."""
    return {"schema": 1, "id": [row["id"] for row in rows], "start": [" ".join(row["text"][:300].split())[:120] for row in rows]}


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
        raise DataError(f"the topic {topic!r} has no word but such as half of all documents hold", hint="give rarer words")
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
    found: set[int] | None = None
    for word in words:
        path = folder / "words" / f"{shelf(word)}.json"
        rows = _shelf(path, path.stat().st_mtime_ns).get(word)
        mine = set(accumulate(rows)) if rows else set()
        found = mine if found is None else found & mine
    return found or set()


@lru_cache(maxsize=8)
def _read_head(path: Path, changed: int) -> dict[str, Any]:
    return json.loads(path.read_bytes())


@lru_cache(maxsize=256)
def _shelf(path: Path, changed: int) -> dict[str, list[int]]:
    return json.loads(path.read_bytes())
