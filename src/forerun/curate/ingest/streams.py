"""Bytes out of compressed files and lines out of bytes, in bounded memory. A cut file never reads as a shorter one."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import zstandard

from forerun.base.errors import DataError
from forerun.curate.ingest import remote

PIECE_BYTES = 1 << 20
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class BrokenFile(DataError):
    """A file that ends or breaks in the middle; what was read before is good."""


@contextmanager
def plain(url: str) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed when its first bytes say gzip or zstd.

    Raises: BrokenFile, from reads, when the compressed stream is cut or damaged.
    """
    with remote.opened(url) as stream:
        buffered = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
        magic = buffered.peek(4)[:4]  # type: ignore[attr-defined]
        if magic[:2] == b"\x1f\x8b":
            yield cast(BinaryIO, _Whole(gzip.GzipFile(fileobj=buffered), url))
        elif magic == b"\x28\xb5\x2f\xfd":
            yield cast(BinaryIO, _Whole(io.BufferedReader(_Zstd(cast(BinaryIO, buffered)), PIECE_BYTES), url))
        else:
            yield cast(BinaryIO, _Whole(buffered, url))


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
        self._stream, self._frame, self._ready = stream, zstandard.ZstdDecompressor().decompressobj(), b""
        self._inside = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            if self._inside and self._frame.eof:
                rest, self._inside = self._frame.unused_data, False
                self._frame = zstandard.ZstdDecompressor().decompressobj()
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
