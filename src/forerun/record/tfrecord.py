"""TFRecord frames and protobuf wire format, by hand: what TensorBoard files are made of, both ways.

A frame: length (uint64), its masked CRC-32C, the payload, its masked CRC-32C, all little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

HEADER, FOOTER = 12, 4
MASK_DELTA = 0xA282EAD8  # derived: TFRecord's checksum mask
POLYNOMIAL = 0x82F63B78  # derived: CRC-32C (Castagnoli), reflected
MAX_FRAME = 1 << 30  # assumed: a longer frame is a broken length


class Torn(Exception):
    """The bytes end inside a frame, or a frame does not match its checksum (`corrupt`)."""

    def __init__(self, words: str, *, corrupt: bool) -> None:
        super().__init__(words)
        self.corrupt = corrupt


def _table() -> tuple[int, ...]:
    entries = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)  # noqa: PLW2901
        entries.append(byte)
    return tuple(entries)


TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """One frame around a payload."""
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Pairs (offset behind the frame, payload). Raises: Torn at the first frame that is not whole."""
    at = 0
    while at < len(data):
        if len(data) - at < HEADER:
            raise Torn("the last frame is not whole yet", corrupt=False)
        length, check = struct.unpack_from("<QI", data, at)
        if masked_crc(data[at : at + 8]) != check or length > MAX_FRAME:
            raise Torn("a frame's length does not match its checksum", corrupt=True)
        end = at + HEADER + length + FOOTER
        if end > len(data):
            raise Torn("the last frame is not whole yet", corrupt=False)
        payload = data[at + HEADER : at + HEADER + length]
        if masked_crc(payload) != struct.unpack_from("<I", data, end - FOOTER)[0]:
            raise Torn("a frame does not match its checksum", corrupt=True)
        yield end, payload
        at = end


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Pairs (field number, value): an int for varints, raw bytes for fixed and length-delimited fields."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            value = value - (1 << 64) if value >= 1 << 63 else value
        else:
            if kind == 2:
                size, at = _varint(message, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
            else:
                raise Torn(f"wire type {kind} is unknown", corrupt=True)
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def varint(value: int) -> bytes:
    """A non-negative integer as base-128."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def delimited(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(data):
            raise Torn("a number ends early", corrupt=True)
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
