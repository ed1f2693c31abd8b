"""Where the pages and files of a data set lie in the site. Names of domains and sources may hold any character."""

from __future__ import annotations

import hashlib
import re

from forerun.dashboard.atlas.book import Book


def page(book: Book, name: str) -> str:
    """A page of the data set."""
    return f"data/{book.key}/{name}"


def file(book: Book, name: str) -> str:
    """A file to download."""
    return f"data/{book.key}/files/{name}"


def domain(book: Book, name: str) -> str:
    """The page of a domain."""
    return page(book, f"domains/{slug(name)}.html")


def source(book: Book, name: str) -> str:
    """The page of a source."""
    return page(book, f"sources/{slug(name)}.html")


def slug(name: str) -> str:
    """A file name: the name itself where it is plain, else its plain part and a digest, so that no two names meet."""
    if re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,80}", name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{plain or 'x'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
