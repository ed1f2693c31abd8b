"""Near-duplicates and contamination: the sampled ones with their scores, and rates from reviews. A script lays both texts side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.base.chart import Chart, Line
from forerun.base.lab import Lab
from forerun.dashboard.atlas import address
from forerun.dashboard.atlas.book import Book
from forerun.dashboard.atlas.decisions import KEPT, REMOVED, Pair, evidence, histogram, rates, reviews
from forerun.dashboard.atlas.overview import navigation
from forerun.dashboard.desk import Desk
from forerun.dashboard.figure import Figure
from forerun.dashboard.html import Markup, Piece, table, tag
from forerun.dashboard.numbers import number, terms
from forerun.dashboard.page import paragraph

PAIRS_FILE, HITS_FILE = "pairs.parquet", "hits.parquet"
PAIR_NUMBERS = ("containment", "jaccard", "cluster_size", "novel_grams", "novel_words", "comparisons")


def content(lab: Lab, book: Book, found: Sequence[Pair], desk: Desk) -> list[Piece]:
    """The list of sampled pairs, with how sure the rule was and what reviewers say of it."""
    decisions = evidence(lab, book, "fuzzy_dedup", "decisions.parquet")
    if decisions is None:
        return [
            navigation(book, desk),
            paragraph("The folder of the near-duplicate step is not in this lab, so its decisions cannot be shown."),
        ]
    said = reviews(lab, book)
    rows = [
        (
            desk.link(pair.id[:12], address.page(book, "pair.html"), query=f"pair={pair.key}"),
            "removed" if pair.kind == REMOVED else "kept, nearly removed",
            pair.row["source"],
            pair.row["kept_source"],
            number(float(pair.row["containment"]), "containment", f"{pair.row['containment']:.3f}"),
            number(float(pair.row["jaccard"]), "jaccard", f"{pair.row['jaccard']:.3f}"),
            number(int(pair.row["cluster_size"]), "cluster_size"),
            ", ".join(sorted(set(said.get((pair.kind, pair.id), {}).values()))),
        )
        for pair in found
    ]
    heads = [
        desk.term("document", "document_id"),
        "decision",
        "source",
        "held by",
        *(desk.term(name, name) for name in ("containment", "jaccard")),
        desk.term("cluster", "cluster_size"),
        "reviews",
    ]
    listed = table(heads, rows, caption=f"{len(found)} sampled pairs; the least sure removals first")
    return [
        paragraph(
            number(decisions.num_rows, "num_documents"), " documents were removed because a kept one holds their content.", class_="lead"
        ),
        navigation(book, desk),
        *_rates(lab, book),
        *([desk.draw(_histogram(np.asarray(decisions["containment"], np.float64)))] if decisions.num_rows else []),
        tag("div", listed, data_filter="pairs", data_filter_text="2,3", data_filter_number="4"),
    ]


def _rates(lab: Lab, book: Book) -> list[Piece]:
    words = {REMOVED: "of the reviewed removals lose content", KEPT: "of the reviewed near misses could have gone"}
    found = rates(lab, book)
    if not found:
        return [paragraph("No pair was reviewed yet: ", tag("code", f"forerun data review-pairs {book.key}"), class_="soft")]
    return [
        paragraph(
            number(rate.share, "review_rate", f"{rate.share:.1%}"),
            f" {words[kind]} (95% interval {rate.low:.1%} to {rate.high:.1%}, {rate.num_reviewed} decided by reviewers).",
        )
        for kind, rate in found.items()
    ]


def _histogram(scores: np.ndarray) -> Figure:
    bins = histogram(scores)
    x, y = [], []
    for low, high, count in zip(bins.edges, bins.edges[1:], bins.counts):
        x += [low, high]
        y += [float(count), float(count)]
    sure = float(np.mean(scores >= 0.95)) if len(scores) else 0.0
    chart = Chart(
        title=f"{sure:.0%} of the removed documents are held to 95% or more",
        x_label="containment",
        y_label="documents removed",
        lines=(Line(x=x, y=y, label="removed documents", style=0),),
    )
    return Figure(key="containment", chart=chart, x_term="containment", y_term="num_documents", interactive=False)


def pair_content(lab: Lab, book: Book, desk: Desk) -> list[Piece]:
    """The page of any one pair: a script fills it from the file of pairs with the one its address names."""
    said: dict[str, dict[str, str]] = {}
    for (kind, name), judgements in reviews(lab, book).items():
        said[f"{kind}-{name}"] = judgements
    file = desk.address(address.file(book, PAIRS_FILE))
    return [
        navigation(book, desk),
        tag("div", id="pair", data_file=file, data_reviews=json.dumps(said), data_terms=terms(*PAIR_NUMBERS)),
        tag("noscript", paragraph("The texts are in ", desk.link("the file of pairs", address.file(book, PAIRS_FILE)), ".")),
    ]


def contamination_content(lab: Lab, book: Book, desk: Desk) -> list[Piece]:
    """Flagged documents beside the item they hit, by evaluation."""
    table_ = evidence(lab, book, "decontaminate", "hits.parquet")
    flagged = evidence(lab, book, "decontaminate", "contaminated.parquet")
    if table_ is None or flagged is None:
        return [
            navigation(book, desk),
            paragraph("The folder of the decontamination step is not in this lab, so its decisions cannot be shown."),
        ]
    by_eval: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for place, row in enumerate(table_.drop_columns(["text", "item_text"]).to_pylist()):
        by_eval.setdefault(evaluation_of(str(row["item"])), []).append((place, row))
    counts: dict[str, int] = {}
    for item in flagged["item"].to_pylist():
        counts[evaluation_of(str(item))] = counts.get(evaluation_of(str(item)), 0) + 1
    rows = [(name, number(count, "num_documents")) for name, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))]
    parts: list[Piece] = [
        paragraph(number(flagged.num_rows, "num_documents"), " documents hold evaluation text and were dropped.", class_="lead"),
        navigation(book, desk),
    ]
    if rows:
        parts.append(table(["evaluation", desk.term("documents", "num_documents")], rows, caption="By evaluation"))
    parts += _recall(book)
    for name, hits in sorted(by_eval.items()):
        parts += [tag("h2", name), *(_hit(place, row, desk.address(address.file(book, HITS_FILE))) for place, row in hits)]
    return parts


def evaluation_of(item: str) -> str:
    """The evaluation an item is of: what comes before the first slash or colon; held-out documents are named by their content."""
    name, separator, _ = item.replace(":", "/").partition("/")
    return name if separator else "held-out documents"


SHARES = (("item_share", "of the item"), ("paragraph_share", "of the paragraph"), ("document_share", "of the document"))


def _hit(place: int, row: Mapping[str, Any], file: str) -> Markup:
    """One dropped document; a script adds both texts when it is opened."""
    said = [f"{row[name]:.0%} {words}" for name, words in SHARES if row.get(name) is not None] + [f"{row['matched_grams']} shared 13-grams"]
    also = [item for item in row.get("items") or [] if item != row["item"]]
    return tag(
        "details",
        tag("summary", f"{row['source']}: {', '.join(said)}"),
        *([paragraph(f"Also {', '.join(map(str, also[:5]))}.", class_="soft")] if also else []),
        *([paragraph("The shared words: ", tag("q", row["excerpt"]))] if row.get("excerpt") else []),
        data_hit=str(place),
        data_file=file,
    )


def _recall(book: Book) -> list[Piece]:
    """What the step measured about itself: leaks planted on purpose, and how many it found."""
    planted = book.reports.get("decontaminate", {}).get("planted")
    rows = [
        (str(name).replace("_", " "), number(part["planted"], "num_documents"), number(part["found"], "num_documents"))
        for name, part in (planted.items() if isinstance(planted, Mapping) else ())
        if isinstance(part, Mapping) and {"planted", "found"} <= set(part)
    ]
    return [table(["kind of leak", "planted", "found"], rows, caption="Leaks planted to test the rule")] if rows else []
