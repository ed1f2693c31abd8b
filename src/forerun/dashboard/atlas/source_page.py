"""One source: licence and revision, what became of its documents, and where its text went."""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc

from forerun.base.lab import Lab
from forerun.dashboard.atlas import address
from forerun.dashboard.atlas.attributes import SourceView
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.decisions import evidence, step_folder
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.desk import Desk
from forerun.dashboard.html import Markup, Piece, table, tag
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph


def content(lab: Lab, book: Book, source: SourceView, desk: Desk) -> list[Piece]:
    """The page."""
    facts = [("licence", source.facts.get("licence", "not stated")), ("revision", source.facts.get("revision", "not stated"))]
    quality = [
        (f"Q{index}", number(part, "num_tokens"), number(part / source.num_tokens, "quality_share", f"{part / source.num_tokens:.1%}"))
        for index, part in enumerate(source.by_quality(book))
        if source.num_tokens
    ]
    domains = [
        (
            desk.link(book.title(domain), address.domain(book, domain)),
            number(tokens, "num_tokens"),
            number(tokens / source.num_tokens, "token_share", f"{tokens / source.num_tokens:.1%}"),
        )
        for domain, tokens in sorted(source.by_domain(book).items(), key=lambda part: -part[1])
    ]
    spread = paragraph(
        "Mean quality score ",
        number(source.score_mean, "quality_score"),
        ", standard deviation ",
        number(source.score_sd, "quality_score"),
        ".",
    )
    return [
        paragraph(
            number(source.num_tokens, "num_tokens"),
            " tokens in ",
            number(source.num_documents, "num_documents"),
            " documents.",
            class_="lead",
        ),
        navigation(book, desk),
        *(paragraph(tag("strong", "Look here: "), flag, ".") for flag in source.flags),
        table(["", "stated"], facts, caption="What the source says of itself"),
        _funnel(lab, book, source, desk),
        *([spread] if source.num_documents else []),
        *([table(["bucket", "tokens", "share"], quality, caption=f"Over {NUM_QUALITIES} quality buckets")] if quality else []),
        *([table(["domain", "tokens", "share"], domains, caption="Over domains")] if domains else []),
    ]


def dropped(lab: Lab, book: Book) -> dict[str, Counter[str]]:
    """Step and reason to documents dropped of each source, as far as the steps' folders say whose they were."""
    found: dict[str, Counter[str]] = {}
    fuzzy = evidence(lab, book, "fuzzy_dedup", "decisions.parquet")
    if fuzzy is not None:
        found["near_duplicate"] = Counter(fuzzy["source"].to_pylist())
    contaminated = evidence(lab, book, "decontaminate", "contaminated.parquet")
    if contaminated is not None and "source" in contaminated.column_names:
        found["contaminated"] = Counter(contaminated["source"].to_pylist())
    normalized = evidence(lab, book, "normalize", "dropped.parquet")
    if normalized is not None and {"source", "reason"} <= set(normalized.column_names):
        for reason in pc.unique(normalized["reason"]).to_pylist():
            found[str(reason)] = Counter(normalized.filter(pc.equal(normalized["reason"], reason))["source"].to_pylist())
    return found


def _funnel(lab: Lab, book: Book, source: SourceView, desk: Desk) -> Markup:
    read = source.facts.get("num_documents_in")
    by_reason = {reason: counts[source.name] for reason, counts in dropped(lab, book).items() if counts[source.name]}
    left = int(read or 0) - source.num_documents - sum(by_reason.values())
    rows: list[tuple[Piece, Piece]] = [("read", number(read, "num_documents"))]
    rows += [(f"dropped: {reason.replace('_', ' ')}", number(count, "num_documents")) for reason, count in sorted(by_reason.items())]
    if read is not None and left > 0:
        words = (
            "held out for evaluation, exact copies and what no folder explains"
            if step_folder(lab, book, "fuzzy_dedup")
            else "dropped or held out"
        )
        rows.append((words, number(left, "num_documents")))
    rows.append(("in the training cells", number(source.num_documents, "num_documents")))
    return table(["", desk.term("documents", "num_documents")], rows, caption="What became of its documents")
