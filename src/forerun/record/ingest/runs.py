"""The runs that come in: rows to journals, once each, whatever the client sends again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forerun.base.errors import RecordError
from forerun.base.files import write_atomic
from forerun.base.lab import Lab
from forerun.record.journal import Journal
from forerun.record.names import our_name
from forerun.record.reader import JournalRecord, open_run
from forerun.record.run import start_foreign
from forerun.record.segments import next_row

HISTORY, SYSTEM = 0, 1
"""Writers: the trainer's rows, and the machine's."""

OWN_KEYS = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})


class IngestedRun:
    """One W&B run as a run of the lab."""

    def __init__(self, lab: Lab, entity: str, project: str, name: str) -> None:
        self.entity, self.project, self.name = entity, project, name
        self.run_dir = lab.run(re.sub(r"[^A-Za-z0-9._-]", "-", name))
        start_foreign(self.run_dir, experiment=f"{entity}/{project}")
        self._lock = threading.Lock()
        self._journals: dict[int, Journal] = {}
        self._seen = {writer: _rows_on_disk(self.run_dir / f"w{writer}") for writer in (HISTORY, SYSTEM)}
        self.config = self._saved("wandb-config.json", "{}")
        self.summary: dict[str, Any] = {}
        self.last_step = -1
        self.exit_code: int | None = None

    @property
    def num_rows(self) -> int:
        """History rows received, over all connections."""
        return self._seen[HISTORY]

    def record(self) -> JournalRecord:
        """What readers see now."""
        return open_run(self.run_dir)

    def set_config(self, config: str) -> None:
        """Keep the trainer's config beside the record, as it came."""
        self.config = config
        write_atomic(self.run_dir / "wandb-config.json", config.encode())

    def take(self, files: Mapping[str, Any]) -> None:
        """Take one file_stream message; rows below the offset already reached were sent before and are left out."""
        with self._lock:
            for name, writer in (("wandb-history.jsonl", HISTORY), ("wandb-events.jsonl", SYSTEM)):
                part = files.get(name)
                if part:
                    self._take_rows(writer, int(part.get("offset", 0)), part.get("content", []))
            summary = files.get("wandb-summary.json", {}).get("content", [])
            if summary:
                self.summary = _parsed(summary[-1])

    def finish(self, exit_code: int) -> None:
        """The trainer said goodbye."""
        with self._lock:
            self.exit_code = exit_code
            self._journal(HISTORY).event("finished" if exit_code == 0 else "crashed", max(self.last_step, 0), exit_code=exit_code)
            self.close()

    def close(self) -> None:
        """Seal and let go; a later message opens the journals again."""
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _take_rows(self, writer: int, offset: int, lines: list[str]) -> None:
        if offset > self._seen[writer]:
            missing = offset - self._seen[writer]
            self._journal(writer).event("ingest_gap", max(self.last_step, 0), rows=missing)
            self._seen[writer] = offset
        for line in lines[self._seen[writer] - offset :]:
            row = _parsed(line)
            if writer == HISTORY:
                self.last_step = int(row.get("_step", self.last_step + 1))
            self._journal(writer).log(max(self.last_step, 0), _metrics(row), when=row.get("_timestamp"))
            self._seen[writer] += 1

    def _journal(self, writer: int) -> Journal:
        if writer not in self._journals:
            self._journals[writer] = Journal(self.run_dir, writer)
        return self._journals[writer]

    def _saved(self, name: str, otherwise: str) -> str:
        path: Path = self.run_dir / name
        return path.read_text(encoding="utf-8") if path.exists() else otherwise


class IngestedRuns:
    """All runs of one endpoint."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str, str], IngestedRun] = {}

    def open(self, entity: str, project: str, name: str) -> IngestedRun:
        """The run, made when it is new. Raises: RecordError for an empty name."""
        if not name:
            raise RecordError("a run came without a name", hint="update the wandb package, or set WANDB_RUN_ID")
        with self._lock:
            key = (entity, project, name)
            if key not in self._runs:
                self._runs[key] = IngestedRun(self.lab, *key)
            return self._runs[key]

    def known(self, entity: str, project: str, name: str) -> IngestedRun | None:
        """The run if it exists, in memory or on disk."""
        exists = (entity, project, name) in self._runs or (self.lab.run(re.sub(r"[^A-Za-z0-9._-]", "-", name)) / "run.json").exists()
        return self.open(entity, project, name) if name and exists else None

    def close(self) -> None:
        """Seal every run."""
        for run in self._runs.values():
            run.close()


def _parsed(line: str) -> dict[str, Any]:
    """One row as the client writes it: JSON with bare NaN and Infinity. A line that is no row becomes an empty one, so that counts agree."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return row if isinstance(row, dict) else {}


def _metrics(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row under our names; nested objects become paths, histograms and media are left out."""
    found: dict[str, float] = {}
    for key, value in row.items():
        if key in OWN_KEYS:
            continue
        if isinstance(value, dict):
            if "_type" not in value:
                found |= _metrics(value, f"{prefix}{key}.")
        elif value in ("NaN", "Infinity", "-Infinity") or (isinstance(value, int | float) and not isinstance(value, bool)):
            name, factor = our_name(prefix + key)
            found[name if name not in ("step", "time", "segment", "journal") else f"trainer/{name}"] = float(value) * factor
    return found


def _rows_on_disk(folder: Path) -> int:
    """Rows of a writer so far: what is sealed and what the journal holds."""
    from forerun.record.rows import read_rows

    sealed = next_row(folder) if folder.exists() else 0
    return sealed + len(read_rows(folder / "journal.jsonl", skip_rows=sealed).content)
