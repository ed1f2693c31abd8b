"""The benchmark's newest result as a file of the package: made by `forerun bench forecast --keep`, read by the site without running it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from forerun.base.config import load_json
from forerun.base.files import write_json

STORED = Path(__file__).parent / "data" / "bench_forecast.json"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    anchor: str
    bar: str
    measured: str
    met: bool


@dataclass(frozen=True, kw_only=True)
class Task:
    """One held-out final loss, or a group of them from the same fit."""

    name: str
    error: float
    """Mean |forecast / outcome - 1|."""
    baseline_error: float
    """Of the Huber fit (surfaces) or a free-floor power law (ladders)."""
    inside: float
    """Share of outcomes inside the 90% interval."""
    width: float
    """Mean width of the 90% interval over the outcome."""
    num_outcomes: int


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Everything one call of the benchmark found."""

    schema: int = 1
    date: str
    commit: str
    """Of the checkout it ran in, `+` behind it when files were changed; empty outside of one."""
    rows: tuple[Row, ...]
    tasks: tuple[Task, ...]


def result_of(rows: Sequence[Row], tasks: Sequence[Task]) -> BenchResult:
    """Dated now, with the commit of the checkout this package lies in."""
    return BenchResult(date=datetime.now(UTC).date().isoformat(), commit=_commit(), rows=tuple(rows), tasks=tuple(tasks))


def keep(result: BenchResult, path: Path = STORED) -> Path:
    """Write it where `stored` reads it."""
    write_json(path, result)
    return path


def stored(path: Path = STORED) -> BenchResult:
    """The newest kept result. Raises: ConfigError when it is absent or malformed."""
    return load_json(path, BenchResult)


def _commit() -> str:
    folder = str(Path(__file__).parent)
    head = subprocess.run(["git", "-C", folder, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return ""
    changed = subprocess.run(["git", "-C", folder, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=False)
    others = [line for line in changed.stdout.splitlines() if not line.endswith(STORED.name)]
    return head.stdout.strip() + ("+" if others else "")
