"""Where a lab keeps its files. Every path that two packages share is named here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forerun.base.errors import ConfigError


@dataclass(frozen=True)
class Lab:
    """One lab is one folder; copying the folder copies the lab."""

    root: Path

    @property
    def experiments(self) -> Path:
        """`NNN-slug/` folders: experiment.toml, config.py, config.json, report.md."""
        return self.root / "experiments"

    @property
    def ledger(self) -> Path:
        """The chained promises, amendments and verdicts, one JSON line each."""
        return self.root / "ledger" / "registry.jsonl"

    @property
    def forecasts(self) -> Path:
        """`<id>.json`, one forecast each."""
        return self.root / "ledger" / "forecasts"

    @property
    def manifests(self) -> Path:
        """`<digest>.json`, one data set each."""
        return self.root / "manifests"

    @property
    def store(self) -> Path:
        """Token shards and per-document provenance, one folder per manifest digest."""
        return self.root / "store"

    @property
    def atlas(self) -> Path:
        """`<manifest digest>/`: what the data pages are drawn from; all but the map of fine clusters can be made again from the store."""
        return self.root / "atlas"

    @property
    def runs(self) -> Path:
        """`<run id>/`: frozen config, journals, segments, events, alarms."""
        return self.root / "runs"

    def run(self, run_id: str) -> Path:
        """The folder of one run. Raises: ConfigError for an id that would lie elsewhere."""
        if run_id in ("", ".", "..") or set(run_id) & set("/\\\0"):
            raise ConfigError(f"a run's name must be one word without slashes, got {run_id!r}", hint="for example 007-top-k")
        return self.runs / run_id
