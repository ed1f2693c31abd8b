"""Every page of every data set, in the shape the site wants: where it lies and how it is made when someone asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from forerun.base.errors import PlatformError
from forerun.dashboard.atlas import (
    address,
    domain_page,
    downloads,
    mixture_page,
    overview,
    pair_pages,
    provenance_page,
    search,
    site_samples,
    source_page,
)
from forerun.dashboard.atlas.attributes import sources_of
from forerun.dashboard.atlas.book import Book, book_of_manifest, imported_books
from forerun.dashboard.atlas.decisions import pairs
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph

SCRIPT = ("atlas",)


def books(files: LabFiles) -> list[Book]:
    """Stores of the lab and imported tables; a table that cannot be read is a problem of the lab's, not the site's end."""
    found = [book_of_manifest(digest, manifest) for digest, manifest in files.manifests.items()]
    try:
        return found + list(imported_books(files.lab))
    except PlatformError as error:
        files.problems.append(str(error))
        return found


def links(files: LabFiles, desk: Desk) -> list[Piece]:
    """The way from the page of all data to each data set's own pages."""
    rows = [
        (
            desk.link(book.name, address.page(book, "index.html")),
            number(book.num_tokens, "num_tokens"),
            number(len(book.domains), "num_domains"),
            "store of this lab" if book.digest else "published table",
        )
        for book in books(files)
    ]
    return (
        [table(["data set", desk.term("tokens", "num_tokens"), "domains", "kind"], rows, caption="Atlas of each data set")] if rows else []
    )


def pages(files: LabFiles) -> Iterator[Page]:
    """All of them."""
    for book in books(files):
        yield from _book_pages(files, book)


def _book_pages(files: LabFiles, book: Book) -> Iterator[Page]:
    lab = files.lab
    sources = _once(partial(sources_of, lab, book))
    spans = _once(partial(site_samples.spans, lab, book))
    runs = readers(files, book)
    there = bool(book.digest) and (lab.store / book.store_digest).is_dir()
    more: dict[str, Callable[[], bytes]] = (
        {one.name: one.content for one in downloads.downloads(lab, book)} if there or not book.digest else {}
    )
    more |= _index(files, book) if there else {}
    more[mixture_page.INPUTS] = lambda: mixture_page.inputs(book, sources() if there else {})

    def one(name: str, title: str, content: Callable[[Desk], list[Piece]], **files_of: Callable[[], bytes]) -> Page:
        return Page(
            path=address.page(book, name),
            title=title,
            content=content,
            scripts=SCRIPT,
            files={address.file(book, file): make for file, make in files_of.items()},
        )

    yield one(
        "index.html",
        f"Data set {book.name}",
        lambda desk: overview.content(book, sources() if there else {}, runs[-1] if runs else None, desk),
        **more,
    )
    yield one("mixture.html", f"Mixture of {book.name}", lambda desk: mixture_page.content(book, sources() if there else {}, desk))
    yield one(
        "files.html", f"Files of {book.name}", lambda desk: downloads.content(lab, book, desk) if there or not book.digest else _gone(book)
    )
    for domain in book.domains:
        yield Page(
            path=address.domain(book, domain),
            title=book.title(domain),
            content=lambda desk, domain=domain: domain_page.content(
                lab, book if there else _bare(book), domain, sources() if there else {}, spans() if there else {}, desk
            ),
            scripts=SCRIPT,
        )
    if not book.digest:
        return
    yield one("provenance.html", f"Provenance of {book.name}", lambda desk: provenance_page.content(book, runs, desk))
    if not there:
        yield one("contamination.html", f"Contamination of {book.name}", lambda desk: _gone(book))
        yield one("pairs.html", f"Duplicates of {book.name}", lambda desk: _gone(book))
        return
    yield one("contamination.html", f"Contamination of {book.name}", lambda desk: pair_pages.contamination_content(lab, book, desk))
    found = pairs(lab, book)
    yield one("pairs.html", f"Duplicates of {book.name}", lambda desk: pair_pages.content(lab, book, found, desk))
    yield one("pair.html", f"Pair of {book.name}", lambda desk: pair_pages.pair_content(lab, book, desk))
    for name in sorted({source["name"] for source in book.manifest.get("sources", [])}):
        yield Page(
            path=address.source(book, name),
            title=f"Source {name}",
            content=lambda desk, name=name: source_page.content(lab, book, sources()[name], desk),
            scripts=SCRIPT,
        )


def _index(files: LabFiles, book: Book) -> Mapping[str, Callable[[], bytes]]:
    """The search index, made when one of its files is asked for."""
    names = (search.HEAD, search.STARTS, search.WORDS)
    return {name: lambda name=name: (search.index(files.lab, book) / name).read_bytes() for name in names}


def readers(files: LabFiles, book: Book) -> list[tuple[str, Mapping[str, Any]]]:
    """Runs whose config reads this data set, oldest first."""
    found = [
        (run.info.created, name, run.config)
        for name, run in files.runs.items()
        if run.config and run.config.get("data", {}).get("manifest") == book.digest
    ]
    return [(name, config) for _, name, config in sorted(found, key=lambda entry: entry[:2])] if book.digest else []


def _gone(book: Book) -> list[Piece]:
    return [paragraph(f"The store of {book.name} is not in this lab, only its manifest.")]


def _bare(book: Book) -> Book:
    """The same data set without a store to read."""
    return Book(
        key=book.key,
        name=book.name,
        cells=book.cells,
        manifest={name: part for name, part in book.manifest.items() if name in ("domain_titles", "steps")},
    )


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """What `make` returns, made when first asked for."""
    kept: list[Any] = []

    def get() -> Any:
        if not kept:
            kept.append(make())
        return kept[0]

    return get
