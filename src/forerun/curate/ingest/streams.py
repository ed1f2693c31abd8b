"""Bytes out of compressed files and lines out of bytes, in bounded memory. A cut file never reads as a shorter one."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from forerun.base.errors import DataError
from forerun.curate.ingest import remote

PIECE_BYTES = 1 << 20
ZSTD, ZSTD_SKIPPABLE = b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # source: RFC 8878; the latter after any byte from 0x50 to 0x5f
MOST_WINDOW = 1 << 31  # source: RFC 8878; `zstd --long=31`, as some public dumps are packed, takes 2 GiB to unpack
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # byte order marks, the longer ones first: UTF-16's begins UTF-32's
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, lzma.LZMAError)
BZIP2, XZ = b"BZh", b"\xfd7zXZ\x00"


class BrokenFile(DataError):
    """A file that ends or breaks in the middle; what was read before is good."""


@contextmanager
def plain(url: str) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed when its first bytes say gzip, zstd, bzip2 or xz.

    Raises: BrokenFile, from reads, when the compressed stream is cut or damaged.
    """
    with remote.opened(url) as stream:
        buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
        magic = buffered.peek(6)[:6]  # type: ignore[attr-defined]
        if magic[:2] == b"\x1f\x8b":
            yield cast(BinaryIO, _Whole(cast(BinaryIO, _Pieces(gzip.GzipFile(fileobj=buffered))), url))
        elif magic[:3] == BZIP2 and magic[3:4].isdigit():
            yield cast(BinaryIO, _Whole(cast(BinaryIO, _Pieces(bz2.BZ2File(buffered))), url))
        elif magic == XZ:
            yield cast(BinaryIO, _Whole(cast(BinaryIO, _Pieces(lzma.LZMAFile(buffered))), url))  # noqa: SIM115  the block below closes what it reads
        elif magic[:4] == ZSTD or (magic[1:4] == ZSTD_SKIPPABLE and magic[0] & 0xF0 == 0x50):
            yield cast(BinaryIO, _Whole(io.BufferedReader(_Zstd(cast(BinaryIO, buffered)), PIECE_BYTES), url))
        else:
            yield cast(BinaryIO, _Whole(buffered, url))


@contextmanager
def text(url: str) -> Iterator[BinaryIO]:
    """As `plain`, in UTF-8 when a byte order mark says UTF-16 or UTF-32."""
    with plain(url) as stream:
        head = stream.read(4)
        for mark, encoding in MARKS:
            if head.startswith(mark):
                yield cast(BinaryIO, _Recoded(stream, head[len(mark) :], encoding))
                return
        yield cast(BinaryIO, _Ahead(stream, head))


class _Ahead:
    """A stream of which the first bytes were read already."""

    def __init__(self, stream: BinaryIO, head: bytes) -> None:
        self._stream, self._head = stream, head

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(size - len(head) if size > len(head) else size) if head else self._stream.read(size)


class _Recoded:
    """UTF-8 out of another encoding; what is invalid becomes U+FFFD."""

    def __init__(self, stream: BinaryIO, head: bytes, encoding: str) -> None:
        self._stream, self._head, self._decoder = stream, head, codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int = -1) -> bytes:
        """About as many bytes; none only at the end."""
        while True:
            piece = self._head + self._stream.read(size)
            self._head = b""
            text = self._decoder.decode(piece, final=not piece)
            if text or not piece:
                return text.encode()


class _Pieces:
    """A stream that hands over what it has: one that breaks loses nothing of what came before."""

    def __init__(self, stream: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if size >= 0:
            return self._stream.read1(size)
        return b"".join(iter(lambda: self._stream.read1(PIECE_BYTES), b""))


class _Whole:
    """A stream whose faults name the file."""

    def __init__(self, stream: io.BufferedIOBase | gzip.GzipFile | BinaryIO, url: str) -> None:
        self._stream, self._url, self._position = stream, url, 0

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._stream.read(size)
        except (*BROKEN, OSError) as error:
            raise BrokenFile(
                f"{self._url} ends or breaks after {self._position:,} bytes of text: {error}", hint="fetch the file again"
            ) from None
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position


class _Zstd(io.RawIOBase):
    """Frames one after another; the library's own reader ends silently where a file was cut."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._frame, self._ready = stream, _frame(), b""
        self._inside = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            if self._inside and self._frame.eof:
                rest, self._inside = self._frame.unused_data, False
                self._frame = _frame()
            else:
                rest = b""
            piece = rest or self._stream.read(1 << 16)
            if not piece:
                if self._inside:
                    raise EOFError("the last zstd frame is cut short")
                return 0
            self._inside = True
            self._ready = self._frame.decompress(piece)
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def _frame() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=MOST_WINDOW).decompressobj()


def lines(stream: BinaryIO, most: int) -> Iterator[bytes | int]:
    """Lines without their end; instead of a line longer than `most` bytes, its length. Memory stays near `most` whatever the file."""
    rest, skipped = bytearray(), 0
    while piece := stream.read(PIECE_BYTES):
        pieces = piece.split(b"\n")
        for index, part in enumerate(pieces):
            ends = index < len(pieces) - 1
            if skipped or len(rest) + len(part) > most:
                skipped += len(rest) + len(part)
                rest.clear()
                if ends:
                    yield skipped
                    skipped = 0
            elif ends and not rest:
                yield part
            else:
                rest += part
                if ends:
                    yield bytes(rest)
                    rest.clear()
    if skipped:
        yield skipped
    elif rest:
        yield bytes(rest)
