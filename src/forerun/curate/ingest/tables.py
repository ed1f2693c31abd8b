"""Records with fields: JSON lines, Parquet, and Arrow files of Hugging Face data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.curate.ingest import remote
from forerun.curate.ingest.records import ID_FIELDS, Document, IngestConfig, Problem, SchemaWatch, decoded, name_in, without_surrogates
from forerun.curate.ingest.source import InputFile, SourceFile
from forerun.curate.ingest.streams import BrokenFile, lines
from forerun.curate.ingest.streams import text as text_of

TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary)
ROWS = 1024  # assumed: rows decoded at once; bounds memory when documents are long


def json_lines(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """One JSON object a line; blank lines are no documents."""
    with text_of(file.url) as stream:
        number = 0
        for number, line in enumerate(lines(stream, config.max_document_bytes), 1):
            place = f"{file.name}:{number}"
            if isinstance(line, int):
                yield Problem(place, "too_long", line)
            elif line.strip():
                yield _record(line, place, source, config, watch)
        watch.end_batch(f"{file.name}:{number}")


def _record(line: bytes, place: str, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Document | Problem:
    repaired = False
    try:
        record: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        whole = decoded(line, config)
        if whole is None:
            return Problem(place, "not_utf8", len(line))
        text, repaired = whole
        try:
            record = json.loads(text)  # knows NaN, lone surrogates and large numbers, which orjson refuses
        except (ValueError, RecursionError):
            return Problem(place, "not_json", len(line))
    if not isinstance(record, dict):
        return Problem(place, "not_an_object", len(line))
    watch.see(record, place)
    return _document(record, record.get(source.text_field), place, source, repaired)


def _document(record: dict[str, Any], text: Any, place: str, source: SourceFile, repaired: bool = False) -> Document | Problem:
    if text is None:
        return Problem(place, "no_text_field")
    if not isinstance(text, str):
        return Problem(place, "text_is_not_a_string")
    whole = without_surrogates(text)
    repaired |= whole is not text
    licence = record.get(source.licence_field) if source.licence_field else None
    return Document(whole, name_in(record, source), "" if licence is None else str(licence), repaired)


def parquet(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """Rows of a Parquet file; only the columns needed are read."""
    with remote.opened(file.url) as stream:
        try:
            table = pq.ParquetFile(stream)
            columns = _columns(table.schema_arrow, file, source)
            batches = table.iter_batches(batch_size=ROWS, columns=columns)
            yield from _rows(batches, file, source, config, watch)
        except (pa.ArrowInvalid, OSError) as error:
            raise BrokenFile(f"{file.url} cannot be read as Parquet: {error}", hint="fetch the file again") from None


def arrow(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """Rows of an Arrow file, in stream or file layout, as Hugging Face `datasets` writes them."""
    with remote.opened(file.url) as stream:
        try:
            magic = stream.read(6)
            stream.seek(0)
            reader: Any = pa.ipc.open_file(stream) if magic == b"ARROW1" else pa.ipc.open_stream(stream)
            columns = _columns(reader.schema, file, source)
            whole = (reader.get_batch(i) for i in range(reader.num_record_batches)) if magic == b"ARROW1" else reader
            pieces = (batch.select(columns).slice(at, ROWS) for batch in whole for at in range(0, batch.num_rows, ROWS))
            yield from _rows(pieces, file, source, config, watch)
        except (pa.ArrowInvalid, OSError) as error:
            raise BrokenFile(f"{file.url} cannot be read as Arrow: {error}", hint="fetch the file again") from None


def _columns(schema: pa.Schema, file: InputFile, source: SourceFile) -> list[str]:
    if source.text_field not in schema.names:
        raise DataError(
            f"{file.url} has no column {source.text_field!r} (columns: {', '.join(schema.names)})",
            hint="set the source's text_field to the column that holds the text",
        )
    kind = schema.field(source.text_field).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(is_text(kind) for is_text in TEXT_TYPES):
        raise DataError(
            f"{file.url}: column {source.text_field!r} is {kind}, not text", hint="set the source's text_field to a text column"
        )
    named = (source.id_field,) if source.id_field else ID_FIELDS
    wanted = {source.text_field, source.licence_field, *named}
    return [name for name in schema.names if name in wanted]


def _rows(
    batches: Iterable[pa.RecordBatch], file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch
) -> Iterator[Document | Problem]:
    row = 0
    for batch in batches:
        for record in _as_python(batch):
            place = f"{file.name}:{row}"
            row += 1
            watch.see(record, place)
            text = record.get(source.text_field)
            if isinstance(text, bytes):
                whole = decoded(text, config)
                if whole is None:
                    yield Problem(place, "not_utf8", len(text))
                    continue
                record[source.text_field], repaired = whole
                yield _bounded(_document(record, whole[0], place, source, repaired), place, config)
            else:
                yield _bounded(_document(record, text, place, source), place, config)
    watch.end_batch(f"{file.name}:{row}")


def _as_python(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dictionaries. Arrow files may hold strings that are not UTF-8: those come as bytes."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        columns = {
            name: (
                column.cast(pa.large_binary()).to_pylist()
                if pa.types.is_large_string(column.type)
                else column.cast(pa.binary()).to_pylist()
            )
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            else column.to_pylist()
            for name, column in zip(batch.schema.names, batch.columns)
        }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]


def _bounded(found: Document | Problem, place: str, config: IngestConfig) -> Document | Problem:
    if isinstance(found, Document) and len(found.text) > config.max_document_bytes // 4:
        size = len(found.text.encode())
        if size > config.max_document_bytes:
            return Problem(place, "too_long", size)
    return found
