"""Web archives: pages of WARC files as text, and the ready text of WET files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from forerun.curate.ingest.html import string_of, text_of_page
from forerun.curate.ingest.records import Document, IngestConfig, Problem, decoded
from forerun.curate.ingest.source import InputFile
from forerun.curate.ingest.streams import BrokenFile, plain

PAGES = ("text/html", "application/xhtml+xml")
KINDS = (WarcRecordType.response, WarcRecordType.conversion, WarcRecordType.resource)
NAMED = {"response": WarcRecordType.response, "conversion": WarcRecordType.conversion, "resource": WarcRecordType.resource}
OK = 200
MOST_HEADER = 16 << 20  # assumed: crawlers store `data:` addresses of megabytes; the library's 32 KiB would end the archive there
MOST_NAME = 2048  # assumed: characters of an address; what names a document is no place for an embedded image
_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_:.-]+)""", re.IGNORECASE)


def web_archive(file: InputFile, config: IngestConfig) -> Iterator[Document | Problem]:
    """Responses that are pages or plain text, and conversion records; requests, metadata and the like are no documents.

    Raises: BrokenFile when the archive is cut inside a record or is none.
    """
    found = number = 0
    unix = _has_unix_lines(file.url)
    with plain(file.url) as stream:
        try:
            for record in ArchiveIterator(
                stream, record_types=WarcRecordType.any_type, parse_http=False, max_header_len=MOST_HEADER, quirks_mode=unix
            ):
                found += 1
                kind = record.headers.get("WARC-Type") or ""
                if "\n" in kind:  # all that follows, read as one header
                    raise BrokenFile(f"{file.url}: some header lines end in LF, others in CR LF", hint="write the archive again")
                if record.record_type == WarcRecordType.no_type:  # the library knows the header's name in one spelling only
                    record.record_type = NAMED.get(kind.strip().lower(), WarcRecordType.unknown)
                if record.record_type in KINDS:
                    number += 1
                    yield _one(record, f"{file.name}#{number}", file, config)
        except OSError as error:
            raise BrokenFile(f"{file.url} cannot be read as WARC: {error}", hint="fetch the file again") from None
        if not found and stream.tell():
            raise BrokenFile(f"{file.url} holds no WARC record", hint="fetch the file again, or state its format")


def _has_unix_lines(url: str) -> bool:
    """Whether header lines end in LF, as in ClueWeb09, where the standard asks for CR LF."""
    with plain(url) as stream:
        line = stream.read(64).lstrip().partition(b"\n")[0]
    return line.startswith(b"WARC/") and not line.endswith(b"\r")


def _one(record: WarcRecord, place: str, file: InputFile, config: IngestConfig) -> Document | Problem:
    uri = (record.headers.get("WARC-Target-URI") or record.record_id or "")[:MOST_NAME]
    place = f"{place} {uri}"
    declared = record.content_length
    if declared > config.max_document_bytes:
        return Problem(place, "too_long", declared)
    data = record.reader.read()
    if len(data) < declared:
        raise BrokenFile(f"{file.url} is cut inside record {place}", hint="fetch the file again")
    if record.record_type != WarcRecordType.response:
        return _text(data, record.headers.get("Content-Type") or "text/plain", "", place, uri, config)
    answer, payload = _answer(data, config.max_document_bytes + 1)
    if answer is None:
        return Problem(place, "broken_http", declared)
    if answer.http_headers is None or answer.http_headers.status_code != OK:
        return Problem(place, "http_status_not_200", declared)
    if len(payload) > config.max_document_bytes:
        return Problem(place, "too_long", len(payload))
    return _text(payload, answer.http_content_type or "text/html", answer.http_charset or "", place, uri, config)


def _answer(data: bytes, most: int) -> tuple[WarcRecord | None, bytes]:
    """The HTTP answer in a record and its body, read apart from the archive, which a broken one must not spoil; None when it is broken.

    Many archives keep headers of encodings that they have undone: where decoding fails and the body is a page as it stands, that counts.
    Many servers send bare deflate data, without the zlib frame that the name means.
    """
    for decode in ("all", "transfer", "none"):
        answer = WarcRecord()
        answer.record_type, answer.is_http = WarcRecordType.response, True
        answer.set_bytes_content(data)
        try:
            answer.parse_http(auto_decode=decode, max_header_len=MOST_HEADER, quirks_mode=True)
            body = answer.reader.read(most)
            if decode == "transfer" and answer.http_headers is not None and answer.http_headers.get("Content-Encoding") == "deflate":
                return answer, zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, most)
        except (OSError, zlib.error):
            continue
        if decode == "all" or body.lstrip()[:1] == b"<":
            return answer, body
    return None, b""


def _text(data: bytes, content_type: str, charset: str, place: str, uri: str, config: IngestConfig) -> Document | Problem:
    kind, _, parameters = content_type.partition(";")
    kind, named = kind.strip().lower(), _CHARSET.search(parameters)
    charset = charset or (named.group(1) if named else "")
    if kind in PAGES:
        text, repaired = text_of_page(data, charset, config)
        return Document(text, uri, repaired=repaired) if text else Problem(place, "page_without_text", len(data))
    if kind != "text/plain":
        return Problem(place, "not_a_page", len(data))
    whole = decoded(data, config) or (string_of(data, charset) if charset else None)
    return Problem(place, "not_utf8", len(data)) if whole is None else Document(whole[0], uri, repaired=whole[1])
