"""What a reader needs to check the removals: a sample of pairs and of contaminated documents, with both texts side by side.

Files of the first half's folder, read by the atlas: `pairs.parquet` (removed documents beside the kept one that holds them, and
kept documents that nearly were removed) and `hits.parquet` (contaminated documents beside the evaluation item they hit). The
sample is drawn by document id, so it is the same in every build.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from forerun.curate.text.fuzzy import near_duplicates
from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.survivors import SurvivorConfig

MOST_ROWS = 400  # assumed: pairs of one kind kept with text; a reviewed share of 5% is then known to 2%
MOST_CHARS = 20_000  # assumed: of a text; longer ones are cut and say so
MOST_COMPARED = 200_000  # assumed: kept documents searched for near misses, those with the least ids
NEAR_FACTOR = 2 / 3  # assumed: containment over this share of the threshold is a near miss

REMOVED, KEPT = "removed", "kept"


def pairs(table: pa.Table, removed: pa.Table, fuzzy: MinHashConfig, survivors: SurvivorConfig) -> pa.Table:
    """Sampled pairs with both texts: `kind` is `removed`, or `kept` for pairs that a looser rule would have removed.

    Args:
        table: the documents before the removal, `id`, `source`, `text`.
        removed: the decisions, `survivors.SCHEMA`.
    """
    kept = table.filter(pc.invert(pc.is_in(table["id"], removed["id"].combine_chunks()))).sort_by("id").slice(0, MOST_COMPARED)
    looser = SurvivorConfig(containment=survivors.containment * NEAR_FACTOR, exempt_sources=survivors.exempt_sources)
    near = near_duplicates(kept, fuzzy, looser)
    parts = [
        rows.sort_by("id").slice(0, MOST_ROWS).append_column("kind", pa.array([kind] * min(rows.num_rows, MOST_ROWS), pa.string()))
        for kind, rows in ((REMOVED, removed), (KEPT, near))
    ]
    chosen = pa.concat_tables(parts, promote_options="default")
    return _with_texts(_with_texts(chosen, "id", "text", table), "kept_id", "kept_text", table)


def hits(table: pa.Table, contaminated: pa.Table, items: pa.Table) -> pa.Table:
    """Contaminated documents with their text and that of the item.

    Args:
        table: the documents before the removal.
        items: `id`, `text` of evaluation items and held-out documents.
    """
    chosen = _with_texts(contaminated.sort_by("id").slice(0, MOST_ROWS), "id", "text", table)
    source = table["source"].take(pc.index_in(chosen["id"], table["id"].combine_chunks()))
    return _with_texts(chosen.append_column("source", source), "item", "item_text", items)


def _with_texts(rows: pa.Table, key: str, name: str, table: pa.Table) -> pa.Table:
    """`rows` with the text of the document each names in column `key`, cut to `MOST_CHARS`."""
    place = pc.index_in(rows[key].cast(pa.string()), table["id"].cast(pa.string()).combine_chunks()).to_pylist()
    texts = [None if row is None else table["text"][row].as_py()[:MOST_CHARS] for row in place]  # one by one: a text may have 64 MiB
    return rows.append_column(name, pa.array(texts, pa.string()))
