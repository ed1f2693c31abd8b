"""From the bytes of one file to texts, for the formats that documentation, dictionaries, manuals and games come in."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Literal

from resiliparse.extract.html2text import extract_plain_text

Reading = Literal["text", "html", "markup", "man", "paragraphs", "dictd", "fortune", "quoted", "sword", "rdb"]

DOCUMENT_CHARS = 3_000
"""Small entries are bundled to documents of about this length (assumed: a page)."""
CHAPTER_CHARS = 8_000
"""Long texts without divisions are cut to about this length (assumed)."""


def texts(data: bytes, reading: Reading) -> Iterator[str]:
    """The documents inside one file. Gzip and dictzip are seen through; bytes that are not UTF-8 become replacement characters.

    Raises: OSError, zlib.error or EOFError when packed data is broken.
    """
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    yield from _READERS[reading](data)


def _text(data: bytes) -> Iterator[str]:
    yield data.decode("utf-8", "replace")


def _html(data: bytes) -> Iterator[str]:
    yield extract_plain_text(data.decode("utf-8", "replace"), main_content=True, alt_texts=False, links=False, preserve_formatting=True)


def _markup(data: bytes) -> Iterator[str]:
    yield re.sub(r"[ \t]+", " ", re.sub(r"<[^>]*>", " ", data.decode("utf-8", "replace")))


def _man(data: bytes) -> Iterator[str]:
    """Manual page source: headings kept, requests and font changes removed."""
    text = re.sub(r"^[.']\\\".*$", "", data.decode("utf-8", "replace"), flags=re.M)
    text = re.sub(r"^\.(?:TH|SH|SS)\s+(.*)$", r"\n\1\n", text, flags=re.M)
    text = re.sub(r"^\.[A-Za-z]{1,2}\s*", "", text, flags=re.M)
    yield re.sub(r"\\f(?:\[\w*\]|\w)|\\&|\\\(..", "", text).replace("\\-", "-")


def _paragraphs(data: bytes) -> Iterator[str]:
    yield from _bundled(re.split(r"\n\s*\n", data.decode("utf-8", "replace")), "\n\n", DOCUMENT_CHARS)


def _dictd(data: bytes) -> Iterator[str]:
    """Entries start at the left margin, their bodies are indented."""
    yield from _bundled(re.split(r"\n(?=\S)", data.decode("utf-8", "replace")), "\n", DOCUMENT_CHARS)


def _fortune(data: bytes) -> Iterator[str]:
    yield from data.decode("utf-8", "replace").split("\n%\n")


def _quoted(data: bytes) -> Iterator[str]:
    """What is told in a game's files: long texts between quotation marks; names and settings stay behind."""
    text = data.decode("utf-8", "replace")
    spoken = re.findall(r'"((?:[^"]|"")*)"|`([^`\n]*)`', text)
    told = [(first or second).replace('""', '"') for first, second in spoken]
    told = [part.strip() for part in told if len(part.split()) > 8]
    if told:
        yield "\n".join(told)


def _rdb(data: bytes) -> Iterator[str]:
    """Strings of an R lazy-load database: packed objects, in each of which a string is a header word, a length and its bytes."""
    found: list[str] = []
    for unpacked in _zlib_streams(data, before=4):
        for match in re.finditer(rb"\x00[\x00-\xff]\x00\x09(....)", unpacked, re.DOTALL):
            size = int.from_bytes(match[1], "big")
            if size < len(unpacked):
                found.append(unpacked[match.end() : match.end() + size].decode("utf-8", "replace"))
    yield from _bundled([line for line in found if len(line.split()) > 3], "\n", CHAPTER_CHARS)


def _sword(data: bytes) -> Iterator[str]:
    """A scripture module: packed books, one behind the other, with markup inside."""
    for unpacked in _zlib_streams(data, after=1024):
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", unpacked.decode("utf-8", "replace")))
        yield from (text[start : start + CHAPTER_CHARS] for start in range(0, len(text), CHAPTER_CHARS))


def _zlib_streams(data: bytes, *, before: int = 0, after: int = 0) -> Iterator[bytes]:
    """Packed streams in a row, each between so many bytes of something else."""
    while len(data) > before:
        unpacker = zlib.decompressobj()
        yield unpacker.decompress(data[before:])
        data = unpacker.unused_data[after:]


def _bundled(parts: list[str], join: str, chars: int) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= chars:
            yield join.join(held)
            held, size = [], 0
    if held:
        yield join.join(held)


_READERS: dict[Reading, Callable[[bytes], Iterator[str]]] = {
    "text": _text,
    "html": _html,
    "markup": _markup,
    "man": _man,
    "paragraphs": _paragraphs,
    "dictd": _dictd,
    "fortune": _fortune,
    "quoted": _quoted,
    "sword": _sword,
    "rdb": _rdb,
}
