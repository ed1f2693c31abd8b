"""The tasks of the text stages: each reads the files it is told, calls one pure function of tables, and writes one part.

This is all the engine sees. Arguments are plain data; a part is whole or absent, so a task that was killed is simply done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from forerun.base.config import decode
from forerun.curate.ingest.read import read_files
from forerun.curate.ingest.records import IngestConfig
from forerun.curate.ingest.source import InputFile, SourceFile
from forerun.curate.text.attributes import kept_mask, write_part
from forerun.curate.text.exact import ExactConfig, exact
from forerun.curate.text.filters import FilterConfig, judged
from forerun.curate.text.normalize import NormalizeConfig, normalize

ROW_GROUP_BYTES = 1 << 20  # assumed: text in a row group of a run; ranges of ids are read by row group
DOCUMENTS = ("id", "text", "source", "source_id", "licence")
SET_ASIDE = "set_aside"
ORDER = [("id", "ascending"), ("source", "ascending"), ("source_id", "ascending"), ("licence", "ascending")]


def ingest_group(files: list[dict[str, Any]], source: dict[str, Any], config: dict[str, Any], out: str) -> None:
    """Read some files of a source to raw parts."""
    read_files(
        [decode(file, InputFile, where="task") for file in files],
        decode(source, SourceFile, where="task"),
        decode(config, IngestConfig, where="task"),
        Path(out),
    )


def normalize_raw(raw: str, run: str, dropped: str, config: dict[str, Any]) -> None:
    """One raw part to a run sorted by id, and the names of the documents dropped."""
    table = normalize(pq.read_table(raw), decode(config, NormalizeConfig, where="task"))
    gone = table.filter(table["reason"].is_valid())
    write_part(gone.select(["id", "source", "source_id", "reason"]), Path(dropped))
    kept = _sorted(table.filter(table["reason"].is_null()).select(DOCUMENTS))
    size = pc.sum(pc.binary_length(kept["text"].cast(pa.large_binary()))).as_py() or 0
    rows = max(1, kept.num_rows * ROW_GROUP_BYTES // max(size, 1))
    write_part(kept, Path(run), row_group_size=rows)


def gather_range(runs: list[str], low: str, high: str, out: str) -> None:
    """All documents of a range of ids, from every run, in one order whatever the runs."""
    inside = ds.field("id") >= low
    if high:
        inside = inside & (ds.field("id") < high)
    write_part(_sorted(ds.dataset(runs, schema=_schema(), format="parquet").to_table(columns=list(DOCUMENTS), filter=inside)), Path(out))


def exact_part(partition: str, earlier: list[str], out: str, config: dict[str, Any]) -> None:
    """Mark all copies of a text but one."""
    assert not earlier, "copies are compared before anything is dropped"
    documents = pq.read_table(partition, columns=["id", "source", "source_id"])
    write_part(exact(documents, decode(config, ExactConfig, where="task")), Path(out))


def filter_part(partition: str, earlier: list[str], out: str, config: dict[str, Any]) -> None:
    """Judge the documents that are still in."""
    documents = pq.read_table(partition, columns=list(DOCUMENTS))
    kept = kept_mask(documents["id"], [Path(path) for path in earlier])
    rows = judged(documents.filter(pa.array(kept)), decode(config, FilterConfig, where="task"))
    write_part(spread(rows, documents["id"], kept), Path(out))


def pass_part(partition: str, earlier: list[str], with_language: bool, out: str) -> None:
    """The documents that nothing dropped, with the language the filters saw when they looked."""
    documents = pq.read_table(partition, columns=list(DOCUMENTS))
    if with_language:
        documents = documents.append_column("language", pq.read_table(earlier[1], columns=["language"])["language"])
    write_part(documents.filter(pa.array(kept_mask(documents["id"], [Path(path) for path in earlier]))), Path(out))


def mark_part(partition: Path, earlier: Sequence[Path], rows: pa.Table, reason: str, out: Path) -> None:
    """An attribute from decisions that name documents: `reason` for those in `rows`, with its other columns as the evidence."""
    ids = pq.read_table(partition, columns=["id"])["id"]
    kept = kept_mask(ids, earlier)
    inside = ids.filter(pa.array(kept))
    place = pc.index_in(inside, rows["id"].combine_chunks())
    nothing = pa.scalar(None, pa.string())
    columns = {"id": inside, "reason": pc.if_else(place.is_valid(), pa.scalar(reason), nothing)}
    for name in rows.column_names:
        if name not in ("id", "source"):
            columns[name] = rows[name].take(place) if rows.num_rows else pa.nulls(len(place), rows.schema.field(name).type)
    write_part(spread(pa.table(columns), ids, kept), out)


def set_aside_part(partition: Path, earlier: Sequence[Path], out: Path) -> None:
    """The attribute of a partition whose worker died each time: what was still in is dropped, and counted."""
    ids = pq.read_table(partition, columns=["id"])["id"]
    kept = kept_mask(ids, earlier)
    write_part(pa.table({"id": ids, "reason": pa.array(np.where(kept, SET_ASIDE, "").tolist(), pa.string(), mask=~kept)}), out)


def spread(rows: pa.Table, ids: pa.ChunkedArray, mask: np.ndarray) -> pa.Table:
    """Attributes of some documents as attributes of all: the others get nulls. `rows` has one row per true of `mask`, in order."""
    place = np.cumsum(mask) - 1
    take = pa.array(place, mask=~mask)
    columns = {name: rows[name].take(take) for name in rows.column_names if name != "id"}
    return pa.table({"id": ids, **columns})


def id_ranges(num_partitions: int) -> list[tuple[str, str]]:
    """(first, end) of each partition: equal shares of the 32-bit prefixes of ids; the last end is empty."""
    edges = [f"{(index << 32) // num_partitions:08x}" for index in range(num_partitions)]
    return list(zip(edges, [*edges[1:], ""]))


def _sorted(documents: pa.Table) -> pa.Table:
    return documents.take(pc.sort_indices(documents.drop_columns(["text"]), sort_keys=ORDER))


def _schema() -> pa.Schema:
    return pa.schema([(name, pa.large_string() if name == "text" else pa.string()) for name in DOCUMENTS])
