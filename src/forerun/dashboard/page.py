"""The frame every page shares: head with a strict content policy, navigation, footer. No request to anywhere else.

Pages are whole without scripts; `site.js` makes figures live and hover text reachable by keyboard and touch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forerun.dashboard.html import Markup, Piece, join, tag, text

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
ICON = Markup(
    '<svg aria-hidden="true" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" fill="#1f4e8c"/><path d="M5 9c6 0 8 12 22 13v4C12 25 11 15 5 15z" fill="#fff" opacity=".45"/><path d="M5 12c6 0 8 11 22 12" fill="none" stroke="#fff" stroke-width="2.5"/></svg>'
)
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
    brand = tag("a", ICON, "forerun", href=f"{up}index.html", class_="brand", aria_label="forerun, this lab")
    body = tag(
        "body",
        tag("a", "Skip to content", href="#content", class_="skip"),
        tag("header", tag("nav", brand, tag("ul", *links), aria_label="Pages")),
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


def minute(time: str) -> str:
    """A time as the ledger writes it, for people: `2026-11-30 09:06 UTC`; any other text as it is."""
    return f"{time[:10]} {time[11:16]} UTC" if re.fullmatch(r"[\d-]{10}T[\d:]{8}(\.\d+)?(\+00:00|Z)", time) else time


def state(word: str, label: str = "") -> Markup:
    """A verdict or state, told by word and colour."""
    return tag("span", label or word.replace("_", " "), class_=f"state {word}")


def paragraph(*pieces: Piece, class_: str | None = None) -> Markup:
    """A paragraph."""
    return tag("p", join(text(piece) for piece in pieces), class_=class_)
