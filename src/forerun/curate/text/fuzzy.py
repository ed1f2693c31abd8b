"""Near-duplicates of a table in one call: signatures, bands, components, and a checked decision for every removal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from forerun.curate.quality.heuristic import heuristic_scores
from forerun.curate.quality.statistics import TYPES, content_types, text_statistics
from forerun.curate.text.lsh import band_keys, components
from forerun.curate.text.minhash import MinHashConfig, signatures
from forerun.curate.text.survivors import SurvivorConfig, decide

SUSPICIOUS = 0.5  # assumed: a source losing more of itself is named; Marin's wrong rule took a median of 76% per source


def near_duplicates(
    table: pa.Table, fuzzy: MinHashConfig, survivors: SurvivorConfig, *, quality: NDArray[np.floating] | None = None
) -> pa.Table:
    """Rows of removed documents (`survivors.SCHEMA`).

    Args:
        table: `id` (unique), `source`, `text`.
        quality: a score of each document, for `survivor="quality"`; without one, rules on text statistics give it.
    """
    signature, has_text = signatures(table["text"], fuzzy)
    return decided(table, components(band_keys(signature, fuzzy), has_text), survivors, quality=quality)


def decided(
    table: pa.Table, component: NDArray[np.int64], survivors: SurvivorConfig, *, quality: NDArray[np.floating] | None = None
) -> pa.Table:
    """As `near_duplicates`, for documents whose components are known; whole components, so that they can be decided one batch at a time."""
    if survivors.survivor == "quality" and quality is None:
        quality = _quality_by_rules(table["text"], component)
    return decide(table["id"].to_pylist(), table["source"].to_pylist(), table["text"], component, survivors, quality=quality)


def _quality_by_rules(texts: pa.ChunkedArray, component: NDArray[np.int64]) -> NDArray[np.floating]:
    """Scores of text statistics, all members of a component by the rules of its most common content type."""
    statistics = text_statistics(texts)
    types = content_types(statistics)
    votes = np.zeros((len(component), len(TYPES)), np.int32)
    np.add.at(votes, (component, types), 1)
    scores = heuristic_scores(statistics, votes.argmax(axis=1)[component])
    return np.round(scores, 2)  # finer differences between copies are noise of the standardisation


def removal_report(sources: pa.ChunkedArray, removed: pa.Table) -> dict[str, Any]:
    """Share removed per source, and the sources that lose most of themselves: that is how a wrong rule shows."""
    size, gone = Counter(sources.to_pylist()), Counter(removed["source"].to_pylist())
    shares = {name: round(gone[name] / size[name], 4) for name in sorted(gone)}
    return {"removed_share": shares, "suspicious": [name for name, share in shares.items() if share > SUSPICIOUS]}
