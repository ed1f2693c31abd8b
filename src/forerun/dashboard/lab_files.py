"""What a lab's files say, gathered once for all pages. Files only: no trainer, no model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from forerun.base.lab import Lab
from forerun.record.reader import JournalRecord, open_run
from forerun.registry import ledger


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


@dataclass(frozen=True)
class LabFiles:
    """Everything the pages show."""

    lab: Lab
    promises: list[Promise]
    runs: dict[str, JournalRecord]
    configs: dict[str, dict[str, Any]]
    """config.json by run id."""
    forecasts: dict[str, dict[str, Any]]
    manifests: dict[str, dict[str, Any]]

    def run_of(self, promise: Promise) -> JournalRecord | None:
        """The run started under a promise."""
        return next((run for run in self.runs.values() if run.info.registration_id == promise.id), None)

    def forecast_of(self, promise: Promise) -> dict[str, Any] | None:
        """The forecast a promise rests on."""
        return self.forecasts.get(promise.text["prediction"].get("forecast", "").removesuffix(".json"))


def read_lab(lab: Lab) -> LabFiles:
    """Read a lab. Raises: CheckFailed when its ledger was changed: a site must not show a broken ledger as whole."""
    entries = ledger.read(lab)

    def about(kind: str, name: str) -> list[dict[str, Any]]:
        return [entry.body for entry in entries if entry.kind == kind and entry.body["experiment"] == name]

    promises = []
    for entry in entries:
        if entry.kind == "promise":
            name = entry.body["experiment"]
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
    runs = {path.parent.name: open_run(path.parent) for path in sorted(lab.runs.glob("*/run.json"))}
    return LabFiles(
        lab=lab,
        promises=promises,
        runs=runs,
        configs={name: _json(run.run_dir / "config.json") for name, run in runs.items()},
        forecasts={path.stem: _json(path) for path in sorted(lab.forecasts.glob("*.json"))},
        manifests={path.stem: _json(path) for path in sorted(lab.manifests.glob("*.json"))},
    )


def _json(path: Any) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.exists() else {}
