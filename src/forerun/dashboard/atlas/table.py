"""Published cell totals brought in as an atlas of their own: exact tables, mixture files, and rounded tables with a stated total."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from forerun.base.errors import DataError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import NUM_QUALITIES, TABLE_FILE, Book, read_table_book

HARRIER = "harrier"
"""The table that comes with forerun: tokens of 40 domains by 5 quality buckets of a public 535B run."""
QUALITY_COLUMN = re.compile(r"q([0-4])(?:\s*(%))?", re.IGNORECASE)
CELL_NAME = re.compile(r"(?P<domain>.+?)[/_\- ]?q(?P<quality>[0-4])", re.IGNORECASE)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}

Totals = dict[tuple[str, int], int]
"""(domain, quality) to tokens."""


def import_table(lab: Lab, source: str, name: str, total: int | None = None) -> Book:
    """Bring in a table under a name.

    Args:
        source: `harrier`, a CSV or Markdown table with columns `domain, q0 .. q4` (tokens, or percent of the domain beside a column of
            domain tokens), a CSV `cell,tokens`, or JSON with `available_tokens` by cell.
        total: tokens of all cells; needed for rounded tables, whose cells are then apportioned so that they add up to it.
    Raises: DataError naming the row that cannot be read, or when the cells do not add up to `total`.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", name):
        raise DataError(f"--as must be lower-case letters, digits, dots and hyphens, got {name!r}", hint="for example --as harrier")
    if sorted(lab.manifests.glob(f"{name}*.json")):
        raise DataError(f"--as {name!r} is the beginning of a manifest's digest", hint="choose another name")
    if source == HARRIER:
        text, origin, suffix = (files("forerun.dashboard.atlas") / "data" / "harrier_k40.csv").read_text("utf-8"), "", ".csv"
    else:
        text, origin, suffix = _read(Path(source)), source, Path(source).suffix
    notes = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("#"))
    totals = _json_totals(text, source) if suffix == ".json" else _table_totals(text, source, total)
    found = sum(totals.values())
    if total is not None and found != total:
        raise DataError(f"{source}: the cells hold {found:,} tokens, --total says {total:,}", hint="give the total of this very table")
    cells = [
        {"name": f"{domain}/q{quality}", "domain": domain, "quality": quality, "num_tokens": tokens}
        for (domain, quality), tokens in sorted(totals.items())
    ]
    path = lab.atlas / name / TABLE_FILE
    write_json(path, {"schema": 1, "name": name, "origin": notes or origin, "num_tokens": found, "cells": cells})
    return read_table_book(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint=f"name a CSV, Markdown or JSON file, or `{HARRIER}`") from None


def _json_totals(text: str, source: str) -> Totals:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{source} is not JSON: {error}", hint="check the file") from None
    tokens = content.get("available_tokens", content) if isinstance(content, dict) else None
    if not isinstance(tokens, dict) or not tokens:
        raise DataError(f"{source} holds no cells", hint='expected {"available_tokens": {"c00q0": 123, ...}}')
    return _by_cell([(str(cell), count) for cell, count in tokens.items()], source)


def _table_totals(text: str, source: str, total: int | None) -> Totals:
    rows = _rows(text)
    if len(rows) < 2:
        raise DataError(f"{source} holds no table", hint="a head line and one line a domain or cell")
    head = [cell.strip().lower() for cell in rows[0]]
    qualities = {int(match.group(1)): index for index, name in enumerate(head) if (match := QUALITY_COLUMN.fullmatch(name))}
    if len(qualities) == NUM_QUALITIES:
        domains = [row[0].strip() for row in rows[1:]]
        if twice := next((domain for domain in domains if domains.count(domain) > 1), None):
            raise DataError(f"{source}: domain {twice!r} occurs twice", hint="remove one")
        percent = any("%" in head[index] for index in qualities.values())
        if not percent:
            return {
                (row[0].strip(), quality): _tokens(row, index, 1, source, number)
                for number, row in enumerate(rows[1:], start=2)
                for quality, index in qualities.items()
            }
        return _apportioned(rows, head, qualities, source, total)
    if "cell" in head and (tokens := next((name for name in ("num_tokens", "tokens", "available_tokens") if name in head), "")):
        cell, amount = head.index("cell"), head.index(tokens)
        return _by_cell([(row[cell], row[amount]) if len(row) > max(cell, amount) else ("", "") for row in rows[1:]], source)
    raise DataError(f"{source} has columns {head}", hint="needed: domain, q0 .. q4; or cell, tokens")


def _apportioned(rows: Sequence[Sequence[str]], head: list[str], qualities: Mapping[int, int], source: str, total: int | None) -> Totals:
    """Shares of each domain times its tokens, made whole by largest remainders so that all cells add up to `total`."""
    amount = next((index for index, name in enumerate(head) if "tokens" in name), None)
    if amount is None or total is None:
        raise DataError(f"{source} states percentages", hint="they need a column of domain tokens (such as `B tokens`) and --total")
    unit = UNITS.get(head[amount].split()[0][:1] if " " in head[amount] else "", 1)
    wanted = {}
    for number, row in enumerate(rows[1:], start=2):
        tokens = _number(row, amount, source, number) * unit
        shares = [_number(row, qualities[quality], source, number) for quality in range(NUM_QUALITIES)]
        if not sum(shares):
            raise DataError(f"{source}: row {number} has no shares", hint="mend the row")
        wanted |= {(row[0].strip(), quality): tokens * share / sum(shares) for quality, share in enumerate(shares)}
    scale = total / sum(wanted.values())
    whole = {key: int(value * scale) for key, value in wanted.items()}
    left = total - sum(whole.values())
    for key in sorted(wanted, key=lambda key: (whole[key] - wanted[key] * scale, key))[:left]:
        whole[key] += 1
    return whole


def _by_cell(pairs: list[tuple[str, Any]], source: str) -> Totals:
    totals: Totals = {}
    for number, (cell, count) in enumerate(pairs, start=1):
        match = CELL_NAME.fullmatch(cell.strip())
        if not match:
            raise DataError(f"{source}: cell {number} is named {cell!r}", hint="names end in q0 to q4, such as c26q4 or law/q3")
        key = (match["domain"], int(match["quality"]))
        if key in totals:
            raise DataError(f"{source}: cell {cell!r} occurs twice", hint="remove one")
        totals[key] = _tokens([str(count)], 0, 1, source, number)
    return totals


def _tokens(row: Sequence[str], index: int, unit: int, source: str, number: int) -> int:
    value = _number(row, index, source, number) * unit
    if value < 0 or value != int(value):
        raise DataError(f"{source}: row {number} holds {row[index]!r} tokens, expected a whole number", hint="mend the row")
    return int(value)


def _number(row: Sequence[str], index: int, source: str, number: int) -> float | int:
    try:
        text = row[index].replace(",", "").replace("%", "").strip()
        value = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except (IndexError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{source}: row {number} has no number in column {index + 1}", hint="mend the row")
    return value


def _rows(text: str) -> list[list[str]]:
    """Cells of a CSV, or of the first table of a Markdown file that has quality columns; comments, rules and empty lines are left out."""
    tables = [part.splitlines() for part in re.findall(r"(?m)(?:^[ \t]*\|.*(?:\n|\Z))+", text)]
    for lines in tables:
        cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
        if any(QUALITY_COLUMN.fullmatch(cell) for cell in cells[0]):
            return [row for row in cells if not all(re.fullmatch(r":?-*:?", cell) for cell in row)]
    return [row for row in csv.reader(line for line in text.splitlines() if line.strip() and not line.startswith("#")) if row]
