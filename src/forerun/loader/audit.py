"""Which documents a step read, and everything the store knows about one document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.loader.batches import Batches
from forerun.loader.manifest import Cell
from forerun.loader.store import TokenStore


@dataclass(frozen=True)
class Reading:
    """A stretch of one document inside one row of a batch."""

    row: int
    cell: str
    id: str
    source: str
    source_id: str
    first_token: int
    """Position in the document of the stretch's first token."""
    num_tokens: int
    """Tokens read."""


@dataclass(frozen=True)
class Found:
    """Where a document lies."""

    cell: Cell
    shard: int
    row: dict[str, Any]
    """Its line in the shard's table: provenance and every score."""


def documents_at(batches: Batches, step: int) -> list[Reading]:
    """The documents of a step, in reading order. An end-of-document token counts to the document it ends."""
    readings = []
    for piece in batches.pieces(step):
        cell = batches.store.cells[piece.cell]
        ring, position, left = batches.ring_of(piece.cell), piece.start, piece.length
        while left:
            shard = int(np.searchsorted(cell.shard_starts, position, side="right")) - 1
            offset = int(cell.shard_starts[shard])
            table = _documents(batches.store.folder, cell.cell.shards[shard].docs_path)
            offsets = np.asarray(table["token_offset"])
            index = int(np.searchsorted(offsets, position - offset, side="right")) - 1
            document = {name: table[name][index].as_py() for name in ("id", "source", "source_id", "token_offset", "num_tokens")}
            inside = position - offset - document["token_offset"]
            length = min(left, document["num_tokens"] - inside, ring - position)
            readings.append(Reading(piece.row, piece.cell, document["id"], document["source"], document["source_id"], inside, length))
            left -= length
            position = (position + length) % ring
    return readings


def find_document(store: TokenStore, id: str) -> Found:
    """A document by its id or an unambiguous beginning of it. Raises: DataError when none or several match."""
    found: list[Found] = []
    for cell in (*store.manifest.cells, *store.manifest.held_out):
        for index, shard in enumerate(cell.shards):
            table = pq.read_table(store.folder / shard.docs_path, filters=[("id", ">=", id), ("id", "<", id + "~")])
            found += [Found(cell, index, row) for row in table.to_pylist()]
    if len(found) != 1:
        problem = f"{len(found)} documents begin with" if found else "no document has"
        raise DataError(f"{problem} id {id!r}", hint="give more digits" if found else "`forerun data explain` knows dropped documents")
    return found[0]


def tokens_of(store: TokenStore, found: Found) -> np.ndarray:
    """The ids of a document without its end-of-document token."""
    cells = store.held_out if found.cell.split == "held_out" else store.cells
    start = found.row["token_offset"]
    return cells[found.cell.name].shard(found.shard)[start : start + found.row["num_tokens"] - 1].astype(np.int32)


def cell_table(store: TokenStore, cell: Cell) -> pa.Table:
    """Every document of a cell with its scores, without removed ones: what is in this cell."""
    tables = [pq.read_table(store.folder / shard.docs_path) for shard in cell.shards]
    whole = pa.concat_tables(tables, promote_options="default")
    gone = pa.array([removal.id for removal in store.manifest.removed], pa.string())
    return whole.filter(pc.invert(pc.is_in(whole["id"], gone)))


@lru_cache(maxsize=64)
def _documents(folder: Path, path: str) -> pa.Table:
    return pq.read_table(folder / path, columns=["id", "source", "source_id", "token_offset", "num_tokens"])
