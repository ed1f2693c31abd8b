"""What a page is, and the desk it is drawn on: figures get a place for their numbers, links get their way to the root."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from forerun.dashboard.html import Markup, Piece, tag
from forerun.dashboard.numbers import heading, number


class Drawable(Protocol):
    """A figure of any kind."""

    @property
    def key(self) -> str:
        """Unique on its page."""
        ...

    def csv(self) -> str:
        """Its numbers."""
        ...

    def render(self, csv_link: str, rows_root: str = "") -> Markup:
        """`<figure>`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of the site: where it lies, and how its content is made when someone asks for it."""

    path: str
    """In the site, as `runs/demo.html`; names of runs as they are, not quoted."""
    title: str
    content: Callable[[Desk], list[Piece]]
    scripts: tuple[str, ...] = ()
    """Entries of the front end besides `site`: `web/src/<name>.ts`."""
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Further files by path: what the page's scripts read."""


@dataclass
class Desk:
    """What a page may use while it is made."""

    path: str
    drawn: dict[str, bytes] = field(default_factory=dict)
    """Files of the figures drawn so far, by path in the site."""

    @property
    def up(self) -> str:
        """From this page to the site's root."""
        return "../" * self.path.count("/")

    def link(self, label: Piece, path: str, *, query: str = "", fragment: str = "") -> Markup:
        """A link to a page or file of the site."""
        return tag("a", label, href=self.address(path) + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else ""))

    def address(self, path: str) -> str:
        """The address of a page or file of the site, relative to this page; names may hold any character."""
        return self.up + quote(path)

    def draw(self, figure: Drawable) -> Markup:
        """Draw a figure and put its numbers beside it."""
        csv = f"{csv_folder(self.path)}/{figure.key}.csv"
        self.drawn[csv] = figure.csv().encode()
        return figure.render(self.address(csv), f"{self.up}rows/")

    def term(self, label: Piece, term: str) -> Markup:
        """A label that leads to its glossary entry."""
        return heading(label, term, self.up)

    def fact(self, label: Piece, value: float | int | None, term: str, shown: str | None = None) -> Markup:
        """A labelled number for a list of facts."""
        return tag("div", tag("dt", self.term(label, term)), tag("dd", number(value, term, shown)))


def csv_folder(path: str) -> str:
    """Where the numbers of a page's figures lie."""
    return f"csv/{path.removesuffix('.html')}"
