"""A SQLite catalogue of a lab's runs: a convenience that is rebuilt from the files at any time and never the truth."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from forerun.base.errors import RecordError
from forerun.base.files import replacing
from forerun.base.lab import Lab
from forerun.record.reader import open_run

SCHEMA = """
CREATE TABLE runs(run_id TEXT PRIMARY KEY, experiment TEXT, registration_id TEXT, config_digest TEXT, created REAL, num_steps INTEGER, last_step INTEGER, torn_lines INTEGER);
CREATE TABLE segments(run_id TEXT, number INTEGER, first_step INTEGER, time REAL, commit_id TEXT, kind TEXT, changed TEXT, PRIMARY KEY(run_id, number));
CREATE TABLE metrics(run_id TEXT, metric TEXT, num_rows INTEGER, first_step INTEGER, last_step INTEGER, last_value REAL, PRIMARY KEY(run_id, metric));
CREATE TABLE events(run_id TEXT, kind TEXT, step INTEGER, time REAL);
CREATE TABLE unreadable(run_id TEXT PRIMARY KEY, problem TEXT);
"""


@dataclass(frozen=True)
class RunLine:
    """One run in a list."""

    run_id: str
    experiment: str
    last_step: int
    num_steps: int
    created: float
    registered: bool


def path_of(lab: Lab) -> Path:
    """Where the catalogue lies."""
    return lab.runs / "catalogue.sqlite"


def rebuild(lab: Lab) -> Path:
    """Read every run and write the catalogue anew; a reader sees the old one until the new one is whole.

    A run that cannot be read is listed as such and does not stop the others.
    """
    path = path_of(lab)
    with replacing(path) as beside:
        beside.unlink(missing_ok=True)
        with closing(sqlite3.connect(beside)) as connection:
            connection.executescript(SCHEMA)
            for folder in sorted(lab.runs.glob("*/run.json")):
                _add(connection, folder.parent)
            connection.commit()
    return path


def list_runs(lab: Lab) -> list[RunLine]:
    """All runs, newest first, from a catalogue made for the occasion."""
    with closing(sqlite3.connect(rebuild(lab))) as connection:
        rows = connection.execute(
            "SELECT run_id, experiment, last_step, num_steps, created, registration_id IS NOT NULL FROM runs ORDER BY created DESC"
        )
        return [
            RunLine(run_id, experiment, last_step, num_steps, created, bool(registered))
            for run_id, experiment, last_step, num_steps, created, registered in rows
        ]


def _add(connection: sqlite3.Connection, run_dir: Path) -> None:
    try:
        record = open_run(run_dir)
    except RecordError as error:
        connection.execute("INSERT INTO unreadable VALUES (?, ?)", (run_dir.name, str(error)))
        return
    info = record.info
    connection.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run_dir.name,
            info.experiment,
            info.registration_id,
            info.config_digest,
            info.created,
            info.num_steps,
            record.last_step,
            record.num_torn_lines,
        ),
    )
    for number, segment in enumerate(info.segments):
        connection.execute(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?)",
            (run_dir.name, number, segment.first_step, segment.time, segment.commit, segment.kind, segment.changed),
        )
    for metric in record.metrics():
        series = record.series(metric)
        if len(series):
            connection.execute(
                "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)",
                (run_dir.name, metric, len(series), int(series.step[0]), int(series.step[-1]), series.last),
            )
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?)", [(run_dir.name, event["kind"], event["step"], event["time"]) for event in record.events()]
    )
