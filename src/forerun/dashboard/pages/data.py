"""What is in the data, from the manifest: domains by quality, sources with licences, and every step with what it dropped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from forerun.base import units
from forerun.dashboard.atlas import address
from forerun.dashboard.atlas import pages as atlas
from forerun.dashboard.atlas.book import book_of_manifest
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.heat import HeatMap
from forerun.dashboard.html import Piece, table
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph

NUM_QUALITIES = 5


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="data.html", title="What is in the data", content=lambda desk: content(files, desk))


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """Every data set of the lab."""
    parts = atlas.links(files, desk)
    parts += [part for digest, manifest in files.manifests.items() for part in _data_set(digest, manifest, desk)]
    return parts or [paragraph("No data set yet. `forerun curate` makes one.")]


def _data_set(digest: str, manifest: Mapping[str, Any], desk: Desk) -> list[Piece]:
    grid: dict[str, Counter[int]] = {}
    for cell in manifest["cells"]:
        grid.setdefault(cell["domain"], Counter())[cell["quality"]] += cell["num_tokens"]
    total = sum(sum(row.values()) for row in grid.values())
    whole = Counter[int]()
    for row in grid.values():
        whole.update(row)
    book = book_of_manifest(digest, manifest)
    by_tokens = sorted(grid, key=lambda name: -sum(grid[name].values()))
    ordered = [(book.title(name), grid[name]) for name in by_tokens]
    rows = [_domain(desk.link(book.title(name), address.domain(book, name)), grid[name], whole, total) for name in by_tokens]
    rows.append(_domain("all", whole, whole, total))
    sources = [
        (
            source["name"],
            source["licence"],
            source["revision"],
            *(number(source[key], key.removesuffix("_in")) for key in ("num_documents_in", "num_documents", "num_tokens")),
        )
        for source in manifest["sources"]
    ]
    steps = [
        (
            step["name"].replace("_", " "),
            number(step["documents_in"], "num_documents"),
            number(step["documents_out"], "num_documents"),
            ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in step["dropped"].items()),
        )
        for step in manifest["steps"]
    ]
    held = [
        (cell["name"], number(cell["num_documents"], "num_documents"), number(cell["num_tokens"], "num_tokens"))
        for cell in manifest["held_out"]
    ]
    heads = [
        "domain",
        desk.term("share", "num_tokens"),
        *(desk.term(f"Q{quality}", "quality_share") for quality in range(NUM_QUALITIES)),
        desk.term("enrichment of Q4", "enrichment"),
        "tokens",
    ]
    return [
        paragraph(
            f"Data set {manifest.get('name', '')}: ",
            number(total, "num_tokens", units.count(total)),
            f" training tokens, vocabulary {manifest['vocab_size']:,}, in {len(grid)} domains and {NUM_QUALITIES} quality buckets.",
            class_="lead",
        ),
        *([desk.draw(_map(digest, ordered))] if total else []),
        table(heads, rows, caption="Domains by quality: share of each domain's tokens"),
        table(["source", "licence", "revision", "documents read", "documents kept", "tokens"], sources, caption="Sources"),
        table(["step", "documents in", "documents out", "dropped, with the reason"], steps, caption="From raw documents to the store"),
        table(["domain", "documents", "tokens"], held, caption="Held out for evaluation, never trained on"),
    ]


def _domain(name: Piece, row: Mapping[int, int], whole: Mapping[int, int], total: int) -> tuple[Piece, ...]:
    tokens = sum(row.values())
    usual = whole[NUM_QUALITIES - 1] / total if total else 0.0
    enriched = row[NUM_QUALITIES - 1] / tokens / usual if usual and tokens else None
    shares = [row[quality] / tokens if tokens else 0.0 for quality in range(NUM_QUALITIES)]
    return (
        name,
        number(tokens, "num_tokens", f"{tokens / total:.1%}" if total else "0%"),
        *(number(share, "quality_share", f"{share:.0%}") for share in shares),
        number(enriched, "enrichment", f"{enriched:.2f}" if enriched is not None else None),
        number(tokens, "num_tokens"),
    )


def _map(digest: str, ordered: list[tuple[str, Counter[int]]]) -> HeatMap:
    values = [[row[quality] / (sum(row.values()) or 1) for quality in range(NUM_QUALITIES)] for _, row in ordered]
    best = max(range(len(ordered)), key=lambda index: values[index][NUM_QUALITIES - 1])
    return HeatMap(
        key=f"quality-{digest[:8]}",
        title=f"{ordered[best][0]} has the largest share of the best bucket: {values[best][NUM_QUALITIES - 1]:.0%}",
        x_label="quality bucket",
        y_label="share of a domain's tokens",
        columns=[f"Q{quality}" for quality in range(NUM_QUALITIES)],
        rows=[name for name, _ in ordered],
        values=values,
        term="quality_share",
        low=0.0,
    )
