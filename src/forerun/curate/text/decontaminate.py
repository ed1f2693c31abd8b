"""Training documents that hold evaluation text: found by shared 13-grams, attributed to the item they hit.

Words are folded (case, punctuation, line breaks are gone), so re-wrapped copies match; coverage of the *item* finds it inside
filler, coverage of the *document* finds an excerpt. Items shorter than 13 words match as a whole. Grams that many training
documents share are boilerplate and count on neither side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.base.errors import ConfigError
from forerun.curate.text.words import ngram_hashes, word_hashes

SHORTEST_ITEM_WORDS = 5  # assumed: a match of fewer words says nothing


@dataclass(frozen=True, kw_only=True)
class DecontaminateConfig:
    """When a document counts as contaminated."""

    gram_words: int = 13
    """Words per gram."""
    threshold: float = 0.5
    """Least share of an item's grams, or of the document's, that must be shared."""
    boilerplate_documents: int = 50
    """Grams in this many training documents or more, of `boilerplate_sources` or more sources, do not count."""
    boilerplate_sources: int = 3
    """A leak copied within one or two sources stays a leak."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"decontaminate.threshold must lie in 0..1, 0 excluded, got {self.threshold}", hint="0.5 is usual")
        if self.gram_words < SHORTEST_ITEM_WORDS:
            raise ConfigError(f"decontaminate.gram_words must be at least {SHORTEST_ITEM_WORDS}, got {self.gram_words}", hint="13 is usual")


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("item", pa.string()),
        ("item_share", pa.float64()),
        ("document_share", pa.float64()),
        ("matched_grams", pa.int64()),
    ]
)


def contaminated(
    ids: list[str], sources: list[str], texts: pa.ChunkedArray | pa.Array, items: pa.Table, config: DecontaminateConfig
) -> pa.Table:
    """One row per contaminated document with the item it hits most, in order of id.

    Args:
        sources: of each document.
        items: `id`, `text` of evaluation texts and held-out documents.
    """
    words, starts = word_hashes(texts)
    item_ids = items["id"].to_pylist()
    rows: dict[str, tuple] = {}
    source_of = np.unique(np.array(sources, dtype=object).astype(str), return_inverse=True)[1]
    item_words, item_starts = word_hashes(items["text"])
    lengths = np.diff(item_starts)
    sizes = [config.gram_words, *sorted({int(n) for n in lengths if SHORTEST_ITEM_WORDS <= n < config.gram_words})]
    for size in sizes:
        chosen = np.flatnonzero(lengths >= size) if size == config.gram_words else np.flatnonzero(lengths == size)
        if not len(chosen):
            continue
        grams, gram_item = _item_grams(item_words, item_starts, chosen, size)
        for document, row in _matches(words, starts, source_of, grams, gram_item, size, config).items():
            known = rows.get(ids[document])
            if known is None or (row[1], row[2]) > (known[1], known[2]):
                rows[ids[document]] = (item_ids[row[0]], *row[1:])
    ordered = [(name, *rows[name]) for name in sorted(rows)]
    return pa.table([list(column) for column in zip(*ordered)] if ordered else [[] for _ in SCHEMA], schema=SCHEMA)


def _item_grams(
    words: NDArray[np.uint64], starts: NDArray[np.int64], chosen: NDArray, size: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Distinct grams of the chosen items with the item each belongs to (a gram of several items stays with each)."""
    grams, gram_starts = ngram_hashes(words, starts, size)
    parts = [np.unique(grams[gram_starts[item] : gram_starts[item + 1]]) for item in chosen]
    return np.concatenate(parts), np.repeat(chosen, [len(part) for part in parts])


def _matches(
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    source_of: NDArray[np.int64],
    grams: NDArray[np.uint64],
    gram_item: NDArray[np.int64],
    size: int,
    config: DecontaminateConfig,
) -> dict[int, tuple[int, float, float, int]]:
    document_grams, document_starts = ngram_hashes(words, starts, size)
    sorted_grams = np.unique(grams)
    place = np.minimum(np.searchsorted(sorted_grams, document_grams), len(sorted_grams) - 1)
    hit = np.flatnonzero(sorted_grams[place] == document_grams)
    document = np.searchsorted(document_starts, hit, side="right") - 1
    pairs = np.unique(np.stack([document, place[hit]], 1), axis=0)
    in_documents = np.bincount(pairs[:, 1], minlength=len(sorted_grams))
    per_source = np.unique(np.stack([source_of[pairs[:, 0]], pairs[:, 1]], 1), axis=0)
    in_sources = np.bincount(per_source[:, 1], minlength=len(sorted_grams))
    common = (in_documents >= config.boilerplate_documents) & (in_sources >= config.boilerplate_sources)
    pairs = pairs[~common[pairs[:, 1]]]
    keep = ~common[np.searchsorted(sorted_grams, grams)]
    grams, gram_item = grams[keep], gram_item[keep]
    order = np.argsort(grams, kind="stable")
    grams, gram_item = grams[order], gram_item[order]
    item_sizes = np.bincount(gram_item, minlength=int(gram_item.max(initial=0)) + 1)
    found: dict[int, tuple[int, float, float, int]] = {}
    for document in np.unique(pairs[:, 0]).tolist():
        first, last = np.searchsorted(pairs[:, 0], [document, document + 1])
        mine = sorted_grams[pairs[first:last, 1]]
        low, high = np.searchsorted(grams, mine), np.searchsorted(grams, mine, side="right")
        items = np.concatenate([gram_item[a:b] for a, b in zip(low, high)])
        counts = np.bincount(items, minlength=len(item_sizes))
        shares = counts / np.maximum(item_sizes, 1)
        best = int(np.argmax(shares))
        distinct = len(np.unique(document_grams[document_starts[document] : document_starts[document + 1]]))
        document_share = len(mine) / max(distinct, 1)
        if shares[best] >= config.threshold or (size == config.gram_words and document_share >= config.threshold):
            found[document] = (best, float(shares[best]), float(document_share), len(mine))
    return found
