"""The one way to write over HTTP: rows and events for a run, from whoever holds the write token. Off unless a token is given.

A run that is not there yet is started as unregistered: a promise is made in the lab, not over the network.
"""

from __future__ import annotations

import hmac
import re
import threading
from pathlib import Path
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from forerun.base.errors import ConfigError, PlatformError, RecordError, StorageError
from forerun.base.lab import Lab
from forerun.record.journal import Journal
from forerun.record.run import start_foreign

LEAST_TOKEN = 16  # assumed: characters; shorter ones are guessed
MAX_BODY = 8 << 20  # assumed: bytes; 5,000 rows of 70 metrics
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def read_token(path: Path) -> str:
    """The secret in a file. Raises: ConfigError when it is absent, short, or readable by others."""
    try:
        token = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--write-token-file {path} cannot be read: {error}", hint="write a long random text into it") from None
    if mode & 0o077:
        raise ConfigError(f"--write-token-file {path} is readable by others", hint=f"chmod 600 {path}")
    if len(token) < LEAST_TOKEN or not token.isascii():
        raise ConfigError(
            f"--write-token-file {path} must hold at least {LEAST_TOKEN} ASCII characters, got {len(token)}", hint="openssl rand -hex 32"
        )
    return token


class Ingest:
    """The endpoint `POST /ingest/<run>`; one open journal a run."""

    def __init__(self, lab: Lab, token: str) -> None:
        self._lab, self._token = lab, token.encode()
        self._journals: dict[str, Journal] = {}
        self._lock = threading.Lock()

    async def __call__(self, request: Request) -> Response:
        """401 without the token; 400 for a body that breaks a rule, with the rule; 409 when another process writes the run."""
        sent = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(sent, self._token):
            return JSONResponse({"error": "a write token is needed: Authorization: Bearer ..."}, 401)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY:
                return JSONResponse({"error": f"a body may have {MAX_BODY} bytes"}, 413)
        try:
            written = await run_in_threadpool(self._write, request.path_params["run"], body)
        except RecordError as error:
            return JSONResponse({"error": str(error)}, 409 if "another process" in error.message else 400)
        except StorageError as error:
            return JSONResponse({"error": str(error)}, 507)
        except PlatformError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"rows": written})

    def close(self) -> None:
        """Seal what came in and let go of the journals."""
        with self._lock:
            for journal in self._journals.values():
                journal.close()
            self._journals.clear()

    def _write(self, run: str, body: bytes) -> int:
        try:
            message = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"the body is no JSON: {error}", hint='{"rows": [{"step": 1, "metrics": {"loss_nats": 5.0}}]}') from None
        rows, events = _rows(message), _events(message)
        with self._lock:
            journal = self._journal(run, message)
            for step, metrics in rows:
                journal.log(step, metrics)
            for event in events:
                journal.event(event.pop("kind"), event.pop("step"), **event)
            if message.get("end") is True:
                self._journals.pop(run).close()
        return len(rows)

    def _journal(self, run: str, message: dict[str, Any]) -> Journal:
        if not RUN_ID.fullmatch(run):
            raise ConfigError(f"a run is named with letters, digits, dot, dash and underscore, got {run!r}", hint="rename the run")
        folder = self._lab.run(run)
        if not (folder / "run.json").exists():
            num_steps = message.get("num_steps", 0)
            if not isinstance(num_steps, int) or isinstance(num_steps, bool) or num_steps < 0:
                raise ConfigError(
                    f"num_steps must be a whole number, got {num_steps!r}", hint="the planned length of the run, 0 when unknown"
                )
            start_foreign(folder, num_steps=num_steps)
        elif run not in self._journals:
            start_foreign(folder)
        if run not in self._journals:
            self._journals[run] = Journal(folder)
        return self._journals[run]


def _rows(message: Any) -> list[tuple[int, dict[str, float]]]:
    """Checked whole before anything is written."""
    if not isinstance(message, dict) or not isinstance(message.get("rows", []), list):
        raise ConfigError("the body must be an object with a list of rows", hint='{"rows": [{"step": 1, "metrics": {"loss_nats": 5.0}}]}')
    rows = []
    for row in message.get("rows", []):
        metrics = row.get("metrics") if isinstance(row, dict) else None
        if not isinstance(metrics, dict) or not _is_step(row.get("step")):
            raise ConfigError("a row needs a step and an object of metrics", hint='{"step": 1, "metrics": {"loss_nats": 5.0}}')
        if not all(NAME.fullmatch(name) for name in metrics):
            raise ConfigError("a metric's name has 1 to 200 printable characters", hint="rename the metric")
        rows.append((row["step"], {name: _number(name, value) for name, value in metrics.items()}))
    return rows


def _events(message: dict[str, Any]) -> list[dict[str, Any]]:
    events = message.get("events", [])
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise ConfigError("an event needs a kind and a step, and may not name time or segment", hint='{"kind": "note", "step": 1}')
    return [dict(event) for event in events]


def _is_event(event: Any) -> bool:
    good = isinstance(event, dict) and _is_step(event.get("step")) and isinstance(event.get("kind"), str)
    return good and NAME.fullmatch(event["kind"]) is not None and not {"time", "segment", "self"} & set(event)


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _number(name: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise ConfigError(f"{name} must be a number, got {type(value).__name__}", hint="NaN and infinities are sent as text")
