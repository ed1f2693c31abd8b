"""Decontamination over partitions: each is scanned for the items' grams, then all hits are judged together.

Boilerplate is a property of the whole corpus, so it is decided over all hits; only documents with hits have their text read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.config import decode
from forerun.curate.store import held_out_mask
from forerun.curate.text.attributes import kept_mask, write_part
from forerun.curate.text.decontaminate import Contamination, DecontaminateConfig, index_of, judge
from forerun.curate.text.gram_index import GramIndex, Hits, scan

CONTAMINATED = "contaminated"
ITEMS = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("held_out", pa.bool_())])


def gather_items(
    partitions: Sequence[Path], earlier: Sequence[Sequence[Path]], held_out_fraction: float, evals: pa.Table | None
) -> pa.Table:
    """What to look for: the held-out documents that are still in, and evaluation items from outside."""
    tables = []
    for partition, attributes in zip(partitions, earlier):
        ids = pq.read_table(partition, columns=["id"])["id"]
        wanted = kept_mask(ids, attributes) & np.asarray(held_out_mask(ids, held_out_fraction))
        if wanted.any():
            tables.append(_items(pq.read_table(partition, columns=["id", "text"]).filter(pa.array(wanted)), held_out=True))
    if evals is not None:
        tables.append(_items(evals.select(["id", "text"]), held_out=False))
    return pa.concat_tables([table.cast(ITEMS) for table in tables]) if tables else ITEMS.empty_table()


def _items(table: pa.Table, *, held_out: bool) -> pa.Table:
    return table.append_column("held_out", pa.array([held_out] * table.num_rows))


def scan_part(partition: str, earlier: list[str], items: str, held_out_fraction: float, out: str, config: dict[str, Any]) -> None:
    """Hits in the training documents that are still in: `row` in the partition, `entry`, `end`; and `num_grams` of every such document."""
    table = pq.read_table(partition, columns=["id", "text"])
    rows = np.flatnonzero(_train_mask(table["id"], [Path(path) for path in earlier], held_out_fraction))
    index = _index(items, json.dumps(config, sort_keys=True))
    hits = scan(table["text"].take(pa.array(rows)), index)
    write_part(pa.table({"row": rows[hits.document], "entry": hits.entry, "end": hits.end}), Path(out))


def judge_all(
    partitions: Sequence[Path],
    earlier: Sequence[Sequence[Path]],
    hits: Sequence[Path],
    items: pa.Table,
    held_out_fraction: float,
    config: DecontaminateConfig,
) -> tuple[Contamination, int]:
    """Which documents go, and how many were searched. Text is loaded for documents with hits only."""
    ids, sources, texts, document, entry, end = [], [], [], [], [], []
    offset = 0
    for partition, attributes, path in zip(partitions, earlier, hits):
        table = pq.read_table(partition, columns=["id", "source"])
        rows = np.flatnonzero(_train_mask(table["id"], attributes, held_out_fraction))
        found = pq.read_table(path)
        place = np.searchsorted(rows, np.asarray(found["row"]))
        has_hit = np.zeros(len(rows), bool)
        has_hit[place] = True
        ids += table["id"].take(pa.array(rows)).to_pylist()
        sources += table["source"].take(pa.array(rows)).to_pylist()
        texts.append(_only(partition, rows, has_hit))
        document.append(place + offset)
        entry.append(np.asarray(found["entry"]))
        end.append(np.asarray(found["end"]))
        offset += len(rows)
    joined = Hits(
        document=np.concatenate(document).astype(np.int64),
        entry=np.concatenate(entry).astype(np.int64),
        end=np.concatenate(end).astype(np.int64),
        num_grams=np.zeros(offset, np.int64),
    )
    column = pa.chunked_array(texts, pa.large_string())
    return judge(ids, sources, column, items, index_of(items, config), joined, config), offset


@lru_cache(maxsize=1)
def _index(items: str, config: str) -> GramIndex:
    """Once a process: held-out documents are a share of the corpus, so an index a partition would cost its square."""
    return index_of(pq.read_table(items), decode(json.loads(config), DecontaminateConfig, where="task"))


def _train_mask(ids: pa.ChunkedArray, earlier: Sequence[Path], held_out_fraction: float) -> np.ndarray:
    return kept_mask(ids, earlier) & ~np.asarray(held_out_mask(ids, held_out_fraction))


def _only(partition: Path, rows: np.ndarray, has_hit: np.ndarray) -> pa.Array:
    """Texts of some rows, null where they are not needed."""
    if not has_hit.any():
        return pa.nulls(len(rows), pa.large_string())
    texts = pq.read_table(partition, columns=["text"])["text"].combine_chunks().take(pa.array(rows[has_hit]))
    return texts.take(pa.array(np.cumsum(has_hit) - 1, mask=~has_hit)).cast(pa.large_string())
