"""One source: licence and revision, what became of its documents, and where its text went."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.lab import Lab
from forerun.dashboard.atlas import address
from forerun.dashboard.atlas.attributes import SourceView
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.decisions import IDENTITY_DIGITS
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
        table(["what", "stated"], facts, caption="What the source says of itself"),
        _funnel(lab, book, source, desk),
        *([spread] if source.num_documents else []),
        *(
            [
                table(
                    ["bucket", desk.term("tokens", "num_tokens"), desk.term("share", "quality_share")],
                    quality,
                    caption=f"Over {NUM_QUALITIES} quality buckets",
                )
            ]
            if quality
            else []
        ),
        *(
            [table(["domain", desk.term("tokens", "num_tokens"), desk.term("share", "token_share")], domains, caption="Over domains")]
            if domains
            else []
        ),
    ]


def dropped(lab: Lab, book: Book) -> dict[str, Counter[str]]:
    """Reason to documents dropped of each source, from the folders of the steps that dropped them; counted once a data set."""
    return _dropped(lab, book.digest, tuple((step["name"], str(step["identity"])) for step in book.manifest.get("steps", [])))


@lru_cache(maxsize=8)
def _dropped(lab: Lab, digest: str, steps: tuple[tuple[str, str], ...]) -> dict[str, Counter[str]]:
    """Attribute files hold one row a document of the partition of the same name, in its order."""
    folders = {name: path for name, identity in steps if (path := lab.root / "work" / name / identity[:IDENTITY_DIGITS]).is_dir()}
    found: dict[str, Counter[str]] = {}
    partitions = folders.get("normalize")
    if partitions is None:
        return found
    tables = [partitions / "dropped.parquet"] if (partitions / "dropped.parquet").exists() else []
    counted = [pq.read_table(path, columns=["source", "reason"]) for path in tables]
    for partition in sorted(partitions.glob("part-*.parquet")):
        source = pq.read_table(partition, columns=["source"])["source"]
        for name, folder in folders.items():
            attribute = folder / partition.name
            if name != "normalize" and attribute.exists() and "reason" in pq.read_schema(attribute).names:
                reason = pq.read_table(attribute, columns=["reason"])["reason"]
                if len(reason) == len(source):
                    table_ = pa.table({"source": source, "reason": reason})
                    counted.append(table_.filter(pc.is_valid(table_["reason"])))
    for table_ in counted:
        for row in table_.group_by(["reason", "source"]).aggregate([([], "count_all")]).to_pylist():
            found.setdefault(str(row["reason"]), Counter())[row["source"]] += row["count_all"]
    return found


def _funnel(lab: Lab, book: Book, source: SourceView, desk: Desk) -> Markup:
    read, stored = source.facts.get("num_documents_in"), int(source.facts.get("num_documents", source.num_documents))
    by_reason = {reason: counts[source.name] for reason, counts in dropped(lab, book).items() if counts[source.name]}
    rows: list[tuple[Piece, Piece]] = [("read", number(read, "num_documents"))]
    rows += [(f"dropped: {reason.replace('_', ' ')}", number(count, "num_documents")) for reason, count in sorted(by_reason.items())]
    unexplained = int(read or 0) - stored - sum(by_reason.values())
    if unexplained > 0:
        rows.append(("dropped, for reasons whose folders are not here", number(unexplained, "num_documents")))
    rows.append(("held out for evaluation, or removed since", number(max(stored - source.num_documents, 0), "num_documents")))
    rows.append(("in the training cells", number(source.num_documents, "num_documents")))
    return table(["what became of them", desk.term("documents", "num_documents")], rows, caption="What became of its documents")
