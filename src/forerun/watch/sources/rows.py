"""Rows of a file, whatever its format: CSV with commas, tabs or semicolons, Parquet, JSON lines, or one JSON document; also gzipped.

A line that is still being written, the last one without its end, is left for the next read.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from forerun.base.errors import SourceError

Row = dict[str, Any]
DELIMITERS = (",", "\t", ";")
CONTAINERS = ("metrics",)
"""Names of objects inside a row that say nothing about the metrics in them."""


def rows_of(path: Path) -> Iterator[Row]:
    """The file's rows by column; cells of text files are strings. Raises: SourceError when it is absent or not of the format it names."""
    if not path.is_file():
        raise SourceError(f"{path} is not a file", hint="check the path")
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    read = {".parquet": _parquet, ".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json_document}.get(ending, _csv)
    try:
        yield from read(path)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}", hint="check the file; text has to be UTF-8") from None


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _csv(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        lines = (line for line in _text(file) if not line.startswith("#") and line.strip())
        head = next(lines, "")
        delimiter = next((mark for mark in DELIMITERS if mark in head), ",")
        try:
            names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])]
            for cells in csv.reader(lines, delimiter=delimiter):
                if [cell.strip() for cell in cells] == names:  # a restarted writer appends its head again
                    continue
                if delimiter == ";":  # where a comma is the decimal mark
                    yield {name: cell.replace(",", ".") for name, cell in zip(names, cells)}
                else:
                    yield dict(zip(names, cells))
        except csv.Error as error:
            raise SourceError(f"{path} is not CSV: {error}", hint="save it as UTF-8 CSV") from None


def _text(file: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(file):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8")


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"{path} is not Parquet: {str(error).strip()}", hint="check the file") from None


def _json_lines(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)  # the standard library's: histories write NaN, which orjson refuses
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise SourceError(f"{path}: line {number} is not JSON: {error}", hint="mend or remove the line") from None
            if not isinstance(row, dict):
                raise SourceError(f"{path}: line {number} is no object", hint="one object a line, with its step")
            yield flat(row)


def _json_document(path: Path) -> Iterator[Row]:
    """A list of rows, bare or under `log_history` as transformers saves it."""
    with _open(path) as file:
        try:
            document = json.load(file)
        except ValueError as error:
            raise SourceError(f"{path} is not JSON: {error}", hint="JSON lines end in .jsonl") from None
    rows = document.get("log_history") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SourceError(f"{path} holds no list of rows, bare or under log_history", hint="one object a row, with its step")
    yield from map(flat, rows)


def flat(row: Row, prefix: str = "") -> Row:
    """A row with objects inside it spread out: `{"eval": {"loss": 3}}` has the column `eval/loss`."""
    spread: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            spread |= flat(value, prefix if name in CONTAINERS else f"{prefix}{name}/")
        else:
            spread[prefix + name] = value
    return spread
