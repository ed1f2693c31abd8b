"""Everything a data set's pages are drawn from, as files to download, with a page that says what is in each column."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.lab import Lab
from forerun.dashboard.atlas import address, site_samples
from forerun.dashboard.atlas.attributes import SourceView, folder_of, made_folder, source_cells, sources_of
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.decisions import step_folder
from forerun.dashboard.atlas.domain_page import FINE_FILE
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.atlas.samples import UNIFORM_KIND, samples
from forerun.dashboard.desk import Desk
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.page import paragraph

TEXT_GROUP = 128  # assumed: rows of texts a browser fetches at a time, some 100 KB; larger ones save little
ZSTD_LEVEL = 12  # measured: level 19 saves 2% more at five times the time

COLUMNS: Mapping[str, str] = {
    "cell": "domain and quality bucket, `<domain>/q<bucket>`",
    "domain": "folder name of the domain",
    "quality": "bucket 0-4, 4 best",
    "source": "name of the source",
    "source_id": "the document's name in its source",
    "id": "content hash of the document",
    "num_documents": "documents",
    "num_tokens": "tokens, one end-of-document token a document included",
    "num_bytes": "UTF-8 bytes",
    "share": "of all training tokens",
    "enrichment": "P(bucket given domain) / P(bucket), over tokens",
    "score_sum": "sum of the documents' quality scores",
    "score_square": "sum of the squares of the documents' quality scores",
    "kind": "samples: nearest to the cluster's centre, or uniform; pairs: removed, or kept though nearly removed",
    "rank": "place among the samples of its cell and kind",
    "text": "the document's text, perhaps cut",
    "cut": "whether the text was cut",
    "kept_text": "text of the document that holds it, perhaps cut",
    "item_text": "text of the evaluation item, perhaps cut",
    "quality_score": "calibrated score 0-1",
    "domain_cosine": "cosine of the document's vector to its fine cluster's centre",
    "content_type": "prose, code, math and so on, by rules",
    "kept_id": "the document that holds its content",
    "kept_source": "source of that document",
    "cluster": "least id of the group of candidates",
    "cluster_size": "documents in the group",
    "containment": "share of its distinct word 3-grams that the kept document has",
    "jaccard": "shared distinct word 3-grams over all of both",
    "comparisons": "documents it was compared with",
    "novel_grams": "distinct word 3-grams the kept document lacks",
    "novel_words": "distinct words the kept document lacks",
    "item": "evaluation item or held-out document",
    "item_share": "share of the item's 13-grams that the document has",
    "document_share": "share of the document's 13-grams that the item has",
    "paragraph_share": "share of the paragraph's 13-grams that the item has",
    "items": "every item it hits",
    "excerpt": "the shared words, in order",
    "matched_grams": "distinct 13-grams they share",
    "fine": "number of the fine cluster",
    "num_sampled": "sampled documents in the fine cluster",
    "x": "place on the first axis",
    "y": "place on the second axis",
    "nearest_domain": "other domain whose centre is nearest",
    "nearest_cosine": "cosine to that centre",
    "vector": "unit centroid, mean of all documents subtracted, in half precision",
    "name": "name of the source",
    "tokens": "tokens in the training cells",
    "category": "stated by the source, or the content type of most of its sampled tokens",
    "category_stated": "whether the source stated the category itself",
    "synthetic": "made by a model; null where nobody stated it",
    "machine_translated": "translated by a machine; null where nobody stated it",
    "licence": "as stated by the source",
    "upstream": "version, commit or digest that pins the source",
    "transform_summary": "steps it went through",
    "reason": "why the document was dropped",
}
"""What the columns of the files mean; one meaning a name."""


@dataclass(frozen=True)
class Download:
    """One file."""

    name: str
    words: str
    content: Callable[[], bytes]
    columns: Callable[[], list[str]] = list


def downloads(lab: Lab, book: Book) -> Iterator[Download]:
    """Files of a data set that are not pages. Each is made when asked for."""
    yield _made("cells.parquet", "tokens, documents, share and enrichment of every cell", lambda: cells_table(book))
    if not book.digest:
        return
    yield _made("source-cells.parquet", "documents, tokens and score sums by cell and source", lambda: source_cells(lab, book))
    yield _made("token-counts.parquet", "one row a source", lambda: token_counts(lab, book))
    said = f"documents to read, a few of every cell; the lab has more in {made_folder(lab, book).relative_to(lab.root)}/{site_samples.FILE}"
    yield _made(site_samples.FILE, said, lambda: site_samples.site_samples(lab, book), group=TEXT_GROUP)
    fine = folder_of(lab, book) / FINE_FILE
    if fine.exists():
        yield _made(
            "fine-clusters.parquet", "fine clusters: place, weight, nearest other domain, vector", lambda: _halved(pq.read_table(fine))
        )
    for step, file, words in (
        ("fuzzy_dedup", "decisions.parquet", "every near-duplicate removed, with the document that holds it"),
        ("fuzzy_dedup", "pairs.parquet", "sampled pairs with both texts"),
        ("decontaminate", "contaminated.parquet", "every document dropped for evaluation text"),
        ("decontaminate", "hits.parquet", "sampled ones with both texts"),
    ):
        folder = step_folder(lab, book, step)
        if folder is not None and (folder / file).exists():
            yield _made(file, words, lambda path=folder / file: pq.read_table(path), group=TEXT_GROUP)
    manifest = lab.manifests / f"{book.digest}.json"
    yield Download("manifest.json", "the data set as the loader reads it: cells, shards with digests, sources, steps", manifest.read_bytes)


def cells_table(book: Book) -> pa.Table:
    """One row a cell."""
    return pa.table(
        {
            "cell": [cell.name for cell in book.cells],
            "domain": [cell.domain for cell in book.cells],
            "quality": pa.array([cell.quality for cell in book.cells], pa.int8()),
            "num_tokens": pa.array([cell.num_tokens for cell in book.cells], pa.int64()),
            "num_documents": pa.array([cell.num_documents for cell in book.cells], pa.int64()),
            "share": pa.array([cell.num_tokens / book.num_tokens if book.num_tokens else 0.0 for cell in book.cells], pa.float64()),
            "enrichment": pa.array([book.enrichment(cell.domain, cell.quality) for cell in book.cells], pa.float64()),
        }
    )


def token_counts(lab: Lab, book: Book) -> pa.Table:
    """`name, tokens, category, synthetic, machine_translated, licence, upstream, transform_summary`, one row a source, by name."""
    types = _content_types(lab, book)
    steps = ", ".join(str(step["name"]).replace("_", " ") for step in book.manifest.get("steps", []))
    rows = [_counts(source, types.get(source.name, Counter()), steps) for source in sources_of(lab, book).values()]
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("tokens", pa.int64()),
            ("category", pa.string()),
            ("category_stated", pa.bool_()),
            ("synthetic", pa.bool_()),
            ("machine_translated", pa.bool_()),
            ("licence", pa.string()),
            ("upstream", pa.string()),
            ("transform_summary", pa.string()),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _counts(source: SourceView, types: Counter[str], steps: str) -> dict[str, Any]:
    facts = source.facts
    return {
        "name": source.name,
        "tokens": source.num_tokens,
        "category": facts.get("category") or (types.most_common(1)[0][0] if types else None),
        "category_stated": bool(facts.get("category")),
        "synthetic": facts.get("synthetic"),
        "machine_translated": facts.get("machine_translated"),
        "licence": facts.get("licence"),
        "upstream": facts.get("revision"),
        "transform_summary": steps,
    }


def _content_types(lab: Lab, book: Book) -> dict[str, Counter[str]]:
    """Source to tokens by content type, over the uniform samples."""
    drawn = samples(lab, book)
    found: dict[str, Counter[str]] = {}
    if "content_type" in drawn.column_names:
        for row in drawn.select(["kind", "source", "content_type", "num_tokens"]).to_pylist():
            if row["kind"] == UNIFORM_KIND and row["content_type"]:
                found.setdefault(row["source"], Counter())[row["content_type"]] += row["num_tokens"]
    return found


def content(lab: Lab, book: Book, desk: Desk) -> list[Piece]:
    """The page of files and columns."""
    offered = list(downloads(lab, book))
    rows = [(desk.link(one.name, address.file(book, one.name)), one.words, ", ".join(one.columns())) for one in offered]
    used = sorted({column for one in offered for column in one.columns()})
    meanings = [(tag("code", column), COLUMNS[column]) for column in used if column in COLUMNS]
    return [
        paragraph("All numbers of these pages as files. A column name means the same in every file.", class_="lead"),
        navigation(book, desk),
        table(["file", "what", "columns"], rows, caption="Files"),
        table(["column", "meaning"], meanings, caption="Columns"),
    ]


def _halved(fine: pa.Table) -> pa.Table:
    """Vectors in half precision: what they are used for, nearness, needs no more."""
    place = fine.column_names.index("vector")
    return fine.set_column(place, "vector", fine["vector"].cast(pa.list_(pa.float16())))


def _made(name: str, words: str, make: Callable[[], pa.Table], *, group: int | None = None) -> Download:
    """A file of `group` rows to a row group, which is what a browser reads at once."""

    def content() -> bytes:
        out = io.BytesIO()
        pq.write_table(make(), out, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=group)
        return out.getvalue()

    return Download(name, words, content, lambda: make().column_names)


def save(table_: pa.Table, path: Path) -> None:
    """Write a table as CSV or Parquet, by the file's ending."""
    import pyarrow.csv

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table_, path, compression="zstd")
    else:
        pyarrow.csv.write_csv(table_, path)
