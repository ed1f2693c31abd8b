"""HTML from Python values: every text is escaped unless it is markup already, so no record or document can inject any."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from forerun.base.visible import visible


class Markup(str):
    """Text that is HTML and goes in as it is."""

    __slots__ = ()


class Hovered(Markup):
    """An element with hover text, and its form without it, for where a column's head says the same."""

    __slots__ = ("bare", "hover")

    def __new__(cls, whole: str, *, hover: str, bare: Markup) -> Hovered:
        element = super().__new__(cls, whole)
        element.hover, element.bare = hover, bare
        return element


Piece = str | int | float | Markup | None
_VOID = frozenset(("br", "hr", "img", "meta", "link", "input"))


def text(piece: Piece) -> Markup:
    """A piece as HTML: markup stays, everything else is escaped; control and bidirectional override characters become visible."""
    if piece is None:
        return Markup("")
    if isinstance(piece, Markup):
        return piece
    return Markup(html.escape(visible(str(piece))))


def tag(element: str, /, *children: Piece, title: str = "", **attributes: Piece | bool) -> Markup:
    """An element; `title` is its hover text.

    Attribute names lose a trailing `_` and turn `_` into `-`; True writes the bare name, None and False leave it out.
    """
    written = []
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(f" {label}")
        elif value is not None and value is not False:
            written.append(f' {label}="{text(value)}"')
    rest = f"{''.join(written)}>" if element in _VOID else f"{''.join(written)}>{join(children)}</{element}>"
    bare = Markup(f"<{element}{rest}")
    return Hovered(f'<{element} title="{text(title)}"{rest}', hover=title, bare=bare) if title else bare


def join(pieces: Iterable[Piece]) -> Markup:
    """Pieces one after the other."""
    return Markup("".join(text(piece) for piece in pieces))


def table(head: Sequence[Piece], rows: Iterable[Sequence[Piece]], *, caption: str) -> Markup:
    """A table with a caption and column heads; cells that are numbers are aligned right.

    Hover text that a column's head has is not said again by its cells: the script of the pages looks it up there.
    """
    said = [cell.hover if isinstance(cell, Hovered) else "" for cell in head]
    body = [tag("tr", *(_cell(cell, words) for cell, words in zip_longest(row, said[: len(row)], fillvalue=""))) for row in rows]
    heads = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    inner = tag("table", tag("caption", caption), tag("thead", heads), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: Piece, said: str) -> Markup:
    if isinstance(cell, int | float):
        return tag("td", cell, class_="number")
    return tag("td", cell.bare if isinstance(cell, Hovered) and cell.hover == said else cell)
