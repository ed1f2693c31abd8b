"""Input files to raw parts: Parquet files of documents in reading order, and one of everything that was left out, with its reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from forerun.base.files import fsync_folder, storage_errors, write_json
from forerun.curate.ingest.records import Document, IngestConfig, Problem, SchemaWatch
from forerun.curate.ingest.source import InputFile, SourceFile
from forerun.curate.ingest.streams import BrokenFile

PART_BYTES = 32 << 20  # assumed: text in one raw part; a worker holds about three times as much
RAW = pa.schema([("text", pa.large_string()), ("source", pa.string()), ("source_id", pa.string()), ("licence", pa.string())])
PROBLEMS = pa.schema([("source", pa.string()), ("place", pa.string()), ("reason", pa.string()), ("num_bytes", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class ReadSummary:
    """What some files of a source gave, counted from the parts written."""

    num_documents: int
    """Rows in the parts."""
    num_problems: int
    """Rows in `problems.parquet`."""
    num_repaired: int
    """Documents in which invalid bytes were replaced."""
    num_bytes: int
    """UTF-8 bytes of the documents."""
    documents_digest: str
    """Sum of the hashes of all documents: the same in any order."""
    broken: tuple[str, ...] = ()
    """Files of which the rest could not be read, and why."""
    schema: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Types the watched fields had in the first records."""


def grouped(files: Sequence[InputFile]) -> list[tuple[InputFile, ...]]:
    """Files that are read together: small ones share a part, a large one stands alone."""
    groups: list[list[InputFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.num_bytes > PART_BYTES or not file.num_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.num_bytes
    return [tuple(group) for group in groups]


def read_files(files: Sequence[InputFile], source: SourceFile, config: IngestConfig, out: Path) -> ReadSummary:
    """Fill `out` with `raw-NNNNN.parquet`, `problems.parquet` and `summary.json`; the folder is whole or absent.

    Raises: DataError when the file is unusable: cut, damaged, without the text field, or of another schema in the middle.
    """
    part = out.with_name(f"{out.name}.part")
    with storage_errors(part):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        writer, watch = _PartWriter(part, source), SchemaWatch(source)
        broken = []
        for file in files:
            try:
                for found in documents_of(file, source, config, watch):
                    writer.add(found)
            except BrokenFile as error:
                if config.broken_files == "refuse":
                    raise
                broken.append(error.message)
                writer.add(Problem(file.name, "broken_file", file.num_bytes))
        summary = replace(writer.close(), broken=tuple(broken), schema=watch.first)
        write_json(part / "summary.json", summary)
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
        fsync_folder(out.parent)
    return summary


def documents_of(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """Everything in a file, by the reader its format names."""
    if file.format in ("text", "html"):
        from forerun.curate.ingest import trees

        return trees.text_file(file, config) if file.format == "text" else trees.html_file(file, config)
    if file.format == "warc":
        from forerun.curate.ingest import web

        return web.web_archive(file, config)
    from forerun.curate.ingest import lists, tables

    readers = {"jsonl": tables.json_lines, "json": lists.json_file, "parquet": tables.parquet, "arrow": tables.arrow}
    return readers[file.format](file, source, config, watch)


class _PartWriter:
    """Collects documents until a part is full."""

    def __init__(self, folder: Path, source: SourceFile) -> None:
        self._folder, self._source = folder, source
        self._documents: list[Document] = []
        self._problems: list[Problem] = []
        self._size = self._num_parts = self._num_documents = self._num_bytes = self._num_repaired = self._digest = 0

    def add(self, found: Document | Problem) -> None:
        if isinstance(found, Problem):
            self._problems.append(found)
            return
        data = found.text.encode()
        hashed = xxhash.xxh3_128(found.name.encode("utf-8", "replace") + b"\0")
        hashed.update(data)
        self._digest = (self._digest + hashed.intdigest()) % (1 << 128)
        self._documents.append(found)
        self._size += len(data)
        self._num_bytes += len(data)
        self._num_repaired += found.repaired
        if self._size >= PART_BYTES:
            self._flush()

    def close(self) -> ReadSummary:
        if self._documents:
            self._flush()
        name = self._source.name
        rows = [[name, problem.place, problem.reason, problem.num_bytes] for problem in self._problems]
        table = pa.table([list(column) for column in zip(*rows)] if rows else [[] for _ in PROBLEMS], schema=PROBLEMS)
        pq.write_table(table, self._folder / "problems.parquet", compression="zstd")
        return ReadSummary(
            num_documents=sum(pq.read_metadata(path).num_rows for path in self._folder.glob("raw-*.parquet")),
            num_problems=pq.read_metadata(self._folder / "problems.parquet").num_rows,
            num_repaired=self._num_repaired,
            num_bytes=self._num_bytes,
            documents_digest=f"{self._digest:032x}",
        )

    def _flush(self) -> None:
        count = len(self._documents)
        columns = [
            pa.array([document.text for document in self._documents], pa.large_string()),
            pa.array([self._source.name] * count, pa.string()),
            pa.array([document.name for document in self._documents], pa.string()),
            pa.array([document.licence or self._source.licence for document in self._documents], pa.string()),
        ]
        pq.write_table(
            pa.table(columns, schema=RAW), self._folder / f"raw-{self._num_parts:05d}.parquet", compression="zstd", compression_level=1
        )
        self._num_parts += 1
        self._documents, self._size = [], 0
