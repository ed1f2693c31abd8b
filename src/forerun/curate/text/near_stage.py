"""Near-duplicates over partitions: band keys per partition, components of all keys, then each cluster decided with its whole text.

Only keys are held for all documents at once (8 bytes per band and document); text is held for one batch of clusters at a time.
"""

# N documents, B bands

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from forerun.base.config import decode
from forerun.curate.text.attributes import kept_mask, write_part
from forerun.curate.text.fuzzy import decided
from forerun.curate.text.lsh import band_keys, components
from forerun.curate.text.minhash import MinHashConfig, signatures
from forerun.curate.text.survivors import SurvivorConfig

NEAR_DUPLICATE = "near_duplicate"
BATCH_BYTES = 64 << 20  # assumed: text of the clusters decided in one task, unless one cluster is larger


def keys_part(partition: str, earlier: list[str], out: str, config: dict[str, Any]) -> None:
    """Band keys of the documents that are still in: `id`, `row` in the partition, `num_bytes`, `has_text`, `keys`."""
    table = pq.read_table(partition, columns=["id", "text"])
    kept = kept_mask(table["id"], [Path(path) for path in earlier])
    table = table.filter(pa.array(kept))
    fuzzy = decode(config, MinHashConfig, where="task")
    signature, has_text = signatures(table["text"], fuzzy)
    keys = np.ascontiguousarray(band_keys(signature, fuzzy).T)
    columns = {
        "id": table["id"],
        "row": pa.array(np.flatnonzero(kept).astype(np.int32)),
        "num_bytes": pc.binary_length(table["text"].cast(pa.large_binary())).cast(pa.int64()),
        "has_text": pa.array(has_text),
        "keys": pa.FixedSizeListArray.from_arrays(pa.array(keys.ravel()), fuzzy.bands),
    }
    write_part(pa.table(columns), Path(out))


def find_candidates(keys: Sequence[Path], out: Sequence[Path]) -> int:
    """Components over all partitions; writes per partition `row`, `cluster`, `batch` of every document that has company.

    Returns: batches, each of whole clusters.
    """
    tables = [pq.read_table(path, columns=["row", "num_bytes", "has_text", "keys"]) for path in keys]
    edges = np.cumsum([0, *(table.num_rows for table in tables)])
    all_keys = np.concatenate(
        [np.asarray(table["keys"].combine_chunks().flatten()).reshape(table.num_rows, -1) for table in tables if table.num_rows]
    )
    has_text = np.concatenate([np.asarray(table["has_text"]) for table in tables])
    sizes = np.concatenate([np.asarray(table["num_bytes"]) for table in tables])
    component = components(np.ascontiguousarray(all_keys.T), has_text)
    candidate = np.bincount(component, minlength=len(component))[component] > 1
    batch, num_batches = _batches(component, candidate, sizes)
    for index, (table, path) in enumerate(zip(tables, out)):
        mine = slice(int(edges[index]), int(edges[index + 1]))
        inside = candidate[mine]
        columns = {
            "row": pa.array(np.asarray(table["row"])[inside]),
            "cluster": pa.array(component[mine][inside]),
            "batch": pa.array(batch[mine][inside]),
        }
        write_part(pa.table(columns), path)
    return num_batches


def _batches(component: NDArray[np.int64], candidate: NDArray[np.bool_], sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """A batch for every cluster, filled in order of the clusters' first documents."""
    weight = np.bincount(component, np.where(candidate, sizes, 0), minlength=len(component))
    batch = (np.cumsum(weight) // BATCH_BYTES).astype(np.int64)
    used, number = np.unique(batch[component[candidate]], return_inverse=True)
    out = np.full(len(component), -1, np.int64)
    out[candidate] = number
    return out, len(used)


def candidate_text_part(partition: str, candidates: str, out: str) -> None:
    """Text of a partition's candidates, by batch, so that a batch reads only its own."""
    chosen = pq.read_table(candidates)
    table = pq.read_table(partition, columns=["id", "source", "text"]).take(chosen["row"])
    table = table.append_column("cluster", chosen["cluster"]).append_column("batch", chosen["batch"])
    order = pc.sort_indices(table.drop_columns(["text"]), sort_keys=[("batch", "ascending"), ("id", "ascending")])
    write_part(table.take(order), Path(out), row_group_size=256)


def decide_batch(texts: list[str], batch: int, out: str, config: dict[str, Any]) -> None:
    """Decisions about whole clusters (`survivors.SCHEMA`)."""
    table = ds.dataset(texts, format="parquet").to_table(filter=ds.field("batch") == batch).sort_by("id")
    _, component = np.unique(np.asarray(table["cluster"]), return_inverse=True)
    first = np.full(component.max(initial=-1) + 1, table.num_rows, np.int64)
    np.minimum.at(first, component, np.arange(table.num_rows))
    write_part(decided(table, first[component], decode(config, SurvivorConfig, where="task")), Path(out))
