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
from forerun.curate.ingest.records import (
    ID_FIELDS,
    Document,
    IngestConfig,
    Problem,
    SchemaWatch,
    decoded,
    licence_in,
    name_in,
    value_of,
    without_surrogates,
)
from forerun.curate.ingest.source import InputFile, SourceFile
from forerun.curate.ingest.streams import BrokenFile, lines
from forerun.curate.ingest.streams import text as text_of

TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary)
BROKEN = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError)  # the last two: a damaged length, a damaged name
ROWS, ROWS_BYTES = 1024, 32 << 20  # assumed: rows and bytes of text decoded at once; bounds memory when documents are long
LENIENT = json.JSONDecoder(strict=False)  # knows NaN, lone surrogates, large numbers and bare tabs in strings, which orjson refuses


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
            record = LENIENT.decode(text)
        except (ValueError, RecursionError):
            return Problem(place, "not_json", len(line))
    if not isinstance(record, dict):
        return Problem(place, "not_an_object", len(line))
    if any(isinstance(record.get(field), float) for field in (source.id_field, *ID_FIELDS)):
        record = LENIENT.decode(line.decode("utf-8-sig", "replace"))  # orjson makes large whole numbers inexact
    watch.see(record, place)
    return document_of(record, place, source, repaired)


def document_of(record: dict[str, Any], place: str, source: SourceFile, repaired: bool = False) -> Document | Problem:
    """The document a record holds, or why it holds none."""
    text = value_of(record, source.text_field)
    if text is None:
        return Problem(place, "no_text_field")
    if not isinstance(text, str):
        return Problem(place, "text_is_not_a_string")
    whole = without_surrogates(text)
    repaired |= whole is not text
    return Document(whole, name_in(record, source), licence_in(record, source), repaired)


def parquet(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """Rows of a Parquet file; only the columns needed are read."""
    with remote.opened(file.url) as stream:
        try:
            table = pq.ParquetFile(stream, page_checksum_verification=True)
            columns = _columns(table.schema_arrow, file, source)
            batches = table.iter_batches(batch_size=_rows_at_once(table.metadata), columns=columns)
            yield from _rows(batches, file, source, config, watch)
        except BROKEN as error:
            raise _unreadable(file, "Parquet", error) from None


def _rows_at_once(footer: pq.FileMetaData) -> int:
    """Rows of about `ROWS_BYTES`, by the row group with the longest ones. Of single columns a damaged footer is not asked: that aborts."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    longest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=1)
    return max(1, min(ROWS, ROWS_BYTES // max(longest, 1)))


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
        except BROKEN as error:
            raise _unreadable(file, "Arrow", error) from None


def _unreadable(file: InputFile, what: str, error: BaseException) -> BrokenFile:
    told = (str(error).strip() or type(error).__name__).splitlines()[0]
    return BrokenFile(f"{file.url} cannot be read as {what}: {told}", hint="fetch the file again")


def _columns(schema: pa.Schema, file: InputFile, source: SourceFile) -> list[str]:
    """Columns to read: those of text, name and licence. Raises: DataError when there is no column of text by that name."""
    outer, *inner = [source.text_field] if source.text_field in schema.names else source.text_field.split(".")
    if outer not in schema.names:
        raise DataError(
            f"{file.url} has no column {source.text_field!r} (columns: {', '.join(schema.names)})",
            hint="set the source's text_field to the column that holds the text",
        )
    named = (source.id_field,) if source.id_field else ID_FIELDS
    wanted = {outer, *(field if field in schema.names else field.partition(".")[0] for field in (source.licence_field, *named))}
    chosen = [name for name in schema.names if name in wanted]
    if len(set(chosen)) < len(chosen):
        raise DataError(f"{file.url} has several columns of one name among {', '.join(chosen)}", hint="write it again with one of each")
    kind = schema.field(outer).type
    for name in inner:
        kind = kind.field(name).type if pa.types.is_struct(kind) and kind.get_field_index(name) >= 0 else pa.null()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(is_text(kind) for is_text in TEXT_TYPES):
        within = (
            f"; fields inside: {', '.join(field.name for field in kind)}, named as {source.text_field}.NAME"
            if pa.types.is_struct(kind)
            else ""
        )
        raise DataError(
            f"{file.url}: column {source.text_field!r} is {kind}, not text{within}", hint="set the source's text_field to a text column"
        )
    return chosen


def _rows(
    batches: Iterable[pa.RecordBatch], file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch
) -> Iterator[Document | Problem]:
    row = 0
    for batch in batches:
        for record in _as_python(batch):
            place = f"{file.name}:{row}"
            row += 1
            watch.see(record, place)
            text = value_of(record, source.text_field)
            if not isinstance(text, bytes):
                yield bounded(document_of(record, place, source), place, config)
                continue
            whole = decoded(text, config)
            if whole is None:
                yield Problem(place, "not_utf8", len(text))
            else:
                yield bounded(document_of(record | {source.text_field: whole[0]}, place, source, whole[1]), place, config)
    watch.end_batch(f"{file.name}:{row}")


def _as_python(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dictionaries; strings of columns that are not all UTF-8 come as bytes. Raises: ArrowInvalid for places beyond the data."""
    try:
        batch.validate(full=True)  # an Arrow file is taken as it lies: what it says about itself may be damaged
    except pa.ArrowInvalid:
        columns = [_as_bytes(column) for column in batch.columns]
        for column in columns:
            column.validate(full=True)
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    return batch.to_pylist()


def _as_bytes(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, _as_bytes(column.dictionary), safe=False)
    kinds = ((pa.types.is_string, pa.binary()), (pa.types.is_large_string, pa.large_binary()), (pa.types.is_string_view, pa.binary_view()))
    return next((column.view(to) for is_kind, to in kinds if is_kind(kind)), column)


def bounded(found: Document | Problem, place: str, config: IngestConfig) -> Document | Problem:
    """The same, unless it is too long."""
    if isinstance(found, Document) and len(found.text) > config.max_document_bytes // 4:
        size = len(found.text.encode())
        if size > config.max_document_bytes:
            return Problem(place, "too_long", size)
    return found
