"""What a store's document tables say, added up: tokens by cell and source, and scores by source. Made once, kept beside the store."""

# D documents

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.base.files import replacing
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import Book

SOURCE_CELLS = "source_cells.parquet"
VERSION = 5  # raised whenever what is made from a store reads or is drawn otherwise
LEAST_DOCUMENTS = 200  # assumed: fewer documents may fall into one bucket, or go entirely, by chance
ONE_BUCKET = 0.98  # assumed: share of a source's tokens in one quality bucket that makes its quality uninformative
ALL_DUPLICATES = 0.9  # measured: a wrong rule removed over 95% of 15 of 113 public sources; 90% of a source is worth a look either way


@dataclass(frozen=True)
class Placed:
    """Columns of one shard's documents."""

    cell: Any
    """The manifest's entry of the cell."""
    shard: Any
    documents: pa.Table


def folder_of(lab: Lab, book: Book) -> Path:
    """What is kept of this data set beside its store: the map of fine clusters, reviews."""
    return lab.atlas / (book.digest or book.key)


def made_folder(lab: Lab, book: Book) -> Path:
    """What is made from the store's files and can be made again; another version makes its own."""
    return folder_of(lab, book) / f"made-{VERSION}"


def made_once(lab: Lab, book: Book, name: str, make: Callable[[Lab, Book], pa.Table]) -> pa.Table:
    """The table kept under a name in the made folder; the first time it is made and kept."""
    path = made_folder(lab, book) / name
    if path.exists():
        return pq.read_table(path)
    table = make(lab, book)
    with replacing(path) as beside:
        pq.write_table(table, beside, compression="zstd")
    return table


def shards(lab: Lab, book: Book, columns: Sequence[str], *, coded: Sequence[str] = ()) -> Iterator[Placed]:
    """Document tables of the training cells, without removed documents; columns in `coded` stay dictionary-encoded.

    Raises: DataError when a file is missing or broken.
    """
    gone = {removal["id"] for removal in book.manifest.get("removed", [])}
    for cell in book.manifest.get("cells", []):
        for shard in cell["shards"]:
            path = lab.store / book.store_digest / (shard["path"].removesuffix(".bin") + ".docs.parquet")
            try:
                with pq.ParquetFile(path, read_dictionary=list(coded)) as file:
                    known = file.schema_arrow.names
                    wanted = [name for name in dict.fromkeys(["id", *columns] if gone else columns) if name in known]
                    table = file.read(columns=wanted)
            except (OSError, pa.ArrowInvalid) as error:
                raise DataError(f"{path} cannot be read: {error}", hint="copy the store again, then run `forerun data verify`") from None
            if gone:
                table = table.filter(pc.invert(pc.is_in(table["id"], pa.array(sorted(gone), pa.string()))))
            yield Placed(cell, shard, table)


def source_cells(lab: Lab, book: Book) -> pa.Table:
    """`cell, source, num_documents, num_tokens, num_bytes, score_sum, score_square`, one row a pair; kept as Parquet."""
    return made_once(lab, book, SOURCE_CELLS, _added_up)


def _added_up(lab: Lab, book: Book) -> pa.Table:
    rows: dict[tuple[str, str], list[float]] = {}
    for placed in shards(lab, book, ["source", "num_tokens", "num_bytes", "quality_score"], coded=["source"]):
        table = placed.documents
        if not table.num_rows:
            continue
        coded = table.unify_dictionaries()["source"].combine_chunks()
        source = np.asarray(coded.indices)
        names = coded.dictionary.to_pylist()
        score = (
            np.nan_to_num(np.asarray(table["quality_score"], np.float64))
            if "quality_score" in table.column_names
            else np.zeros(table.num_rows)
        )
        parts = [
            np.ones(table.num_rows),
            np.asarray(table["num_tokens"], np.float64),
            np.asarray(table["num_bytes"], np.float64),
            score,
            score**2,
        ]
        sums = [np.bincount(source, part, minlength=len(names)) for part in parts]
        for index, name in enumerate(names):
            row = rows.setdefault((placed.cell["name"], name), [0.0] * len(sums))
            for place, values in enumerate(sums):
                row[place] += float(values[index])  # float64 sums of whole numbers are exact below 2**53
    ordered = sorted(rows)
    columns: dict[str, pa.Array] = {
        "cell": pa.array([cell for cell, _ in ordered], pa.string()),
        "source": pa.array([source for _, source in ordered], pa.string()),
    }
    for place, name in enumerate(("num_documents", "num_tokens", "num_bytes", "score_sum", "score_square")):
        values = [rows[key][place] for key in ordered]
        columns[name] = (
            pa.array(values, pa.float64()) if name.startswith("score") else pa.array([int(value) for value in values], pa.int64())
        )
    return pa.table(columns)


@dataclass(frozen=True)
class SourceView:
    """One source of a data set."""

    name: str
    facts: dict[str, Any]
    """The manifest's entry: licence, revision, documents read and kept."""
    by_cell: dict[str, tuple[int, int]]
    """Cell to documents and tokens."""
    num_tokens: int
    num_documents: int
    score_mean: float
    score_sd: float
    flags: tuple[str, ...]
    """Anomalies, one sentence each."""

    def by_quality(self, book: Book) -> list[int]:
        """Tokens in Q0 to Q4."""
        totals = [0] * 5
        for cell in book.cells:
            totals[cell.quality] += self.by_cell.get(cell.name, (0, 0))[1]
        return totals

    def by_domain(self, book: Book) -> dict[str, int]:
        """Tokens by domain, domains without any left out."""
        totals: dict[str, int] = {}
        for cell in book.cells:
            tokens = self.by_cell.get(cell.name, (0, 0))[1]
            if tokens:
                totals[cell.domain] = totals.get(cell.domain, 0) + tokens
        return totals


def sources_of(lab: Lab, book: Book) -> dict[str, SourceView]:
    """Every source by name, those without a document left included."""
    by_cell: dict[str, dict[str, tuple[int, int]]] = {}
    sums: dict[str, list[float]] = {}
    if book.digest:
        for row in source_cells(lab, book).to_pylist():
            by_cell.setdefault(row["source"], {})[row["cell"]] = (row["num_documents"], row["num_tokens"])
            total = sums.setdefault(row["source"], [0.0, 0.0])
            total[0], total[1] = total[0] + row["score_sum"], total[1] + row["score_square"]
    facts = {source["name"]: source for source in book.manifest.get("sources", [])}
    removed = book.reports.get("fuzzy_dedup", {}).get("removed_share", {})
    found = {}
    for name in sorted(set(facts) | set(by_cell)):
        cells = by_cell.get(name, {})
        documents, tokens = sum(count for count, _ in cells.values()), sum(count for _, count in cells.values())
        mean = sums.get(name, [0.0, 0.0])[0] / documents if documents else 0.0
        spread = max(sums.get(name, [0.0, 0.0])[1] / documents - mean**2, 0.0) ** 0.5 if documents else 0.0
        view = SourceView(name, dict(facts.get(name, {"name": name})), cells, tokens, documents, mean, spread, ())
        found[name] = SourceView(
            name, view.facts, cells, tokens, documents, mean, spread, remarks(view, book, float(removed.get(name, 0.0)))
        )
    return found


def remarks(source: SourceView, book: Book, removed_share: float) -> tuple[str, ...]:
    """What looks wrong with a source, one sentence each; `removed_share` is what near-duplicate removal took of it."""
    flags = []
    read = int(source.facts.get("num_documents_in", 0))
    if read >= LEAST_DOCUMENTS and removed_share >= ALL_DUPLICATES:
        flags.append(f"all duplicates: near-duplicate removal took {removed_share:.0%} of it")
    elif read >= LEAST_DOCUMENTS and source.num_documents <= (1 - ALL_DUPLICATES) * read:
        flags.append(f"nearly all dropped: {source.num_documents:,} of {read:,} documents are left")
    buckets = source.by_quality(book)
    if source.num_documents >= LEAST_DOCUMENTS and max(buckets) >= ONE_BUCKET * sum(buckets):
        flags.append(f"uninformative quality: {max(buckets) / sum(buckets):.0%} of its tokens are in Q{buckets.index(max(buckets))}")
    if not source.num_documents:
        flags.append("no document of it is in the store")
    if source.facts.get("licence") in (None, "", "unstated"):
        flags.append("no licence is stated")
    return tuple(flags)
