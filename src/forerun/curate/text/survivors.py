"""From candidates to decisions: a document goes only if one kept document holds its content.

Components are chains: their ends may share nothing. So every removal is checked against a document that stays, by containment of
distinct word 3-grams, and written down with both ids. A source cannot lose what no kept document holds, whatever its templates: what
several kept documents of a cluster share does not count alone.
Source of rule and threshold: Marin's verification (containment 0.75 of case-folded white-space token 3-grams).
"""

# N documents, M members of components, G grams

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from forerun.base.errors import ConfigError
from forerun.curate.text.containment import distinct, held_by, least_of_each, not_in, rows_of
from forerun.curate.text.words import ngram_hashes, word_hashes

GRAM_WORDS = 3
MOST_GRAMS = 1 << 24  # assumed: words solved at once; with grams, index and postings about 80 bytes each, so 1.3 GiB; twice that at most
MOST_PIECES = 1 << 16  # assumed: pieces of one component


@dataclass(frozen=True, kw_only=True)
class SurvivorConfig:
    """What counts as held by another document, and who may hold."""

    containment: float = 0.75
    """Least share of the document's distinct word 3-grams that the kept one has."""
    survivor: Literal["longest", "quality"] = "longest"
    """Who is kept first: the longest document, or the best by quality score and only then the longest."""
    exempt_sources: tuple[str, ...] = ()
    """Sources from which nothing is removed here; they may hold documents of others."""

    template_documents: int = 3
    """Grams that so many kept documents of a cluster hold are its template: the kept one must have its share of the others, too, where
    they are a tenth or more."""

    def __post_init__(self) -> None:
        if self.template_documents < 1:
            raise ConfigError(f"survivors.template_documents must be at least 1, got {self.template_documents}", hint="3 is usual")
        if not 0 < self.containment <= 1:
            raise ConfigError(f"survivors.containment must lie in 0..1, 0 excluded, got {self.containment}", hint="0.75 is usual")


SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("kept_id", pa.string()),
        ("kept_source", pa.string()),
        ("cluster", pa.string()),
        ("cluster_size", pa.int64()),
        ("containment", pa.float64()),
        ("jaccard", pa.float64()),
        ("comparisons", pa.int64()),
        ("novel_grams", pa.int64()),
        ("novel_words", pa.int64()),
    ]
)


def decide(
    ids: Sequence[str],
    sources: Sequence[str],
    texts: pa.Array | pa.ChunkedArray,
    component: NDArray[np.int64],
    config: SurvivorConfig,
    *,
    quality: NDArray[np.floating] | None = None,
) -> pa.Table:
    """One row per removed document, in order of id. Independent of the order in which documents are given.

    Args:
        component: of each document, from `lsh.components`.
        quality: a score of each document, higher is better; needed for `survivor="quality"`.
    """
    if config.survivor == "quality" and quality is None:
        raise ConfigError("survivors.survivor 'quality' needs a quality score of every document", hint="use 'longest', or give scores")
    size = np.bincount(component, minlength=len(component))
    member = np.flatnonzero(size[component] > 1)
    if not len(member):
        return SCHEMA.empty_table()
    names, origin = pa.array(ids, pa.string()), pa.array(sources, pa.string())
    by_id = np.asarray(pc.sort_indices(names))
    place = np.empty(len(names), np.int64)
    place[by_id] = np.arange(len(names))
    words, starts = word_hashes(texts.take(pa.array(member)), "tokens")
    group = _split(component[member], words, starts)
    rank = [place[member], -np.diff(starts)]  # the last key is the first to count
    if config.survivor == "quality" and quality is not None:
        rank.append(-np.asarray(quality, np.float64)[member])
    order = np.lexsort((*rank, group))
    removable = ~np.isin(np.asarray(sources, object)[member[order]], config.exempt_sources)
    parts = [_solve(words, starts, order[part], group[order[part]], removable[part], config) for part in _batches(order, group, starts)]
    one, other, common, grams, grams_of_kept, compared, novel = (np.concatenate(column) for column in zip(*parts))
    smallest = np.full(len(component), len(names), np.int64)
    np.minimum.at(smallest, component[member], place[member])
    gone, kept = member[one], member[other]
    columns = [
        names.take(pa.array(gone)),
        origin.take(pa.array(gone)),
        names.take(pa.array(kept)),
        origin.take(pa.array(kept)),
        names.take(pa.array(by_id[smallest[component[gone]]])),
        size[component[gone]],
        common / grams,
        common / (grams + grams_of_kept - common),
        compared,
        grams - common,
        novel,
    ]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA).sort_by("id")


def _split(component: NDArray[np.int64], words: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups to solve: components, but one of too many words becomes several, by each member's least gram.

    Near-duplicates mostly share it, so they stay together; what is separated is kept, never wrongly removed.
    """
    group = component.copy()
    weight = np.bincount(component, np.diff(starts))
    for large in np.flatnonzero(weight > MOST_GRAMS):
        members = np.flatnonzero(component == large)
        pieces = int(np.ceil(weight[large] / MOST_GRAMS))
        least = least_of_each(words, starts, members, GRAM_WORDS)
        group[members] = len(component) + int(large) * MOST_PIECES + (least % np.uint64(min(pieces, MOST_PIECES))).astype(np.int64)
    return group


def _batches(order: NDArray[np.int64], group: NDArray[np.int64], starts: NDArray[np.int64]) -> list[slice]:
    """Slices of `order` that hold whole groups, of about `MOST_GRAMS` words each."""
    sizes = np.diff(starts)[order]
    before = np.cumsum(sizes) - sizes
    first = np.concatenate([[True], np.diff(group[order]) != 0])
    batch = before[first][np.cumsum(first) - 1] // MOST_GRAMS
    edges = [0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(order)]
    return [slice(begin, end) for begin, end in zip(edges, edges[1:])]


def _solve(
    words: NDArray[np.uint64],
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    group: NDArray[np.int64],
    removable: NDArray[np.bool_],
    config: SurvivorConfig,
) -> tuple[NDArray[np.int64], ...]:
    """Removed members and who holds them, as indices of members, with the counts a decision row needs."""
    own, own_starts = rows_of(words, starts, order)
    grams, gram_starts = distinct(*ngram_hashes(own, own_starts, GRAM_WORDS))
    holder, common, compared = held_by(grams, gram_starts, group, removable, config.containment, config.template_documents)
    gone = np.flatnonzero(holder >= 0)
    kept = holder[gone]
    num_grams = np.diff(gram_starts)
    novel = not_in(*distinct(own, own_starts), gone, kept)
    return order[gone], order[kept], common[gone], num_grams[gone], num_grams[kept], compared[gone], novel
