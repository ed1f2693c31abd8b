"""The frame every page shares: head with a strict content policy, navigation, footer. No script, no request to anywhere else."""

from __future__ import annotations

from forerun.dashboard.html import Markup, Piece, join, tag, text

POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
PAGES = (
    ("index.html", "Lab"),
    ("experiments.html", "Promises"),
    ("ladder.html", "Ladder"),
    ("forecasts.html", "Forecasts"),
    ("data.html", "Data"),
    ("glossary.html", "Glossary"),
)


def page(title: str, *content: Piece, here: str, depth: int = 0) -> bytes:
    """A whole page.

    Args:
        here: file name among `PAGES`, or another name for pages below them.
        depth: folders between the page and the site's root.
    """
    up = "../" * depth
    links = [tag("li", tag("a", label, href=f"{up}{name}", aria_current="page" if name == here else None)) for name, label in PAGES]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"{title} · forerun"),
        tag("link", rel="stylesheet", href=f"{up}style.css"),
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag("nav", tag("ul", *links), aria_label="Pages"),
        tag("main", tag("h1", title), *content, id="content"),
        tag("footer", tag("p", "Made by forerun from the files of this lab, and from nothing else.", class_="soft")),
    )
    return (Markup("<!doctype html>\n") + tag("html", head, body, lang="en")).encode("utf-8")


def state(word: str, label: str = "") -> Markup:
    """A verdict or state, told by word and colour."""
    return tag("span", label or word.replace("_", " "), class_=f"state {word}")


def paragraph(*pieces: Piece, class_: str | None = None) -> Markup:
    """A paragraph."""
    return tag("p", join(text(piece) for piece in pieces), class_=class_)
