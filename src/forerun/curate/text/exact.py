"""Equal texts: the copy of the first source stays, the others are marked with where the kept one came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EXACT_DUPLICATE = "exact_duplicate"


@dataclass(frozen=True, kw_only=True)
class ExactConfig:
    """Whose copy stays."""

    source_order: tuple[str, ...] = ()
    """Sources whose copies win, first wins over second; all others follow by name."""


def exact(documents: pa.Table, config: ExactConfig) -> pa.Table:
    """One row per document of a partition: `id`, `reason` (null for the one of each id that stays), `kept_source`, `kept_source_id`.

    Args:
        documents: every copy of each of its ids, equal ids together, copies in an order that follows from their content.
    """
    ids = documents["id"].to_numpy()
    changed = np.ones(len(ids), bool)
    changed[1:] = ids[1:] != ids[:-1]
    group = np.cumsum(changed) - 1
    order = np.lexsort((np.arange(len(ids)), _rank(documents["source"], config), group))
    kept = order[np.flatnonzero(changed)]  # groups keep their places in the sorted order, so each begins where it begins in the partition
    holder = pa.array(kept[group])
    repeated = pa.array(kept[group] != np.arange(len(ids)))
    nothing = pa.nulls(len(ids), pa.string())
    return pa.table(
        {
            "id": documents["id"],
            "reason": pc.if_else(repeated, EXACT_DUPLICATE, nothing),
            "kept_source": pc.if_else(repeated, documents["source"].take(holder), nothing),
            "kept_source_id": pc.if_else(repeated, documents["source_id"].take(holder), nothing),
        }
    )


def _rank(sources: pa.ChunkedArray, config: ExactConfig) -> np.ndarray:
    """Each document's place in the order of sources."""
    names = sorted(pc.unique(sources).to_pylist())
    order = [*(name for name in config.source_order if name in names), *(name for name in names if name not in config.source_order)]
    return np.asarray(pc.index_in(sources, pa.array(order, pa.string())))
