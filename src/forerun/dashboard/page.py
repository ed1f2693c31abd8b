"""The frame every page shares: head with a strict content policy, navigation, footer. No request to anywhere else.

Pages are whole without scripts; `site.js` makes figures live and hover text reachable by keyboard and touch.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.dashboard.html import Markup, Piece, join, tag, text

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
PAGES = (
    ("index.html", "Lab"),
    ("experiments.html", "Promises"),
    ("ladder.html", "Ladder"),
    ("forecasts.html", "Forecasts"),
    ("benchmark.html", "Benchmark"),
    ("compare.html", "Compare"),
    ("data.html", "Data"),
    ("plan.html", "Plan"),
    ("incidents.html", "Incidents"),
    ("glossary.html", "Glossary"),
)


def page(title: str, *content: Piece, here: str, scripts: Sequence[str] = (), live: str | None = None) -> bytes:
    """A whole page.

    Args:
        here: path of the page in the site; the navigation marks the nearest of `PAGES`.
        scripts: further entries of the front end (`web/src/<name>.ts`) besides `site`.
        live: address of the event stream, relative to the page; None on a static site.
    """
    up = "../" * here.count("/")
    section = f"{here.split('/', maxsplit=1)[0]}.html" if "/" in here else here
    links = [tag("li", tag("a", label, href=f"{up}{name}", aria_current=_current(name, here, section))) for name, label in PAGES]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"{title} · forerun"),
        tag("link", rel="icon", href=f"{up}static/icon.svg"),
        tag("link", rel="stylesheet", href=f"{up}static/site.css"),
        *(tag("script", type="module", src=f"{up}static/{name}.js") for name in ("site", *scripts)),
    )
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag("nav", tag("ul", *links), aria_label="Pages"),
        tag("main", tag("h1", title), *content, id="content", tabindex="-1"),
        tag("footer", tag("p", "Made by forerun from the files of this lab, and from nothing else.", class_="soft")),
        data_live=live,
        data_up=up,
    )
    return (Markup("<!doctype html>\n") + tag("html", head, body, lang="en")).encode("utf-8")


def _current(name: str, here: str, section: str) -> str | None:
    return "page" if name == here else "true" if name == section else None


def region(key: str, *content: Piece) -> Markup:
    """A part of a page that a live site replaces when the lab's files change; `key` is unique on the page."""
    return tag("div", *content, id=f"live-{key}", data_region=key)


def state(word: str, label: str = "") -> Markup:
    """A verdict or state, told by word and colour."""
    return tag("span", label or word.replace("_", " "), class_=f"state {word}")


def paragraph(*pieces: Piece, class_: str | None = None) -> Markup:
    """A paragraph."""
    return tag("p", join(text(piece) for piece in pieces), class_=class_)
