"""Training documents that hold evaluation text: found by shared 13-grams, attributed to every item they hit.

Words are folded, so re-wrapped copies, changed case and changed punctuation match. Coverage of the *item* finds it inside
filler; coverage of a *paragraph* finds an excerpt of a long item. Of a held-out document, whose paragraphs may be a licence or a
menu like anybody's, an excerpt counts only when it makes up the training document. Items shorter than a gram match as a whole. Grams
that many documents share are boilerplate and count on neither side; items made of nothing else are reported, not silently missed.
"""

# N documents, I items, H hits

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.base.errors import ConfigError
from forerun.curate.text.gram_index import GramIndex, Hits, build_index, scan

EXCERPT_CHARS = 240  # assumed: enough to see what was matched
_BLANK_LINE = re.compile(r"\n\s*\n")


@dataclass(frozen=True, kw_only=True)
class DecontaminateConfig:
    """When a document counts as contaminated."""

    match: Literal["words", "tokens", "as_written"] = "words"
    """How both sides are read. `words`: case, accents, punctuation and line breaks are gone. `tokens`: between white space, case
    folded. `as_written`: between white space, nothing folded, as the original."""
    gram_words: int = 13
    """Words per gram."""
    least_item_words: int = 5
    """Items of fewer words are not searched for; those up to a gram are searched as a whole."""
    threshold: float = 0.5
    """Least share that must be shared: of an item's grams, or of a paragraph's, or of a document's with held-out ones."""
    least_paragraph_words: int = 50
    """Paragraphs of fewer words are judged by their items only: a shared quotation is not a leak."""
    boilerplate_documents: int = 50
    """Grams in this many documents or more, of `boilerplate_sources` or more sources, do not count."""
    boilerplate_sources: int = 3
    """A leak copied within one or two sources stays a leak."""
    boilerplate_source_fraction: float = 0.005
    """Source: Marin's share. Grams in this share of a source's documents, and in `boilerplate_documents` of them, do not count in that source: a template."""

    def __post_init__(self) -> None:
        for name in ("threshold", "boilerplate_source_fraction"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(f"decontaminate.{name} must lie in 0..1, 0 excluded, got {getattr(self, name)}", hint="see the defaults")
        if not 1 <= self.least_item_words <= self.gram_words <= 32:
            raise ConfigError(
                f"decontaminate.least_item_words={self.least_item_words} and gram_words={self.gram_words} must satisfy 1 <= least_item_words <= gram_words <= 32",
                hint="5 and 13 are usual",
            )


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("item", pa.string()),
        ("item_share", pa.float64()),
        ("paragraph_share", pa.float64()),
        ("document_share", pa.float64()),
        ("matched_grams", pa.int64()),
        ("items", pa.list_(pa.string())),
        ("excerpt", pa.large_string()),
    ]
)


@dataclass(frozen=True, eq=False)
class Contamination:
    """What was found, and what could not be searched for."""

    rows: pa.Table
    """One row per contaminated document (`SCHEMA`), in order of id."""
    too_short: tuple[str, ...]
    """Items of too few words."""
    boilerplate: tuple[str, ...]
    """Items of which more than half is boilerplate of these documents, so that a leak of them would be missed."""


def contaminated(
    ids: Sequence[str], sources: Sequence[str], texts: pa.ChunkedArray | pa.Array, items: pa.Table, config: DecontaminateConfig
) -> pa.Table:
    """One row per contaminated document with the items it holds, in order of id.

    Args:
        sources: of each document.
        items: `id` and `text` of evaluation texts; several rows may share an id, such as a question and its answer. `held_out`, if
            there, says which are documents of the corpus itself.
    """
    return search(ids, sources, texts, items, config).rows


def search(
    ids: Sequence[str], sources: Sequence[str], texts: pa.ChunkedArray | pa.Array, items: pa.Table, config: DecontaminateConfig
) -> Contamination:
    """As `contaminated`, with the items that could not be searched for."""
    index = index_of(items, config)
    return judge(ids, sources, texts, items, index, scan(texts, index), config)


def index_of(items: pa.Table, config: DecontaminateConfig) -> GramIndex:
    """The items' index, to be scanned with in any number of workers."""
    return build_index(items["text"], match=config.match, gram_words=config.gram_words, least_words=config.least_item_words)


def judge(
    ids: Sequence[str],
    sources: Sequence[str],
    texts: pa.ChunkedArray | pa.Array,
    items: pa.Table,
    index: GramIndex,
    hits: Hits,
    config: DecontaminateConfig,
) -> Contamination:
    """Decide over all documents at once, because boilerplate is a property of the corpus. Only documents with hits are read."""
    item_ids = items["id"].to_pylist()
    of_corpus = _grams_of_corpus(items, index)
    source_of, num_sources = _numbered(sources)
    kept = ~_boilerplate(hits, len(index.entry_starts) - 1, source_of, num_sources, config)
    usable = np.ones(len(index.entry_starts) - 1, bool)
    usable[np.unique(hits.entry[~kept])] = False
    document, entry, end = hits.document[kept], hits.entry[kept], hits.end[kept]
    found: list[dict] = []
    edges = np.append(np.flatnonzero(np.diff(document, prepend=-1)), len(document))
    for first, last in zip(edges, edges[1:]):
        member = int(document[first])
        entries = np.unique(entry[first:last])
        pairs = np.concatenate([index.items_of(one) for one in entries.tolist()])
        item, count = np.unique(pairs, return_counts=True)
        share = count / index.item_grams[item]
        text = texts[member].as_py()
        paragraph, whole = _text_shares(text, index, usable, of_corpus, config) if share.max() < config.threshold else (0.0, 0.0)
        if max(share.max(), paragraph, whole) < config.threshold:
            continue
        order = np.lexsort((item, -share))
        named = dict.fromkeys(item_ids[int(item[one])] for one in order.tolist() if share[one] >= config.threshold or one == order[0])
        found.append(
            {
                "id": ids[member],
                "source": sources[member],
                "item": item_ids[int(item[order[0]])],
                "item_share": float(share[order[0]]),
                "paragraph_share": paragraph,
                "document_share": whole,
                "matched_grams": len(entries),
                "items": list(named),
                "excerpt": _excerpt(text, int(end[first])),
            }
        )
    found.sort(key=lambda row: row["id"])
    searchable = index.item_grams > 0
    lost = np.zeros(len(index.item_grams), np.int64)
    for one in np.flatnonzero(~usable).tolist():
        lost[index.items_of(one)] += 1
    return Contamination(
        rows=pa.Table.from_pylist(found, schema=SCHEMA),
        too_short=tuple(item_ids[one] for one in np.flatnonzero(~searchable).tolist()),
        boilerplate=tuple(
            item_ids[one] for one in np.flatnonzero(searchable & (lost > (1 - config.threshold) * index.item_grams)).tolist()
        ),
    )


def _numbered(sources: Sequence[str]) -> tuple[NDArray[np.int64], int]:
    names, numbers = np.unique(np.asarray(sources, object).astype(str), return_inverse=True)
    return numbers, len(names)


def _boilerplate(
    hits: Hits, num_entries: int, source_of: NDArray[np.int64], num_sources: int, config: DecontaminateConfig
) -> NDArray[np.bool_]:
    """Which hits are of grams too common to mean anything: over all sources, or in the hit's own source."""
    if not len(hits.document):
        return np.zeros(0, bool)
    pairs = np.unique(hits.document * num_entries + hits.entry)  # each document once per gram
    document, entry = pairs // num_entries, pairs % num_entries
    cell, documents = np.unique(entry * num_sources + source_of[document], return_counts=True)
    in_documents, in_sources = np.bincount(entry, minlength=num_entries), np.bincount(cell // num_sources, minlength=num_entries)
    everywhere = (in_documents >= config.boilerplate_documents) & (in_sources >= config.boilerplate_sources)
    size = np.bincount(source_of, minlength=num_sources)
    limit = np.maximum(config.boilerplate_documents, config.boilerplate_source_fraction * size)[cell % num_sources]
    templates = cell[documents >= limit]
    return everywhere[hits.entry] | np.isin(hits.entry * num_sources + source_of[hits.document], templates)


def _grams_of_corpus(items: pa.Table, index: GramIndex) -> NDArray[np.bool_]:
    """Which entries are of held-out documents and of no evaluation item."""
    if "held_out" not in items.column_names:
        return np.zeros(len(index.entry_starts) - 1, bool)
    outside = ~np.asarray(items["held_out"])[index.entry_item]
    return ~np.logical_or.reduceat(outside, index.entry_starts[:-1]) if len(outside) else np.zeros(0, bool)


def _text_shares(
    text: str, index: GramIndex, usable: NDArray[np.bool_], of_corpus: NDArray[np.bool_], config: DecontaminateConfig
) -> tuple[float, float]:
    """The largest share of a paragraph's grams that evaluation items hold, and the share of all grams that held-out documents hold.

    Paragraphs end at blank lines.
    """
    hits = scan(pa.array(_BLANK_LINE.split(text), pa.large_string()), index)
    grams = (hits.entry < index.num_grams) & usable[hits.entry]
    of_items = np.bincount(hits.document[grams & ~of_corpus[hits.entry]], minlength=len(hits.num_grams))
    long = hits.num_grams >= config.least_paragraph_words - config.gram_words + 1
    paragraph = float((of_items[long] / hits.num_grams[long]).max()) if long.any() else 0.0
    return paragraph, float((grams & of_corpus[hits.entry]).sum() / max(hits.num_grams.sum(), 1))


def _excerpt(text: str, end: int) -> str:
    """The text before a byte position, cut at the front."""
    return text.encode("utf-8")[max(0, end - 4 * EXCERPT_CHARS) : end].decode("utf-8", "ignore")[-EXCERPT_CHARS:]
