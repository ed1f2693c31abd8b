"""The first page of a data set: domains by quality as map and table, sources, epochs under the newest run's mixture, search by topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.base import units
from forerun.dashboard.atlas import address, mixture
from forerun.dashboard.atlas.attributes import SourceView
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.desk import Desk
from forerun.dashboard.heat import HeatMap
from forerun.dashboard.html import Markup, Piece, join, table, tag
from forerun.dashboard.numbers import number, terms
from forerun.dashboard.page import paragraph

SHOWN_SOURCES = 3  # assumed: main sources named beside a domain; its page has them all
ENRICHED_HIGH = 2.0
"""Enrichment of the darkest shade: twice the usual share."""


def content(book: Book, sources: Mapping[str, SourceView], run: tuple[str, Mapping[str, Any]] | None, desk: Desk) -> list[Piece]:
    """The page. `run` is the newest run on this data and its config."""
    exposure = None
    if run is not None:
        phases, tokens = mixture.phases_of(book, run[1])
        exposure = mixture.outcome(book, phases, tokens).exposure
    return [
        paragraph(
            number(book.num_tokens, "num_tokens", units.count(book.num_tokens)),
            f" training tokens in {len(book.domains)} domains and {NUM_QUALITIES} quality buckets, Q0 lowest, Q4 best: exactly {book.num_tokens:,}.",
            class_="lead",
        ),
        *([paragraph(book.origin, class_="soft")] if book.origin else []),
        navigation(book, desk),
        *([_search(book, desk)] if book.digest and sources else []),
        desk.draw(_map(book)),
        _domains(book, sources, exposure, run[0] if run else "", desk),
        *([_sources(book, sources, desk)] if sources else []),
        paragraph(
            "Enrichment of a bucket in a domain is P(bucket given domain) / P(bucket), over tokens: 1 is usual, 2 is twice the usual share.",
            class_="soft",
        ),
    ]


def navigation(book: Book, desk: Desk) -> Markup:
    """Links to the pages of one data set."""
    entries = [("Overview", "index.html"), ("Mixture", "mixture.html")]
    if book.digest:
        entries += [("Duplicates", "pairs.html"), ("Contamination", "contamination.html"), ("Provenance", "provenance.html")]
    entries.append(("Files", "files.html"))
    items = [
        tag("li", desk.link(label, address.page(book, name)) if address.page(book, name) != desk.path else tag("strong", label))
        for label, name in entries
    ]
    return tag("ul", *items, class_="links", aria_label="Pages of this data set")


def _search(book: Book, desk: Desk) -> Markup:
    """Filled in by a script; without one the domain table below is what there is."""
    index, domains = desk.address(address.file(book, "search.json")), desk.address(address.page(book, "domains"))
    return tag(
        "div",
        id="topic-search",
        data_index=index,
        data_domains=domains,
        data_terms=terms("topic_share", "topic_tokens", "token_share", "enrichment"),
    )


def _map(book: Book) -> HeatMap:
    values = [[book.enrichment(domain, quality) or 0.0 for quality in range(NUM_QUALITIES)] for domain in book.domains]
    best = max(range(len(values)), key=lambda index: values[index][NUM_QUALITIES - 1], default=0)
    return HeatMap(
        key="enrichment",
        title=f"{book.title(book.domains[best])} has {values[best][-1]:.2f} times the usual share of the best bucket"
        if values
        else "No text",
        x_label="quality bucket",
        y_label="enrichment in a domain",
        columns=[f"Q{quality}" for quality in range(NUM_QUALITIES)],
        rows=[book.title(domain) for domain in book.domains],
        values=values,
        term="enrichment",
        low=0.0,
        high=ENRICHED_HIGH,
    )


def _domains(book: Book, sources: Mapping[str, SourceView], exposure: Mapping[str, float] | None, run: str, desk: Desk) -> Markup:
    parts: dict[str, dict[str, int]] = {}
    for source in sources.values():
        for domain, tokens in source.by_domain(book).items():
            parts.setdefault(domain, {})[source.name] = tokens
    epochs: dict[str, list[float]] = {}
    for cell in book.cells:
        if exposure is not None and cell.name in exposure:
            epochs.setdefault(cell.domain, []).append(exposure[cell.name])
    rows = [_row(book, domain, parts.get(domain, {}), epochs.get(domain), desk) for domain in book.domains]
    documents = [book.num_documents(domain) for domain in book.domains]
    whole = None if any(count is None for count in documents) else sum(count or 0 for count in documents)
    total: list[Piece] = ["all", number(1.0, "token_share", "100%"), number(book.num_tokens, "num_tokens"), number(whole, "num_documents")]
    total += [
        number(tokens / book.num_tokens if book.num_tokens else 0.0, "quality_share", _percent(tokens, book.num_tokens))
        for tokens in book.qualities
    ]
    total += [number(1.0 if book.qualities[-1] else None, "enrichment", "1.00" if book.qualities[-1] else None)]
    heads: list[Piece] = [
        "domain",
        desk.term("share", "token_share"),
        desk.term("tokens", "num_tokens"),
        desk.term("documents", "num_documents"),
    ]
    heads += [desk.term(f"Q{quality}", "quality_share") for quality in range(NUM_QUALITIES)]
    heads.append(desk.term("Q4 enrichment", "enrichment"))
    if sources:
        heads.append("main sources")
        total.append("")
    if exposure is not None:
        heads.append(desk.term(f"most epochs in {run}", "exposure"))
        total.append(number(max(exposure.values(), default=0.0), "exposure"))
        rows = [(*row, number(max(epochs.get(domain, [0.0])), "exposure")) for row, domain in zip(rows, book.domains)]
    return table(heads, [*rows, tuple(total)], caption="Domains, largest first: share of the whole, and of each domain in every bucket")


def _row(book: Book, domain: str, parts: Mapping[str, int], epochs: list[float] | None, desk: Desk) -> tuple[Piece, ...]:
    tokens = sum(book.grid[domain])
    rich = book.enrichment(domain, NUM_QUALITIES - 1)
    row: list[Piece] = [
        desk.link(book.title(domain), address.domain(book, domain)),
        number(tokens / book.num_tokens if book.num_tokens else 0.0, "token_share", _percent(tokens, book.num_tokens, 2)),
        number(tokens, "num_tokens"),
        number(book.num_documents(domain), "num_documents"),
        *(number(part / tokens if tokens else 0.0, "quality_share", _percent(part, tokens)) for part in book.grid[domain]),
        number(rich, "enrichment", f"{rich:.2f}" if rich is not None else None),
    ]
    if parts:
        largest = sorted(parts.items(), key=lambda part: -part[1])
        words = [
            join((desk.link(name, address.source(book, name)), " ", number(part / tokens, "token_share", _percent(part, tokens))))
            for name, part in largest[:SHOWN_SOURCES]
        ]
        more = f", {len(largest) - SHOWN_SOURCES} more" if len(largest) > SHOWN_SOURCES else ""
        row.append(join([piece for word in words for piece in (", ", word)][1:] + [more]))
    return tuple(row)


def _sources(book: Book, sources: Mapping[str, SourceView], desk: Desk) -> Markup:
    rows = [
        (
            desk.link(source.name, address.source(book, source.name)),
            source.facts.get("licence", ""),
            number(source.facts.get("num_documents_in"), "num_documents"),
            number(source.num_documents, "num_documents"),
            number(source.num_tokens, "num_tokens"),
            number(
                source.num_tokens / book.num_tokens if book.num_tokens else 0.0, "token_share", _percent(source.num_tokens, book.num_tokens)
            ),
            "; ".join(source.flags),
        )
        for source in sorted(sources.values(), key=lambda source: (-source.num_tokens, source.name))
    ]
    heads = [
        "source",
        "licence",
        desk.term("documents read", "num_documents"),
        desk.term("documents kept", "num_documents"),
        desk.term("tokens", "num_tokens"),
        desk.term("share", "token_share"),
        "remarks",
    ]
    return table(heads, rows, caption="Sources, largest first")


def _percent(part: float, whole: float, digits: int = 1) -> str:
    return f"{part / whole:.{digits}%}" if whole else "0%"
