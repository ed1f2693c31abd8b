"""The glossary: every name used on these pages, its unit and its definition."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.page import paragraph
from forerun.dashboard.page_terms import GLOSSARY


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="glossary.html", title="Glossary", content=content, scripts=("glossary",))


def content(desk: Desk) -> list[Piece]:
    """Each entry has an anchor of its name."""
    rows = [(tag("span", term.name, id=term.name), term.unit or "–", term.definition, term.better or "–") for term in GLOSSARY]
    return [
        paragraph("One name, one meaning, in code, records, plots and prose. Numbers on every page show these words on hover."),
        tag("div", id="glossary-search"),
        table(["name", "unit", "definition", "better"], rows, caption="Names, units, definitions"),
    ]
