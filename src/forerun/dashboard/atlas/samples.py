"""Documents one can read: of every cell those nearest to their cluster's centre and a uniform draw, with their text.

The uniform draw takes the least document ids: ids are content hashes, so the draw is uniform, the same in every build, and one can
be larger than another without disagreeing with it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forerun.base.lab import Lab
from forerun.dashboard.atlas.attributes import made_once, shards
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.text import Reader

FILE = "samples.parquet"
SEARCHED = 20_000  # assumed: uniform draws over all cells; 100 a cell of 200 say a share of 10% to 3 points, and make an index of a few MB
LEAST_OF_CELL = 20  # assumed: uniform draws of a cell, however many cells there are
MOST_OF_CELL = 100  # derived: a topic in 10% of a cell is told to 3 points by 100 draws; more would make the index larger than the texts
NEAREST = 8  # assumed: documents nearest to the centre, as many as people read
MOST_TOKENS = 1024  # assumed: of a text kept; the beginning says what a document is about
NEAREST_KIND, UNIFORM_KIND = "nearest", "uniform"
COLUMNS = ("id", "source", "source_id", "quality_score", "domain_cosine", "content_type", "num_tokens", "token_offset")


def samples(lab: Lab, book: Book) -> pa.Table:
    """`cell, kind, id, source, source_id, scores, num_tokens, text, cut`, by cell, kind and rank; made once, kept as Parquet."""
    return made_once(lab, book, FILE, _drawn)


def _drawn(lab: Lab, book: Book) -> pa.Table:
    uniform = min(max(SEARCHED // max(len(book.cells), 1), LEAST_OF_CELL), MOST_OF_CELL)
    reader = Reader(lab, book)
    chosen: dict[tuple[str, str], list[tuple]] = {}
    for placed in shards(lab, book, COLUMNS):
        table, name = placed.documents, placed.cell["name"]
        if not table.num_rows:
            continue
        ids = np.asarray(pc.sort_indices(table["id"]))[:uniform]
        _take(chosen, (name, UNIFORM_KIND), table, placed.shard["path"], ids, table["id"].take(pa.array(ids)).to_pylist(), uniform)
        if "domain_cosine" in table.column_names:
            cosine = -np.nan_to_num(np.asarray(table["domain_cosine"], np.float64), nan=-2.0)
            near = np.argsort(cosine, kind="stable")[:NEAREST]
            _take(chosen, (name, NEAREST_KIND), table, placed.shard["path"], near, cosine[near].tolist(), NEAREST)
    rows = []
    for (cell, kind), entries in sorted(chosen.items()):
        for rank, (_, shard, row) in enumerate(entries):
            rows.append({"cell": cell, "kind": kind, "rank": rank, "shard": shard, **row})
    by_shard: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_shard.setdefault(row["shard"], []).append(index)
    for shard, places in by_shard.items():
        spans = [(rows[place]["token_offset"], rows[place]["num_tokens"]) for place in places]
        for place, (text, cut) in zip(places, reader.texts(shard, spans, MOST_TOKENS)):
            rows[place] |= {"text": text, "cut": cut}
    for row in rows:
        del row["shard"], row["token_offset"]
    return (
        pa.Table.from_pylist(rows)
        if rows
        else pa.table({"cell": pa.array([], pa.string()), "kind": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    )


def _take(chosen: dict, key: tuple[str, str], table: pa.Table, shard: str, rows: np.ndarray, ranks: list, most: int) -> None:
    """Keep the `most` entries of least rank over all shards of a cell."""
    found = table.take(pa.array(rows)).to_pylist()
    entries = chosen.get(key, []) + [(rank, shard, row) for rank, row in zip(ranks, found)]
    entries.sort(key=lambda entry: (entry[0], entry[2]["id"]))
    chosen[key] = entries[:most]
