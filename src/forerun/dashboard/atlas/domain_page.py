"""One domain: what it is called and made of, its neighbours, its fine clusters on a map, and documents of every bucket to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.lab import Lab
from forerun.dashboard.atlas import address, site_samples
from forerun.dashboard.atlas.attributes import SourceView, folder_of
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.domain_map import map_of
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.atlas.samples import UNIFORM_KIND, samples
from forerun.dashboard.desk import Desk
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.numbers import number, terms
from forerun.dashboard.page import paragraph

NEIGHBOURS = 5
FINE_FILE = "fine.parquet"


def content(
    lab: Lab, book: Book, domain: str, sources: Mapping[str, SourceView], spans: Mapping[str, tuple[int, int]], desk: Desk
) -> list[Piece]:
    """The page.

    Args:
        spans: cell to its rows in the file of samples.
    """
    tokens = sum(book.grid[domain])
    report = book.domain_reports.get(domain, {})
    buckets = [
        (
            f"Q{quality}",
            number(part, "num_tokens"),
            number(part / tokens if tokens else 0.0, "quality_share", f"{part / tokens:.1%}" if tokens else "0%"),
            number(book.enrichment(domain, quality), "enrichment"),
        )
        for quality, part in enumerate(book.grid[domain])
    ]
    heads = [
        "bucket",
        desk.term("tokens", "num_tokens"),
        desk.term("share of the domain", "quality_share"),
        desk.term("enrichment", "enrichment"),
    ]
    return [
        paragraph(
            number(tokens, "num_tokens"),
            " tokens, ",
            number(
                tokens / book.num_tokens if book.num_tokens else 0.0,
                "token_share",
                f"{tokens / book.num_tokens:.2%}" if book.num_tokens else "0%",
            ),
            f" of the data, in folder {domain}.",
            class_="lead",
        ),
        navigation(book, desk),
        *(
            [paragraph("Contrast terms: ", tag("strong", ", ".join(str(term) for term in report["terms"])), ".")]
            if report.get("terms")
            else []
        ),
        table(heads, buckets, caption="Quality against the whole"),
        *_checks(lab, book, domain),
        *_composition(book, domain, tokens, sources, desk),
        *(_places(lab, book, domain, desk) if book.digest else []),
        *(_documents(book, domain, spans, desk) if book.digest else []),
    ]


def _checks(lab: Lab, book: Book, domain: str) -> list[Piece]:
    """How well the domain hangs together, and how well all do."""
    report = book.reports.get("cluster", {})
    own = coherence(lab, book, domain) if book.digest else None
    said: list[Piece] = []
    if own is not None:
        usual = report.get("mean_cosine_to_fine")
        words = [", all domains ", number(float(usual), "domain_cosine")] if usual is not None else []
        said.append(paragraph("Coherence: mean cosine of a document to its fine cluster ", number(own, "domain_cosine"), *words, "."))
    test = report.get("intruder_test")
    if isinstance(test, Mapping) and "accuracy" in test:
        judge = str(test.get("judge", "unnamed"))
        before = ["Intruder test over all domains: a judge (", judge, ") finds the document that does not belong in "]
        said.append(paragraph(*before, *_found(test, "intruder_accuracy")))
    if report.get("naming"):
        said.append(paragraph(f"How domains get their names: {report['naming']}."))
    names = report.get("names_test")
    if isinstance(names, Mapping) and "accuracy" in names:
        judge = str(names.get("judge", "an unnamed model"))
        before = ["Blind test of the names: shown an excerpt alone and some names, ", judge, " finds the name of its domain in "]
        said.append(paragraph(*before, *_found(names, "name_accuracy")))
    return said


def _found(test: Mapping[str, Any], term: str) -> list[Piece]:
    """What share of its trials a test got right, beside what guessing would."""
    return [
        number(float(test["accuracy"]), term, f"{test['accuracy']:.0%}"),
        f" of {test.get('num_trials', '?')} trials; guessing would find {float(test.get('chance', 0)):.0%}.",
    ]


def coherence(lab: Lab, book: Book, domain: str) -> float | None:
    """Mean cosine of a domain's documents to their fine cluster, each cell's uniform sample standing for its documents."""
    drawn = samples(lab, book)
    if "domain_cosine" not in drawn.column_names:
        return None
    total = weight = 0.0
    for cell in book.cells:
        if cell.domain == domain:
            rows = drawn.filter(pc.and_(pc.equal(drawn["cell"], cell.name), pc.equal(drawn["kind"], UNIFORM_KIND)))
            mean = pc.mean(rows["domain_cosine"]).as_py()
            if mean is not None:
                total, weight = total + mean * (cell.num_documents or 0), weight + (cell.num_documents or 0)
    return total / weight if weight else None


def _composition(book: Book, domain: str, tokens: int, sources: Mapping[str, SourceView], desk: Desk) -> list[Piece]:
    parts = sorted(
        ((source.by_domain(book).get(domain, 0), source) for source in sources.values()), key=lambda part: (-part[0], part[1].name)
    )
    rows = [
        (
            desk.link(source.name, address.source(book, source.name)),
            number(part, "num_tokens"),
            number(part / tokens, "token_share", f"{part / tokens:.1%}"),
            source.facts.get("licence", ""),
        )
        for part, source in parts
        if part
    ]
    heads = ["source", desk.term("tokens", "num_tokens"), desk.term("share of the domain", "token_share"), "licence"]
    return [table(heads, rows, caption="Sources that make it up")] if rows else []


def fine_clusters(lab: Lab, book: Book) -> pa.Table | None:
    """The map of fine clusters, without vectors; None when the build kept none."""
    path = folder_of(lab, book) / FINE_FILE
    return (
        pq.read_table(path, columns=["fine", "domain", "num_sampled", "x", "y", "nearest_domain", "nearest_cosine"])
        if path.exists()
        else None
    )


def neighbours(fine: pa.Table, domain: str) -> list[tuple[str, float]]:
    """Other domains by the share of this one's fine clusters, by documents, to which they are the nearest."""
    mine = fine.filter(pc.equal(fine["domain"], domain))
    counts = mine.group_by("nearest_domain").aggregate([("num_sampled", "sum")]).to_pylist()
    total = sum(row["num_sampled_sum"] for row in counts) or 1
    found = [(row["nearest_domain"], row["num_sampled_sum"] / total) for row in counts if row["nearest_domain"]]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def _places(lab: Lab, book: Book, domain: str, desk: Desk) -> list[Piece]:
    fine = fine_clusters(lab, book)
    if fine is None or domain not in set(fine["domain"].to_pylist()):
        return []
    near = [
        (
            desk.link(book.title(name), address.domain(book, name)) if name in book.grid else name,
            number(share, "neighbour_share", f"{share:.0%}"),
        )
        for name, share in neighbours(fine, domain)[:NEIGHBOURS]
    ]
    explained = float((pq.read_schema(folder_of(lab, book) / FINE_FILE).metadata or {}).get(b"explained", b"nan"))
    own = fine.filter(pc.equal(fine["domain"], domain))
    drawn, all_drawn = (pc.sum(part["num_sampled"]).as_py() or 0 for part in (own, fine))
    finding = (
        f"{own.num_rows} of {fine.num_rows} fine clusters are of this domain, with {drawn / max(all_drawn, 1):.0%} of the documents sampled"
    )
    words = f"Fine clusters on their two leading axes, which hold {explained:.0%} of their spread; area says documents, dark ones are of this domain."
    return [
        *(
            [table(["neighbour", desk.term("share of fine clusters", "neighbour_share")], near, caption="Nearest other domains")]
            if near
            else []
        ),
        tag("figure", tag("figcaption", tag("strong", finding), paragraph(words, class_="soft")), map_of(fine, domain), id="map"),
    ]


def _documents(book: Book, domain: str, spans: Mapping[str, tuple[int, int]], desk: Desk) -> list[Piece]:
    """Buckets, best first; a script fills those that are opened from the file of samples, whose rows lie by cell."""
    file = desk.address(address.file(book, site_samples.FILE))
    parts = [
        tag("details", tag("summary", f"Q{cell.quality}: {end - start} documents"), data_documents=f"{start}:{end}", data_file=file)
        for cell in sorted(book.cells, key=lambda cell: -cell.quality)
        if cell.domain == domain and (span := spans.get(cell.name))
        for start, end in [span]
    ]
    if not parts:
        return []
    said = paragraph(
        f"Of every bucket those nearest to their cluster's centre ({site_samples.NEAREST} at most) and a uniform draw "
        f"({site_samples.UNIFORM} at most), from ",
        desk.link("the file of samples", address.file(book, site_samples.FILE)),
        ".",
        class_="soft",
    )
    meanings = terms("num_tokens", "quality_score", "domain_cosine")
    return [tag("h2", "Documents to read"), said, tag("div", *parts, id="documents", data_terms=meanings)]
