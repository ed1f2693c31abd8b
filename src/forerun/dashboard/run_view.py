"""One run as the pages see it: every series read once, judged once, recognisable as unchanged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from forerun.record.reader import JournalRecord, open_run
from forerun.record.run import RunInfo, ending
from forerun.record.series import Series
from forerun.watch.course import judge
from forerun.watch.report import Report

Signature = tuple[tuple[str, int, int], ...]
"""Name, size and modification time of every file of a run."""


def signature_of(run_dir: Path) -> Signature:
    """What changes whenever a run writes anything."""
    found = []
    for folder, shown in _folders(run_dir):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if shown(entry.name):
                    with suppress(FileNotFoundError):  # sealed away between listing and asking
                        stat = entry.stat()
                        found.append((os.path.relpath(entry.path, run_dir), stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(found))


def _folders(run_dir: Path) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """The folders of a run and which of their files pages are made from; asked often for many runs, so without globs."""
    yield str(run_dir), lambda name: name in ("run.json", "config.json")
    with suppress(FileNotFoundError):
        for name in os.listdir(run_dir):
            if name.startswith("w") and name[1:].isdigit():
                yield f"{run_dir}/{name}", lambda name: name.endswith(".jsonl") or (name.startswith("seg-") and name.endswith(".parquet"))


class RunView:
    """A snapshot of a run. Satisfies `record.series.RunRecord`, with every series kept in memory once read."""

    def __init__(self, run_dir: Path, signature: Signature) -> None:
        self.run_dir, self.signature = run_dir, signature
        self._record: JournalRecord = open_run(run_dir)
        self.info: RunInfo = self._record.info
        self._series: dict[str, Series] = {}
        self._metrics: list[str] | None = None
        self._events: list[dict[str, Any]] | None = None
        self._reports: dict[object, Report] = {}
        config = run_dir / "config.json"
        self.config: dict[str, Any] = json.loads(config.read_bytes()) if config.exists() else {}
        if not isinstance(self.config, dict):
            raise ValueError(f"config.json holds no object but a {type(self.config).__name__}")

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.run_dir.name

    @property
    def last_step(self) -> int:
        """Largest step on the trajectory, -1 before the first row."""
        return self._record.last_step

    @property
    def done(self) -> float | None:
        """Share of the planned steps taken; None when nobody said how many there will be."""
        return min(1.0, max(self.last_step, 0) / self.info.num_steps) if self.info.num_steps else None

    @property
    def ended(self) -> str:
        """Word of the event that ended it, or an empty string while it runs."""
        end = ending(self.events())
        return str(end["kind"]) if end is not None else "finished" if self.done == 1 else ""

    def metrics(self) -> list[str]:
        """Names of all metrics, sorted."""
        if self._metrics is None:
            self._metrics = self._record.metrics()
        return self._metrics

    def series(self, metric: str) -> Series:
        """One metric, stitched over segments; empty when the run never logged it."""
        if metric not in self._series:
            self._series[metric] = self._record.series(metric)
        return self._series[metric]

    def by_writer(self, metric: str) -> dict[int, Series]:
        """One metric per writing process that has it."""
        writers = [number for number in self._record.writers() if metric in self._record.metrics(number)]
        return {writers[0]: self.series(metric)} if len(writers) == 1 else self._record.by_writer(metric)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Typed events in time order."""
        if self._events is None:
            self._events = self._record.events()
        return [event for event in self._events if kind in (None, event["kind"])]

    def rows_written(self) -> dict[int, int]:
        """Rows per writer so far, sealed or not: where a live page goes on from."""
        return self._record.rows_written()

    def report(self, forecast: Mapping[str, Any] | None, rungs: Sequence[RunView], now: float | None) -> Report:
        """Whether it is on course; judged once for the same forecast and rungs, again each minute while `now` passes."""
        key = (forecast["id"] if forecast else "", tuple(rung.signature for rung in rungs), int(now // 60) if now else None)
        if key not in self._reports:
            self._reports = {key: judge(self, forecast, rungs=rungs, now=now)}
        return self._reports[key]
