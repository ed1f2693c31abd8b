"""One atlas: a data set as domains by quality, whether it is a store of this lab or a table somebody published.

All counts are whole numbers and add up to the manifest to the last token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from forerun.base.errors import DataError
from forerun.base.lab import Lab

NUM_QUALITIES = 5
TABLE_FILE = "table.json"
"""In `atlas/<key>/`: a data set known by its cell totals alone."""
KEY_DIGITS = 12


@dataclass(frozen=True)
class AtlasCell:
    """All training text of one domain and quality."""

    name: str
    domain: str
    quality: int
    num_tokens: int
    num_documents: int | None
    """None where only tokens are known."""


@dataclass(frozen=True)
class Book:
    """One data set."""

    key: str
    """In addresses: the beginning of the manifest's digest, or the name of an imported table."""
    name: str
    cells: tuple[AtlasCell, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """Empty for an imported table."""
    digest: str = ""
    """Of the manifest; empty for an imported table."""
    origin: str = ""
    """Where an imported table is from, in words."""

    @cached_property
    def domains(self) -> list[str]:
        """By tokens, largest first."""
        return sorted(self.grid, key=lambda domain: (-sum(self.grid[domain]), domain))

    @cached_property
    def grid(self) -> dict[str, list[int]]:
        """Domain to tokens in Q0 to Q4."""
        grid: dict[str, list[int]] = {}
        for cell in self.cells:
            grid.setdefault(cell.domain, [0] * NUM_QUALITIES)[cell.quality] += cell.num_tokens
        return grid

    @cached_property
    def qualities(self) -> list[int]:
        """Tokens in Q0 to Q4 over all domains."""
        return [sum(row[quality] for row in self.grid.values()) for quality in range(NUM_QUALITIES)]

    @cached_property
    def num_tokens(self) -> int:
        """Training tokens in all."""
        return sum(self.qualities)

    def num_documents(self, domain: str) -> int | None:
        """Documents of a domain; None where a cell does not say."""
        counts = [cell.num_documents for cell in self.cells if cell.domain == domain]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)

    def enrichment(self, domain: str, quality: int) -> float | None:
        """P(quality given domain) / P(quality), over tokens; None when either share is of nothing."""
        tokens, usual = sum(self.grid[domain]), self.qualities[quality]
        return (self.grid[domain][quality] / tokens) / (usual / self.num_tokens) if tokens and usual else None

    def title(self, domain: str) -> str:
        """A domain's name for people."""
        return str(self.manifest.get("domain_titles", {}).get(domain, domain))

    @cached_property
    def reports(self) -> dict[str, dict[str, Any]]:
        """Step name to what it measured about itself."""
        return {step["name"]: step.get("report", {}) for step in self.manifest.get("steps", [])}

    @cached_property
    def domain_reports(self) -> dict[str, dict[str, Any]]:
        """Domain to contrast terms and main source, as the cluster step wrote them."""
        return {entry["slug"]: entry for entry in self.reports.get("cluster", {}).get("domains", []) if "slug" in entry}

    def summary(self) -> dict[str, Any]:
        """Domains with their bucket shares and enrichment, and cells: what `forerun data show` prints."""
        domains = [
            {
                "domain": domain,
                "title": self.title(domain),
                "num_tokens": sum(self.grid[domain]),
                "quality": [tokens / sum(self.grid[domain]) if any(self.grid[domain]) else 0.0 for tokens in self.grid[domain]],
                "enrichment": [self.enrichment(domain, quality) for quality in range(NUM_QUALITIES)],
            }
            for domain in self.domains
        ]
        cells = [{"name": cell.name, "num_documents": cell.num_documents, "num_tokens": cell.num_tokens} for cell in self.cells]
        return {
            "name": self.name,
            "num_tokens": self.num_tokens,
            "num_removed": 0,
            "origin": self.origin,
            "domains": domains,
            "cells": cells,
        }

    @property
    def store_digest(self) -> str:
        """Names the folder of the shards."""
        return self.manifest.get("amends") or self.digest


def book_of_manifest(digest: str, manifest: Mapping[str, Any]) -> Book:
    """The atlas of a store. Documents removed since it was built do not count."""
    gone_tokens: dict[str, int] = {}
    gone_documents: dict[str, int] = {}
    for removal in manifest.get("removed", []):
        gone_tokens[removal["cell"]] = gone_tokens.get(removal["cell"], 0) + removal["num_tokens"]
        gone_documents[removal["cell"]] = gone_documents.get(removal["cell"], 0) + 1
    cells = tuple(
        AtlasCell(
            name=cell["name"],
            domain=cell["domain"],
            quality=cell["quality"] or 0,
            num_tokens=cell["num_tokens"] - gone_tokens.get(cell["name"], 0),
            num_documents=cell["num_documents"] - gone_documents.get(cell["name"], 0),
        )
        for cell in manifest["cells"]
    )
    return Book(
        key=digest[:KEY_DIGITS], name=str(manifest.get("name") or digest[:KEY_DIGITS]), cells=cells, manifest=manifest, digest=digest
    )


def imported_books(lab: Lab) -> Iterator[Book]:
    """Tables brought in by `forerun data import-table`, by name."""
    for path in sorted(lab.atlas.glob(f"*/{TABLE_FILE}")):
        yield read_table_book(path)


def read_table_book(path: Path) -> Book:
    """An imported table. Raises: DataError when the file is not what `import-table` wrote."""
    try:
        table = json.loads(path.read_bytes())
        cells = tuple(
            AtlasCell(cell["name"], cell["domain"], int(cell["quality"]), int(cell["num_tokens"]), None) for cell in table["cells"]
        )
        return Book(key=path.parent.name, name=str(table["name"]), cells=cells, origin=str(table.get("origin", "")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not an imported table: {error}", hint="import it again with `forerun data import-table`") from None


def imported(lab: Lab, key: str) -> Book | None:
    """The imported table of a name; None when there is none."""
    path = lab.atlas / key / TABLE_FILE
    return read_table_book(path) if key and path.exists() else None


def book_of(lab: Lab, key: str) -> Book:
    """The atlas of a manifest digest (or its beginning) or of an imported table's name. Raises: DataError when there is none."""
    table = imported(lab, key)
    if table is not None:
        return table
    found = sorted(lab.manifests.glob(f"{key}*.json")) if key else []
    if len(found) != 1:
        known = [path.stem[:KEY_DIGITS] for path in sorted(lab.manifests.glob("*.json"))[:5]] + [book.key for book in imported_books(lab)]
        problem = "is ambiguous" if found else "does not exist"
        raise DataError(f"data set {key!r} {problem} in {lab.root}", hint=f"data sets here: {', '.join(known) or 'none'}")
    try:
        return book_of_manifest(found[0].stem, json.loads(found[0].read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{found[0]} cannot be read: {error}", hint="restore the file from a copy") from None
