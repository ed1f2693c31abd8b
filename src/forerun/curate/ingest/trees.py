"""One file, one document: plain text and HTML pages."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.curate.ingest.html import text_of_page
from forerun.curate.ingest.records import Document, IngestConfig, Problem, decoded
from forerun.curate.ingest.source import InputFile
from forerun.curate.ingest.streams import plain


def text_file(file: InputFile, config: IngestConfig) -> Iterator[Document | Problem]:
    """The file's text, UTF-8."""
    data = _bytes(file, config)
    if isinstance(data, Problem):
        yield data
        return
    whole = decoded(data, config)
    yield Problem(file.name, "not_utf8", len(data)) if whole is None else Document(whole[0], file.name, repaired=whole[1])


def html_file(file: InputFile, config: IngestConfig) -> Iterator[Document | Problem]:
    """The page's text, in whatever encoding the page is."""
    data = _bytes(file, config)
    if isinstance(data, Problem):
        yield data
        return
    text = text_of_page(data, "", config)
    yield Document(text, file.name) if text else Problem(file.name, "page_without_text", len(data))


def _bytes(file: InputFile, config: IngestConfig) -> bytes | Problem:
    with plain(file.url) as stream:
        data = stream.read(config.max_document_bytes + 1)
    return Problem(file.name, "too_long", max(file.num_bytes, len(data))) if len(data) > config.max_document_bytes else data
