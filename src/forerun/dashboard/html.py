"""HTML from Python values: every text is escaped unless it is markup already, so no record or document can inject any."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from forerun.base.visible import visible


class Markup(str):
    """Text that is HTML and goes in as it is."""

    __slots__ = ()


Piece = str | int | float | Markup | None
_TITLE = re.compile(r' title="[^"]*"')
_VOID = frozenset(("br", "hr", "img", "meta", "link", "input"))


def text(piece: Piece) -> Markup:
    """A piece as HTML: markup stays, everything else is escaped; control and bidirectional override characters become visible."""
    if piece is None:
        return Markup("")
    if isinstance(piece, Markup):
        return piece
    return Markup(html.escape(visible(str(piece))))


def tag(element: str, /, *children: Piece, **attributes: Piece | bool) -> Markup:
    """An element. Attribute names lose a trailing `_` and turn `_` into `-`; True writes the bare name, None and False leave it out."""
    written = []
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {label}")
        elif value is not None and value is not False:
            written.append(f' {label}="{text(value)}"')
    opening = f"<{element}{''.join(written)}>"
    return Markup(opening if element in _VOID else f"{opening}{join(children)}</{element}>")


def join(pieces: Iterable[Piece]) -> Markup:
    """Pieces one after the other."""
    return Markup("".join(text(piece) for piece in pieces))


def _cell(cell: Piece, said: re.Match[str] | None) -> Markup:
    if isinstance(cell, int | float):
        return tag("td", cell, class_="number")
    return tag("td", Markup(cell.replace(said[0], "")) if said and isinstance(cell, Markup) else cell)


def table(head: Sequence[Piece], rows: Iterable[Sequence[Piece]], *, caption: str) -> Markup:
    """A table with a caption and column heads; cells that are numbers are aligned right.

    Hover text that a column's head has is not said again by its cells: the script of the pages looks it up there.
    """
    said = [_TITLE.search(text(cell)) for cell in head]
    body = [tag("tr", *(_cell(cell, said[at] if at < len(said) else None) for at, cell in enumerate(row))) for row in rows]
    heads = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    inner = tag("table", tag("caption", caption), tag("thead", heads), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)
