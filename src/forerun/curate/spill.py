"""One partition of tokenised documents on disk, before the store sorts them into cells. Any number of processes may spill their own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.base.files import fsync_folder, storage_errors
from forerun.loader.manifest import MAX_UINT16_VOCAB, NUM_QUALITY_BUCKETS

REQUIRED = ("id", "source", "source_id", "domain", "quality", "held_out", "num_bytes", "tokens")


def spill(run: Path, documents: pa.Table, vocab_size: int) -> None:
    """Write one partition to a folder that is whole or absent: columns `REQUIRED` and any scores; `tokens` are lists of ids without
    the end-of-document token.

    Raises: DataError for an id outside the vocabulary, a domain that is no folder name, or a quality outside 0-4.
    """
    _check(documents, vocab_size)
    part = run.with_name(run.name + ".part")
    with storage_errors(part):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        tokens = documents["tokens"].combine_chunks() if documents.num_rows else pa.array([], pa.large_list(pa.int32()))
        lengths = np.asarray(pc.list_value_length(tokens), np.int64)
        (part / "tokens.bin").write_bytes(np.asarray(tokens.flatten()).astype(dtype_of(vocab_size)).data)  # `tofile` hides a full disk
        table = documents.drop_columns(["tokens"]).append_column("num_tokens", pa.array(lengths))
        pq.write_table(table, part / "docs.parquet", compression="zstd")
        shutil.rmtree(run, ignore_errors=True)
        part.rename(run)
        fsync_folder(run.parent)


def dtype_of(vocab_size: int) -> np.dtype:
    """Of the ids of a store."""
    return np.dtype("<u2") if vocab_size <= MAX_UINT16_VOCAB else np.dtype("<u4")


def _check(documents: pa.Table, vocab_size: int) -> None:
    missing = [name for name in REQUIRED if name not in documents.column_names]
    assert not missing, f"columns {missing} are missing"
    assert documents["held_out"].type == pa.bool_()
    assert documents["quality"].type == pa.int8()
    for domain in pc.unique(documents["domain"]).to_pylist():
        if domain is None or slug(domain) != domain:
            raise DataError(
                f"domain {domain!r} is no folder name", hint=f"use {slug(domain or 'unknown')!r}; domain_titles holds the long name"
            )
    if documents.num_rows:
        quality = pc.min_max(documents["quality"]).as_py()
        if not 0 <= quality["min"] <= quality["max"] < NUM_QUALITY_BUCKETS:
            raise DataError(f"quality must be 0-4, got {quality['min']}..{quality['max']}", hint="bucket the score first")
        largest = pc.max(documents["tokens"].combine_chunks().flatten()).as_py()
        if largest is not None and largest >= vocab_size:
            raise DataError(f"token id {largest} is outside the vocabulary of {vocab_size}", hint="encode with the store's tokenizer")


def slug(title: str) -> str:
    """A name as a folder name: lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "unnamed"
