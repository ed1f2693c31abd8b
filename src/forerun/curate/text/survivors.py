"""From candidates to decisions: a document goes only if one kept document, not shorter, holds its content.

Components are chains: their ends may share nothing. So every removal is checked against a document that stays, by containment of
distinct word 3-grams, and written down with both ids. Source of rule and threshold: reference data-pipeline 1.5.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.base.errors import ConfigError

GRAM_WORDS = 3
EXACT_SCAN = 256  # assumed, as the original: kept documents compared one by one; above, an inverted index finds the likely ones first


@dataclass(frozen=True, kw_only=True)
class SurvivorConfig:
    """What counts as held by another document."""

    containment: float = 0.75
    """Least share of the document's distinct word 3-grams that the kept one has."""
    exempt_sources: tuple[str, ...] = ()
    """Sources from which nothing is removed here."""

    def __post_init__(self) -> None:
        if not 0 < self.containment <= 1:
            raise ConfigError(f"fuzzy.containment must lie in 0..1, 0 excluded, got {self.containment}", hint="0.75 is usual")


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
        ("novel_grams", pa.int64()),
        ("comparisons", pa.int64()),
    ]
)


def decide(
    ids: list[str],
    sources: list[str],
    component: NDArray[np.int64],
    grams: NDArray[np.uint64],
    starts: NDArray[np.int64],
    config: SurvivorConfig,
) -> pa.Table:
    """One row per removed document, in order of id. Independent of the order in which documents are given.

    Args:
        grams: distinct-or-not 3-gram hashes of all documents back to back; `starts` as in `words`.
    """
    clusters: dict[int, list[int]] = {}
    sizes = Counter(component.tolist())
    for member, root in enumerate(component.tolist()):
        if sizes[root] > 1:
            clusters.setdefault(root, []).append(member)
    rows = []
    for members in clusters.values():
        own = {member: np.unique(grams[starts[member] : starts[member + 1]]) for member in members}
        ranked = sorted(members, key=lambda member: (-(starts[member + 1] - starts[member]), ids[member]))
        cluster = min(ids[member] for member in members)
        kept: list[int] = []
        index: dict[int, list[int]] = {}
        for member in ranked:
            match = None if sources[member] in config.exempt_sources or not len(own[member]) else _best(member, kept, own, index)
            if match is not None and match[1] >= config.containment:
                holder, containment, jaccard, comparisons = match
                novel = round((1 - containment) * len(own[member]))
                rows.append(
                    (
                        ids[member],
                        sources[member],
                        ids[holder],
                        sources[holder],
                        cluster,
                        len(members),
                        containment,
                        jaccard,
                        novel,
                        comparisons,
                    )
                )
            else:
                kept.append(member)
                if len(members) > EXACT_SCAN:
                    for gram in own[member].tolist():
                        index.setdefault(gram, []).append(member)
    rows.sort()
    return pa.table([list(column) for column in zip(*rows)] if rows else [[] for _ in SCHEMA], schema=SCHEMA)


def _best(
    member: int, kept: list[int], own: dict[int, NDArray[np.uint64]], index: dict[int, list[int]]
) -> tuple[int, float, float, int] | None:
    """The kept document that holds most of this one: (holder, containment, Jaccard, comparisons)."""
    mine = own[member]
    if index:  # every kept document that shares a gram, counted exactly: rare or common grams alike
        shared = Counter(holder for gram in mine.tolist() for holder in index.get(gram, ()))
    else:
        shared = Counter({holder: int(np.isin(mine, own[holder], assume_unique=True).sum()) for holder in kept})
    if not shared:
        return None
    holder, common = min(shared.items(), key=lambda item: (-item[1], kept.index(item[0])))
    union = len(mine) + len(own[holder]) - common
    return holder, common / len(mine), common / union, len(shared)
