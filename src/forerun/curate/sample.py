"""The documents that models are trained on: those with the least ids, so the same however the input is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.curate.embed.quantize import from_int8
from forerun.curate.text.walk import text_bytes

SAMPLE_DOCUMENTS = 200_000  # assumed: documents the models are trained on
SAMPLE_BYTES = 512 << 20  # assumed: of their text
BATCH = 256  # assumed: texts that are Python strings at once
ROW_BITS = 40  # a document's place in one number: its row, and above it the partition


def sample_texts(partitions: Sequence[Path]) -> pa.Table:
    """`id`, `source`, `text` and `_at` (where it lies) of the documents with the least ids, up to `SAMPLE_DOCUMENTS` or `SAMPLE_BYTES`.

    Raises: DataError when there is none.
    """
    tables = [pq.read_table(path, columns=["id"]) for path in partitions]
    rows = [np.arange(table.num_rows) + (index << ROW_BITS) for index, table in enumerate(tables)]
    ids = pa.concat_tables([table.append_column("_at", pa.array(at)) for table, at in zip(tables, rows)])
    chosen = np.asarray(ids.sort_by("id").slice(0, SAMPLE_DOCUMENTS)["_at"])
    if sum(text_bytes(path) for path in partitions) > SAMPLE_BYTES:
        chosen = chosen[: max(1, int(np.searchsorted(np.cumsum(_sizes(partitions, chosen)), SAMPLE_BYTES, side="right")))]
    parts = []
    for index, path in enumerate(partitions):
        mine = _rows_in(chosen, index)
        if len(mine):
            table = pq.read_table(path, columns=["id", "source", "text"]).take(pa.array(mine))
            parts.append(table.append_column("_at", pa.array(mine + (index << ROW_BITS))))
    if not parts:
        raise DataError("no document is left to build a store from", hint="read the drop reasons of the steps before")
    sample = pa.concat_tables(parts).combine_chunks()  # once: whoever reads the buffers would else copy them
    order = np.asarray(pc.sort_indices(sample["id"]))
    return sample if (np.diff(order) == 1).all() else sample.take(pa.array(order))  # partitions by id are in order: no further copy


def each_text(sample: pa.Table) -> Iterator[str]:
    """The sample's texts, some at a time: as Python strings they take up to four times their bytes."""
    for start in range(0, sample.num_rows, BATCH):
        yield from sample["text"].slice(start, BATCH).to_pylist()


def with_vectors(sample: pa.Table, vectors: Sequence[Path]) -> pa.Table:
    """The sample with its int8 rows in the column `vector`, from the vector files of the partitions."""
    place = np.asarray(sample["_at"])
    rows = None
    for index, path in enumerate(vectors):
        mine = place >> ROW_BITS == index
        if mine.any():
            codes = np.load(path, mmap_mode="r")
            rows = np.empty((len(place), codes.shape[1]), np.int8) if rows is None else rows
            rows[mine] = codes[place[mine] & ((1 << ROW_BITS) - 1)]
    assert rows is not None
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    return sample.drop_columns(["_at"]).append_column("vector", column)


def vectors_of(sample: pa.Table) -> np.ndarray:
    """The sample's vectors, float32 `[documents, dimensions]`."""
    column = sample["vector"].combine_chunks()
    return from_int8(np.asarray(column.flatten()).reshape(sample.num_rows, -1))


def _rows_in(chosen: np.ndarray, index: int) -> np.ndarray:
    return np.sort(chosen[chosen >> ROW_BITS == index] & ((1 << ROW_BITS) - 1))


def _sizes(partitions: Sequence[Path], chosen: np.ndarray) -> np.ndarray:
    """Bytes of the chosen texts, in their order."""
    sizes = np.zeros(len(chosen), np.int64)
    for index, path in enumerate(partitions):
        mine = np.flatnonzero(chosen >> ROW_BITS == index)
        if len(mine):
            texts = pq.read_table(path, columns=["text"])["text"].cast(pa.large_binary())
            sizes[mine] = np.asarray(pc.binary_length(texts))[chosen[mine] & ((1 << ROW_BITS) - 1)]
    return sizes
