"""Watching on and on: read, judge, show, tell someone when the state changes."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx
import orjson

from forerun.base.errors import ConfigError, SourceError
from forerun.record.series import RunRecord
from forerun.watch.case import Limit
from forerun.watch.course import judge
from forerun.watch.report import Report, State
from forerun.watch.sources.source import Source

UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
NOTIFY_TIMEOUT_S = 30.0  # assumed: a hook slower than this is given up, the watch goes on


def seconds(text: str) -> float:
    """'120s', '2m', '1h' or '90'. Raises: ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h)?", text.strip())
    if not match or float(match.group(1)) <= 0:
        raise ConfigError(f"--every must be a positive time like 120s, 2m or 1h, got {text!r}", hint="for example --every 120s")
    return float(match.group(1)) * UNITS_S[match.group(2) or "s"]


def watch(
    source: Source,
    forecast: Mapping[str, Any] | None,
    *,
    every_s: float,
    limits: Mapping[str, Limit] | None = None,
    rungs: Sequence[RunRecord] = (),
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Iterator[tuple[RunRecord | None, Report | None, str]]:
    """Judge again and again, for ever. A read that fails yields its words in place of a report; the watch goes on."""
    while True:
        try:
            record = source.read()
            yield record, judge(record, forecast, rungs=rungs, now=clock(), limits=limits), ""
        except SourceError as error:
            yield None, None, str(error)
        sleep(every_s)


class Telling:
    """Who is told, and what they know: a report is passed on when its state is not the one told last."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._told: State = "on_course"

    def hear(self, report: Report) -> str:
        """Pass the report on when there is something new; a state that could not be told is tried again at the next report."""
        if not self.target or report.state == self._told:
            return ""
        failure = notify(self.target, report)
        if not failure:
            self._told = report.state
        return failure


def notify(target: str, report: Report) -> str:
    """POST the report to an http(s) address, or run a command with the report on its standard input.

    Returns: what went wrong, or an empty string; a hook that fails must not end the watch.
    """
    body = orjson.dumps({"text": report.words(), **report.as_json()})
    try:
        if target.startswith(("http://", "https://")):
            answer = httpx.post(target, content=body, headers={"Content-Type": "application/json"}, timeout=NOTIFY_TIMEOUT_S)
            return "" if answer.is_success else f"webhook answered HTTP {answer.status_code}"
        done = subprocess.run(shlex.split(target), input=body, timeout=NOTIFY_TIMEOUT_S, check=False, capture_output=True)
        return "" if done.returncode == 0 else f"command ended with {done.returncode}: {done.stderr.decode(errors='replace')[:200]}"
    except (OSError, ValueError, subprocess.TimeoutExpired, httpx.HTTPError) as error:
        return f"{type(error).__name__}: {error}"
