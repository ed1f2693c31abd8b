"""MLflow: the REST API of a tracking server, or what it stores: an SQLite file, or a run's folder below `mlruns/`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from forerun.base.errors import SourceError
from forerun.record.run import Segment
from forerun.record.series import RunRecord
from forerun.watch.sources.http import Http
from forerun.watch.sources.source import Collected

PAGE = 25_000  # derived: the largest page MLflow's get-history serves
API = "/api/2.0/mlflow"


class MlflowSource(Protocol):
    """Either way in."""

    def read(self) -> RunRecord:
        """Everything so far."""
        ...


def connect(where: str) -> MlflowSource:
    """`where` is `http(s)://HOST[:PORT]/RUN_ID`, `FILE.db#RUN_ID` (also `sqlite:///FILE.db#RUN_ID`), or `mlruns/EXPERIMENT_ID/RUN_ID`."""
    if where.startswith(("http://", "https://")):
        base, _, run_id = where.rstrip("/").rpartition("/")
        return MlflowServer(base, run_id)
    if Path(where).is_dir():
        return MlflowFolder(Path(where))
    path, _, run_id = where.removeprefix("sqlite:///").partition("#")
    return MlflowFile(Path(path), run_id)


class MlflowServer:
    """Reads by REST; each metric's history is fetched again only when its last value changed."""

    def __init__(self, base: str, run_id: str, transport: httpx.BaseTransport | None = None) -> None:
        self.run_id = run_id
        self._http = Http(base, transport)
        self._collected = Collected(run_id)
        self._seen: dict[str, tuple[int, int]] = {}

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when the server or the run cannot be reached."""
        run = self._http.get(f"{API}/runs/get", {"run_id": self.run_id})["run"]
        info = run["info"]
        self._collected.segments = [Segment(run_id=self.run_id, first_step=0, time=info.get("start_time", 0) / 1e3)]
        if info.get("status") in ("FINISHED", "FAILED", "KILLED") and not self._collected.events:
            kind = "finished" if info["status"] == "FINISHED" else "crashed"
            self._collected.events.append({"kind": kind, "step": 0, "time": info.get("end_time", 0) / 1e3})
        for metric in run.get("data", {}).get("metrics", []):
            mark = (int(metric["timestamp"]), int(metric["step"]))
            if self._seen.get(metric["key"]) != mark:
                self._history(metric["key"])
                self._seen[metric["key"]] = mark
        return self._collected.record()

    def _history(self, key: str) -> None:
        token = ""
        while True:
            query: dict[str, Any] = {"run_id": self.run_id, "metric_key": key, "max_results": PAGE}
            page = self._http.get(f"{API}/metrics/get-history", query | ({"page_token": token} if token else {}))
            for row in page.get("metrics", []):
                self._collected.add(key, int(row.get("step", 0)), float(row["value"]), int(row["timestamp"]) / 1e3)
            token = page.get("next_page_token", "")
            if not token:
                return


class MlflowFile:
    """Reads the tables `runs` and `metrics` of MLflow's SQLite store."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path, self.run_id = path, run_id

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when the file or the run is absent."""
        with sqlite(self.path) as connection:
            run_id = self.run_id or _only_run(connection, "SELECT run_uuid FROM runs", self.path)
            collected = Collected(run_id)
            started = connection.execute("SELECT start_time FROM runs WHERE run_uuid = ?", (run_id,)).fetchone()
            if started is None:
                raise SourceError(
                    f"{self.path} has no run {run_id!r}", hint=f"runs there: {_runs(connection, 'SELECT run_uuid FROM runs')}"
                )
            collected.segments = [Segment(run_id=run_id, first_step=0, time=(started[0] or 0) / 1e3)]
            query = "SELECT key, step, value, timestamp, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step"
            for key, step, value, when, is_nan in connection.execute(query, (run_id,)):
                collected.add(key, step, float("nan") if is_nan else value, when / 1e3)
        return collected.record()


class MlflowFolder:
    """Reads the files `metrics/<name>` of a run's folder: milliseconds, value and step a line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> RunRecord:
        """Everything so far. Raises: SourceError when the folder is no run's, or a line has another form."""
        metrics = self.folder / "metrics"
        if not metrics.is_dir():
            raise SourceError(f"{self.folder} has no folder metrics", hint="name the folder of one run, mlruns/EXPERIMENT_ID/RUN_ID")
        collected = Collected(self.folder.name)
        for path in sorted(path for path in metrics.rglob("*") if path.is_file()):
            name = path.relative_to(metrics).as_posix()
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
                try:
                    when, value, step = line.split()
                    collected.add(name, int(step), float(value), int(when) / 1e3)
                except ValueError:
                    raise SourceError(
                        f"{path}: line {number} must hold milliseconds, value and step, got {line!r}", hint="mend it"
                    ) from None
        return collected.record()


@contextmanager
def sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection, closed behind the block. Raises: SourceError when the file is absent, no database, or another one."""
    if not path.is_file():
        raise SourceError(f"{path} is not a file", hint="check the path")
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)
    try:
        yield connection
    except sqlite3.Error as error:
        raise SourceError(f"{path} is no SQLite file of this tracker: {error}", hint="check the path") from None
    finally:
        connection.close()


def _only_run(connection: sqlite3.Connection, query: str, path: Path) -> str:
    runs = _runs(connection, query)
    if len(runs) != 1:
        raise SourceError(f"{path} holds {len(runs)} runs", hint=f"name one behind #: {runs[:5]}")
    return runs[0]


def _runs(connection: sqlite3.Connection, query: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(query)]
