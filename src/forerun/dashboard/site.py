"""The site of a lab at one moment: every path and how its bytes are made. `build` writes them all, `serve` makes those asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files as package_files

from forerun.base.errors import PlatformError
from forerun.dashboard.atlas import pages as atlas
from forerun.dashboard.desk import Desk, Page, csv_folder
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.page import page, paragraph, state
from forerun.dashboard.pages import benchmark, compare, data, experiment, forecasts, front, glossary, incidents, ladder, plan, run

PARTS: tuple[Callable[[LabFiles], Iterator[Page]], ...] = (
    front.pages,
    experiment.pages,
    run.pages,
    ladder.pages,
    forecasts.pages,
    benchmark.pages,
    compare.pages,
    data.pages,
    atlas.pages,
    plan.pages,
    incidents.pages,
    glossary.pages,
)
"""Each kind of page; a new kind is one more line here and one in `page.PAGES`."""


class Site:
    """Pages and their files, made on demand and kept.

    Args:
        live: address of the event stream in the site; None for a site that stays as it is.
    """

    def __init__(self, files: LabFiles, *, live: str | None = None) -> None:
        self._pages = {page.path: page for part in PARTS for page in part(files)}
        self._files = {path: make for page in self._pages.values() for path, make in page.files.items()}
        self._figures = {csv_folder(path): path for path in self._pages}
        self._made: dict[str, bytes] = {}
        self._live = live

    def page_paths(self) -> list[str]:
        """Every page."""
        return list(self._pages)

    def get(self, path: str) -> bytes | None:
        """The bytes of a path; None when the site has no such path."""
        if path in self._made:
            return self._made[path]
        if path in self._pages:
            self._draw(self._pages[path])
        elif path in self._files:
            self._made[path] = self._files[path]()
        elif (page := self._figures.get(path.rpartition("/")[0])) is not None:
            self._draw(self._pages[page])
        elif path.startswith("static/"):
            return front_end().get(path.removeprefix("static/"))
        return self._made.get(path)

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """All paths with their bytes."""
        for path in [*self._pages, *self._files]:
            content = self.get(path)
            assert content is not None, path
            yield path, content
        yield from ((path, content) for path, content in self._made.items() if path.startswith("csv/"))
        yield from ((f"static/{name}", content) for name, content in front_end().items())

    def _draw(self, made: Page) -> None:
        desk = Desk(made.path)
        try:
            content = made.content(desk)
        except PlatformError as error:  # one file that cannot be shown must not take the other pages away
            content = [paragraph(state("missed", "This page cannot be made"), f": {error}")]
        live = desk.up + self._live if self._live else None
        self._made[made.path] = page(made.title, *content, here=made.path, scripts=made.scripts, live=live)
        self._made |= desk.drawn


@cache
def front_end() -> dict[str, bytes]:
    """The built front end, by name below `static/`; see `web/` for its sources."""
    return dict(_under(package_files("forerun.dashboard") / "static", ""))


def _under(folder, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _under(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            yield prefix + entry.name, entry.read_bytes()
