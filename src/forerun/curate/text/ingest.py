"""Documents from files: JSON lines (plain, gzip, zstd), Parquet, or a tree of text files. What cannot be read is counted by reason."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from forerun.base.errors import DataError

TEXT_SUFFIXES = frozenset(
    (".txt", ".md", ".rst", ".tex", ".org", ".html", ".htm", ".py", ".js", ".ts", ".c", ".h", ".cpp", ".rs", ".go", ".java", ".css", ".sql")
)
TABLE_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
MAX_DOCUMENT_BYTES = 64 << 20  # assumed: a longer single document is a broken dump; the original cuts at 64 Mi characters


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One source: a file of documents, or a folder of text files."""

    name: str
    path: Path
    licence: str = "unstated"
    revision: str = ""


@dataclass
class Ingested:
    """A source as read."""

    documents: pa.Table
    """`text`, `source`, `source_id`."""
    num_read: int
    dropped: Counter[str] = field(default_factory=Counter)
    """Documents left out, by reason."""


def sources_in(folder: Path) -> list[SourceFile]:
    """What a user's folder holds: every JSONL or Parquet file is a source; text files make one source per top-level folder.

    Raises: DataError when there is nothing to read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", hint="name a folder of text, JSONL or Parquet files")
    tables = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.endswith(TABLE_SUFFIXES)]
    found = [SourceFile(name=path.name.split(".")[0], path=path) for path in tables]
    for place in [*sorted(entry for entry in folder.iterdir() if entry.is_dir()), folder]:
        files = place.iterdir() if place == folder else place.rglob("*")
        if any(path.suffix.lower() in TEXT_SUFFIXES and path.is_file() for path in files):
            found.append(SourceFile(name=place.name, path=place))
    if not found:
        raise DataError(f"{folder} holds no text", hint=f"files read: {', '.join(TABLE_SUFFIXES)}, and {', '.join(sorted(TEXT_SUFFIXES))}")
    return found


def ingest(source: SourceFile, *, top_level_only: bool = False) -> Ingested:
    """Read one source whole. Raises: DataError when the file itself is unusable (truncated archive, no text field anywhere)."""
    dropped: Counter[str] = Counter()
    texts, names, num_read = [], [], 0
    for name, text in _documents(source, top_level_only):
        num_read += 1
        if isinstance(text, _Problem):
            dropped[text.reason] += 1
        else:
            texts.append(text)
            names.append(name)
    if num_read and not texts and set(dropped) == {"no_text_field"}:
        raise DataError(f"{source.path}: no document has a text field", hint="the field must be called 'text'")
    count = len(texts)
    table = pa.table(
        {"text": pa.array(texts, pa.large_string()), "source": pa.array([source.name] * count), "source_id": pa.array(names, pa.string())}
    )
    return Ingested(table, num_read, dropped)


@dataclass(frozen=True)
class _Problem:
    reason: str


def _documents(source: SourceFile, top_level_only: bool) -> Iterator[tuple[str, str | _Problem]]:
    if source.path.is_dir():
        yield from _tree(source.path, top_level_only)
    elif source.path.suffix == ".parquet":
        yield from _parquet(source.path)
    else:
        yield from _json_lines(source.path)


def _tree(folder: Path, top_level_only: bool) -> Iterator[tuple[str, str | _Problem]]:
    for path in sorted(folder.iterdir() if top_level_only else folder.rglob("*")):
        if path.suffix.lower() in TEXT_SUFFIXES and path.is_file():
            data = path.read_bytes()
            yield str(path.relative_to(folder)), _decoded(data)


def _decoded(data: bytes) -> str | _Problem:
    if len(data) > MAX_DOCUMENT_BYTES:
        return _Problem("too_long")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Problem("not_utf8")


def _parquet(path: Path) -> Iterator[tuple[str, str | _Problem]]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}", hint="fetch the file again") from None
    if "text" not in file.schema_arrow.names:
        raise DataError(
            f"{path} has no column 'text' (columns: {', '.join(file.schema_arrow.names)})", hint="rename the column that holds the text"
        )
    row = 0
    for batch in file.iter_batches(batch_size=8192, columns=["text"]):
        for value in batch.column(0).to_pylist():
            yield str(row), value if isinstance(value, str) else _Problem("no_text_field")
            row += 1


def _json_lines(path: Path) -> Iterator[tuple[str, str | _Problem]]:
    number = 0
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines):
                if not line.strip():
                    continue
                yield _one(line, f"{number}")
    except (EOFError, gzip.BadGzipFile, zstandard.ZstdError, OSError) as error:
        raise DataError(f"{path} ends or breaks after line {number}: {error}", hint="fetch the file again") from None


def _one(line: bytes, number: str) -> tuple[str, str | _Problem]:
    if len(line) > MAX_DOCUMENT_BYTES:
        return number, _Problem("too_long")
    try:
        record: Any = json.loads(line)
    except UnicodeDecodeError:
        return number, _Problem("not_utf8")
    except (ValueError, RecursionError):
        return number, _Problem("not_json")
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        return number, _Problem("no_text_field")
    text = record["text"]
    if not text.isascii():
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return str(record.get("path") or record.get("source_id") or record.get("id") or number), text


def _opened(path: Path) -> io.BufferedIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".zst":
        _require_whole_frames(path)
        reader = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True, closefd=True)
        return io.BufferedReader(reader)  # type: ignore[arg-type]
    return path.open("rb")


def _require_whole_frames(path: Path) -> None:
    """zstandard's reader ends silently where a file was cut; a cut file must not read as a shorter one. Raises: EOFError."""
    with path.open("rb") as file:
        pieces = iter(lambda: file.read(1 << 20), b"")
        piece = next(pieces, b"")
        while piece:
            frame = zstandard.ZstdDecompressor().decompressobj()
            frame.decompress(piece)
            while not frame.eof:
                piece = next(pieces, b"")
                if not piece:
                    raise EOFError("the last zstd frame is cut short")
                frame.decompress(piece)
            piece = frame.unused_data or next(pieces, b"")
