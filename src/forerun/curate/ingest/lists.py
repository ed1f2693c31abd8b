"""Files named `.json`: mostly JSON lines under another name, else a list of records, read one at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any, BinaryIO

from forerun.curate.ingest.records import Document, IngestConfig, Problem, SchemaWatch, value_of
from forerun.curate.ingest.source import InputFile, SourceFile
from forerun.curate.ingest.streams import PIECE_BYTES, BrokenFile
from forerun.curate.ingest.streams import text as text_of
from forerun.curate.ingest.tables import LENIENT, bounded, document_of, json_lines

HEAD_BYTES = 1 << 16  # assumed: enough to see whether a list begins


def json_file(file: InputFile, source: SourceFile, config: IngestConfig, watch: SchemaWatch) -> Iterator[Document | Problem]:
    """A list of JSON objects, one at a time; what does not begin as a list is read as lines, as most public files of this name are."""
    with text_of(file.url) as stream:
        head = stream.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
        if not head.lstrip().startswith(b"["):
            yield from json_lines(file, source, config, watch)
            return
        number = 0
        for number, value in enumerate(_elements(stream, head.lstrip()[1:], file, config.max_document_bytes), 1):
            place = f"{file.name}:{number}"
            if isinstance(value, dict):
                watch.see(value, place)
                yield bounded(document_of(value, place, source), place, config)
            else:
                yield Problem(place, "not_an_object")
        watch.end_batch(f"{file.name}:{number}")


def _elements(stream: BinaryIO, head: bytes, file: InputFile, most: int) -> Iterator[Any]:
    """Values of a JSON list after its opening bracket. Raises: BrokenFile where the list breaks off, or holds a value longer than `most`."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, at, piece, number = decoder.decode(head), 0, HEAD_BYTES, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if text.startswith("]", at):
            return
        try:
            value, end = LENIENT.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, end = None, len(text)
        if end < len(text):  # a number may go on where the text ends
            yield value
            at, piece, number = end, HEAD_BYTES, number + 1
        elif len(text) - at <= most and (more := stream.read(piece)):
            text, at, piece = text[at:] + decoder.decode(more), 0, 2 * piece
        else:
            raise BrokenFile(
                f"{file.url} breaks off in its list after {number} records", hint="fetch the file again, or write a record a line"
            )


def holds_records(url: str, text_field: str) -> bool:
    """Whether a file named `.json` begins with a record that has the text field, alone on its line or first in a list."""
    with text_of(url) as stream:
        head = stream.read(PIECE_BYTES).removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").lstrip()
    try:
        value, end = LENIENT.raw_decode(head.removeprefix("[").lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value_of(value, text_field) is not None
