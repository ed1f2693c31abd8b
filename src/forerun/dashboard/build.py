"""The site as files: the same bytes for the same lab, readable from any file host or straight from disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.resources import files as package_files
from pathlib import Path

from forerun.base.files import storage_errors
from forerun.base.lab import Lab
from forerun.dashboard import pages, run_page
from forerun.dashboard.figure import Figure
from forerun.dashboard.html import Markup
from forerun.dashboard.lab_files import LabFiles, read_lab
from forerun.dashboard.page import page, paragraph
from forerun.watch.course import judge


def build_site(lab: Lab, out: Path) -> None:
    """Write all pages of a lab into a folder, whole: an old site is replaced only when the new one is complete.

    Raises: CheckFailed when the ledger does not verify; StorageError when the disk refuses.
    """
    files = read_lab(lab)
    beside = out.with_name(f".{out.name}.part")
    with storage_errors(out):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        _Site(files, beside).write()
        shutil.rmtree(out, ignore_errors=True)
        beside.rename(out)


class _Site:
    def __init__(self, files: LabFiles, out: Path) -> None:
        self.files, self.out = files, out

    def write(self) -> None:
        files = self.files
        self._put("style.css", (package_files("forerun.dashboard") / "style.css").read_bytes())
        self._page("index.html", "The lab at a glance", pages.front(files))
        self._page("experiments.html", "Promises", pages.promises(files))
        for promise in files.promises:
            self._experiment(promise)
        for name in files.runs:
            self._run(name)
        self._ladder()
        self._page("forecasts.html", "Forecasts and how they ended", pages.forecasts(files))
        data = [part for manifest in files.manifests.values() for part in pages.data(manifest)]
        self._page("data.html", "What is in the data", data or [paragraph("No data set yet.")])
        self._page("glossary.html", "Glossary", pages.glossary())

    def _experiment(self, promise) -> None:
        run, forecast = self.files.run_of(promise), self.files.forecast_of(promise)
        figures: dict[str, Figure] = {}
        if forecast is not None:
            steps = run.info.num_steps if run else forecast["target"]["train_steps"]
            figures["band"] = run_page.band_figure(run, forecast, steps)
        drawn = self._figures("experiments", promise.name, figures)
        self._page(f"experiments/{promise.name}.html", promise.text["title"], pages.experiment(self.files, promise, drawn))

    def _run(self, name: str) -> None:
        run = self.files.runs[name]
        promise = next((promise for promise in self.files.promises if promise.id == run.info.registration_id), None)
        forecast = self.files.forecast_of(promise) if promise else None
        rungs = [self.files.runs[use["rung"]] for use in forecast["rungs"] if use["rung"] in self.files.runs] if forecast else []
        figures = {"band": run_page.band_figure(run, forecast, run.info.num_steps)} if forecast else {}
        figures |= run_page.figures(run)
        report = judge(run, forecast, rungs=rungs)
        content = run_page.content(run, self.files.configs[name], report, self._figures("runs", name, figures))
        self._page(f"runs/{name}.html", f"Run {name}", content)

    def _ladder(self) -> None:
        parts: list[Markup] = []
        for name, forecast in self.files.forecasts.items():
            drawn = self._figures("ladder", name, pages.ladder_figures(self.files, forecast), depth=0)
            parts += pages.ladder(self.files, forecast, drawn)
        self._page("ladder.html", "The ladder", parts or [paragraph("No forecast yet.")])

    def _figures(self, folder: str, name: str, figures: Mapping[str, Figure], depth: int = 1) -> list[Markup]:
        """Draw figures and put their numbers beside them; links are relative to a page `depth` folders down."""
        drawn = []
        for key, figure in figures.items():
            path = f"csv/{folder}-{name}-{key}.csv"
            self._put(path, figure.csv().encode())
            drawn.append(figure.render("../" * depth + path))
        return drawn

    def _page(self, path: str, title: str, content: list[Markup]) -> None:
        self._put(path, page(title, *content, here=path, depth=path.count("/")))

    def _put(self, path: str, content: bytes) -> None:
        place = self.out / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
