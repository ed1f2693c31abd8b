"""From raw documents to the mixture: every step with its identity, what it dropped and why, and the digests in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.desk import Desk
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph

SHORT = 16
"""Digits of a digest on the page; the manifest has all of them."""


def content(book: Book, runs: Sequence[tuple[str, Mapping[str, Any]]], desk: Desk) -> list[Piece]:
    """The page. `runs` are those that read this data, with their configs."""
    manifest = book.manifest
    steps = [
        (
            step["name"].replace("_", " "),
            tag("code", str(step["identity"])[:SHORT], title=str(step["identity"])),
            number(step["documents_in"], "num_documents"),
            number(step["documents_out"], "num_documents"),
            ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in step.get("dropped", {}).items()),
        )
        for step in manifest.get("steps", [])
    ]
    train = sum(cell["num_documents"] for cell in manifest["cells"])
    held = sum(cell["num_documents"] for cell in manifest["held_out"])
    removed = manifest.get("removed", [])
    facts: list[tuple[Piece, Piece]] = [
        ("manifest", tag("code", book.digest)),
        ("amends the store", tag("code", manifest["amends"])) if manifest.get("amends") else ("store", "this manifest's own"),
        ("tokenizer", tag("code", str(manifest["tokenizer_digest"])[:SHORT], title=str(manifest["tokenizer_digest"]))),
        ("documents in training cells", number(train, "num_documents")),
        ("documents held out", number(held, "num_documents")),
        ("documents removed since", number(len(removed), "num_documents")),
        ("shards", number(sum(len(cell["shards"]) for cell in (*manifest["cells"], *manifest["held_out"])), "num_shards")),
    ]
    gone = [(tag("code", entry["id"]), entry["cell"], number(entry["num_tokens"], "num_tokens"), entry["reason"]) for entry in removed]
    readers = [
        (desk.link(name, f"runs/{name}.html"), f"{len(config.get('data', {}).get('mixture', [])) or 'proportional'}")
        for name, config in runs
    ]
    heads = [
        "step",
        "identity",
        desk.term("documents in", "num_documents"),
        desk.term("documents out", "num_documents"),
        "dropped, with the reason",
    ]
    return [
        paragraph("What one document went through: ", tag("code", f"forerun data explain {book.key} ID"), class_="lead"),
        navigation(book, desk),
        table(heads, steps, caption="From raw documents to the store"),
        table(["what", "value"], facts, caption="Digests and counts"),
        *([table(["document", "cell", "tokens", "reason"], gone, caption="Removed since the store was built")] if gone else []),
        *([table(["run", "mixture phases"], readers, caption="Runs that read it")] if readers else []),
    ]
