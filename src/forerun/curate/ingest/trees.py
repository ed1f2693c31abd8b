"""One file, one document: plain text and HTML pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from forerun.curate.ingest import streams
from forerun.curate.ingest.html import text_of_page
from forerun.curate.ingest.records import Document, IngestConfig, Problem, decoded
from forerun.curate.ingest.source import InputFile


def text_file(file: InputFile, config: IngestConfig) -> Iterator[Document | Problem]:
    """The file's text, UTF-8 unless a byte order mark says otherwise."""
    data = _bytes(file, config, streams.text)
    if isinstance(data, Problem):
        yield data
        return
    whole = decoded(data, config)
    yield Problem(file.name, "not_utf8", len(data)) if whole is None else Document(whole[0], file.name, repaired=whole[1])


def html_file(file: InputFile, config: IngestConfig) -> Iterator[Document | Problem]:
    """The page's text, in whatever encoding the page is."""
    data = _bytes(file, config, streams.plain)
    if isinstance(data, Problem):
        yield data
        return
    text, repaired = text_of_page(data, "", config)
    yield Document(text, file.name, repaired=repaired) if text else Problem(file.name, "page_without_text", len(data))


def _bytes(file: InputFile, config: IngestConfig, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> bytes | Problem:
    most, data = config.max_document_bytes, bytearray()
    with opened(file.url) as stream:
        while len(data) <= most and (piece := stream.read(most + 1 - len(data))):
            data += piece
    return Problem(file.name, "too_long", max(file.num_bytes, len(data))) if len(data) > most else bytes(data)
