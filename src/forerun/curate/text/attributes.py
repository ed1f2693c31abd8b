"""Attribute files: per partition one Parquet file of the same name whose rows are the partition's documents in the same order.

They join by position, without a shuffle; row count and every id are compared, and any difference stops the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError


def part_name(index: int) -> str:
    """File name of a partition in every folder."""
    return f"part-{index:05d}.parquet"


def write_part(table: pa.Table, path: Path, *, row_group_size: int = 1 << 20) -> None:
    """Write a part whole or not at all; the same table gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    pq.write_table(table.replace_schema_metadata(None), beside, compression="zstd", compression_level=1, row_group_size=row_group_size)
    beside.replace(path)


def require_aligned(ids: pa.ChunkedArray, attribute: pa.Table, path: Path) -> None:
    """Raises: DataError when an attribute file does not hold exactly the partition's documents in its order."""
    if attribute.num_rows != len(ids):
        raise DataError(
            f"{path} has {attribute.num_rows} rows, its partition {len(ids)}",
            hint="the partition was made again; delete the attribute's folder",
        )
    same = pc.equal(ids.combine_chunks(), attribute["id"].combine_chunks())
    if not pc.all(same, min_count=0).as_py():
        row = int(np.flatnonzero(~np.asarray(same))[0])
        raise DataError(
            f"{path} row {row} is {attribute['id'][row].as_py()}, its partition has {ids[row].as_py()}",
            hint="the partition was made again; delete the attribute's folder",
        )


def kept_rows(partition: Path, attributes: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """Documents of a partition that no attribute gives a reason to drop.

    Args:
        columns: of the partition; `id` is always read.
    Raises: DataError when a file does not align.
    """
    table = pq.read_table(partition, columns=list(dict.fromkeys(["id", *columns])))
    return table.filter(pa.array(kept_mask(table["id"], attributes)))


def kept_mask(ids: pa.ChunkedArray, attributes: Sequence[Path]) -> np.ndarray:
    """Which documents no attribute gives a reason to drop."""
    kept = np.ones(len(ids), bool)
    for path in attributes:
        attribute = pq.read_table(path, columns=["id", "reason"])
        require_aligned(ids, attribute, path)
        kept &= np.asarray(attribute["reason"].is_null())
    return kept
