"""What a lab's files say, gathered once for all pages. Files only: no trainer, no model.

A run or a forecast that cannot be read is a line under `problems`; a ledger that was changed stops the site.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.base.errors import CheckFailed, PlatformError
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import book_of_manifest
from forerun.dashboard.run_view import RunView, Signature, signature_of
from forerun.registry import ledger
from forerun.watch.band import band_of, subject_of
from forerun.watch.report import Report


@dataclass(frozen=True)
class Planner:
    """What only the planning side can work out, handed in by the command: the site itself reads files alone."""

    plan: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The JSON of `forerun plan` for a run's `config.json`. Raises: ConfigError when it cannot be planned."""
    planned: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The plannable part of a run's `config.json`, as the plan page computes with it."""
    inputs: Mapping[str, Any]
    """Devices, presets and constants that the plan page computes with."""


@dataclass(frozen=True)
class Promise:
    """One registered experiment and what became of it."""

    name: str
    id: str
    time: str
    body: dict[str, Any]
    amendments: list[dict[str, Any]]
    closing: dict[str, Any] | None
    verdict: dict[str, Any] | None

    @property
    def text(self) -> dict[str, Any]:
        """The promise itself, the fields of experiment.toml."""
        return self.body["promise"]

    @property
    def answer(self) -> str:
        """kept, missed, deviated, undecided or open."""
        if self.verdict:
            return self.verdict["answer"]
        return "undecided" if self.closing else "open"

    @property
    def words(self) -> str:
        """The verdict in words, without the answer in front, which pages show as a state."""
        words = str(self.verdict["words"]) if self.verdict else "No verdict yet."
        return words.removeprefix(f"{self.answer.capitalize()}: ")


@dataclass(frozen=True)
class LabFiles:
    """Everything the pages show, as it was at one moment."""

    lab: Lab
    planner: Planner
    promises: list[Promise]
    runs: dict[str, RunView]
    forecasts: dict[str, dict[str, Any]]
    manifests: dict[str, dict[str, Any]]
    problems: list[str]
    """Files that could not be read, and why."""
    now: float | None = None
    """Unix seconds on a live site; None judges every run as it was left."""
    _plans: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    def run_of(self, promise: Promise) -> RunView | None:
        """The run started under a promise."""
        return next((run for run in self.runs.values() if run.info.registration_id == promise.id), None)

    def promise_of(self, run: RunView) -> Promise | None:
        """The promise a run was started under."""
        return next((promise for promise in self.promises if promise.id == run.info.registration_id), None)

    def forecast_of(self, promise: Promise) -> dict[str, Any] | None:
        """The forecast a promise rests on."""
        return self.forecasts.get(promise.text["prediction"].get("forecast", "").removesuffix(".json"))

    def forecast_for(self, run: RunView) -> dict[str, Any] | None:
        """The forecast a run is judged by: its promise's."""
        promise = self.promise_of(run)
        return self.forecast_of(promise) if promise else None

    def domain_forecast(self, run: RunView, metric: str) -> dict[str, Any] | None:
        """A forecast of one evaluation of this run: of that metric, over the same number of steps."""
        for forecast in self.forecasts.values():
            if subject_of(forecast) == metric and forecast["target"].get("train_steps") == run.info.num_steps:
                return forecast
        return None

    def rungs_of(self, forecast: Mapping[str, Any] | None) -> list[RunView]:
        """The runs of this lab that a forecast was made from."""
        return [self.runs[use["rung"]] for use in forecast["rungs"] if use["rung"] in self.runs] if forecast else []

    def report_of(self, run: RunView) -> Report:
        """Whether a run is on course."""
        forecast = self.forecast_for(run)
        return run.report(forecast, self.rungs_of(forecast), None if run.ended else self.now)

    def plan_of(self, run: RunView) -> dict[str, Any] | None:
        """What `forerun plan` says of a run's config; None when it has none that can be planned."""
        if run.name not in self._plans:
            try:
                self._plans[run.name] = self.planner.plan(run.config) if run.config else None
            except PlatformError:
                self._plans[run.name] = None
        return self._plans[run.name]


def lab_signature(lab: Lab) -> tuple[object, ...]:
    """What changes whenever a file the site shows is written."""
    runs = tuple((path.parent.name, signature_of(path.parent)) for path in sorted(lab.runs.glob("*/run.json")))
    others = [*lab.forecasts.glob("*.json"), *lab.manifests.glob("*.json"), *lab.experiments.glob("*/report.md"), lab.ledger]
    return runs, tuple((str(path), _changed_at(path)) for path in sorted(others))


def _changed_at(path: Path) -> int:
    """Nanoseconds; 0 when the file is not there, or no longer."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def read_lab(lab: Lab, planner: Planner, *, before: LabFiles | None = None, now: float | None = None) -> LabFiles:
    """Read a lab. Runs that have not changed since `before` are taken over with what was read and judged.

    Raises: CheckFailed when its ledger was changed: a site must not show a broken ledger as whole.
    """
    problems: list[str] = []
    runs: dict[str, RunView] = {}
    for path in sorted(lab.runs.glob("*/run.json")):
        known = before.runs.get(path.parent.name) if before else None
        try:
            signature: Signature = signature_of(path.parent)
            runs[path.parent.name] = known if known and known.signature == signature else RunView(path.parent, signature)
        except (PlatformError, ValueError) as error:
            problems.append(f"run {path.parent.name} cannot be read: {error}")
    return LabFiles(
        lab=lab,
        planner=planner,
        promises=_promises(lab),
        runs=runs,
        forecasts=_read_all(lab.forecasts, "forecast", band_of, problems),
        manifests=_read_all(lab.manifests, "manifest", _manifest_of, problems),
        problems=problems,
        now=now,
        _plans={name: plan for name, plan in before._plans.items() if runs.get(name) is before.runs.get(name)} if before else {},
    )


def _promises(lab: Lab) -> list[Promise]:
    entries = ledger.read(lab)

    def about(kind: str, name: str) -> list[dict[str, Any]]:
        return [entry.body for entry in entries if entry.kind == kind and entry.body["experiment"] == name]

    promises = []
    for entry in entries:
        if entry.kind == "promise":
            name = entry.body["experiment"]
            if "/" in name or "\\" in name or name.startswith("."):
                raise CheckFailed(
                    f"ledger line {entry.seq} promises {name!r}, which is no folder name", hint="restore the ledger from a copy"
                )
            closings, verdicts = about("closing", name), about("verdict", name)
            promises.append(
                Promise(
                    name=name,
                    id=entry.digest[:16],
                    time=entry.time,
                    body=entry.body,
                    amendments=about("amendment", name),
                    closing=closings[-1] if closings else None,
                    verdict=verdicts[-1]["verdict"] if verdicts else None,
                )
            )
    return promises


def _manifest_of(manifest: Mapping[str, Any]) -> object:
    """What every page of a data set needs of it."""
    book = book_of_manifest("", manifest)
    steps = [(step["documents_in"], step["documents_out"], step["dropped"].items()) for step in manifest["steps"]]
    return book.summary(), manifest["held_out"], manifest["vocab_size"] + 0, steps, [source["num_tokens"] for source in manifest["sources"]]


def _read_all(folder: Path, kind: str, check: Callable[[dict[str, Any]], object], problems: list[str]) -> dict[str, dict[str, Any]]:
    """The JSON files of a folder by name; what is not JSON or not of its kind becomes a problem."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_bytes())
            if not isinstance(content, dict):
                raise TypeError(f"expected an object, got {type(content).__name__}")
            check(content)
            found[path.stem] = content
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, PlatformError) as error:
            problems.append(f"{kind} {path.name} cannot be read: {error}")
    return found
