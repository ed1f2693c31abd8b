"""trackio: its SQLite file, one row a step with the metrics as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from forerun.base.errors import SourceError
from forerun.record.series import RunRecord
from forerun.watch.sources.mlflow import sqlite
from forerun.watch.sources.source import Collected, from_word


def connect(where: str) -> TrackioFile:
    """`where` is `PROJECT.db#RUN`; the run may be left out when there is one."""
    path, _, run = where.partition("#")
    return TrackioFile(Path(path), run)


class TrackioFile:
    """Reads the table `metrics`; later reads go on behind the last row."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        self._collected: Collected | None = None
        self._last_id = 0

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when the file or the run is absent."""
        with sqlite(self.path) as connection:
            runs = [row[0] for row in connection.execute("SELECT DISTINCT run_name FROM metrics ORDER BY 1")]
            run = self.run or (runs[0] if len(runs) == 1 else "")
            if run not in runs:
                raise SourceError(f"{self.path} has no run {run!r}", hint=f"name one behind #: {runs[:5]}")
            self._collected = self._collected or Collected(run)
            query = "SELECT id, step, timestamp, metrics FROM metrics WHERE run_name = ? AND id > ? ORDER BY id"
            for number, step, when, metrics in connection.execute(query, (run, self._last_id)):
                self._last_id = number
                self._collected.add_row(step, self._row(number, metrics), _seconds(when))
        return self._collected.record()

    def _row(self, number: int, metrics: str) -> dict[str, Any]:
        try:
            return {name: from_word(value) for name, value in json.loads(metrics).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise SourceError(f"{self.path}: row {number} holds no metrics: {error}", hint="remove the row") from None


def _seconds(when: str) -> float:
    """NaN for a time of another form."""
    try:
        return datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
    except (ValueError, AttributeError):
        return float("nan")
