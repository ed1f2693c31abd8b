"""JSON over HTTP with the patience that public APIs need: 429 and 5xx are retried, everything else is one clear line."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from forerun.base.errors import SourceError

MAX_TRIES = 6  # assumed: with the waits below, about a minute
FIRST_WAIT_S = 1.0  # assumed: doubled at each try unless the server says how long
LONGEST_WAIT_S = 60.0  # assumed: a server asking for more is not waited for
TIMEOUT_S = 60.0  # assumed: bulk reads of public runs take tens of seconds


class Http:
    """One server."""

    def __init__(
        self,
        base: str,
        transport: httpx.BaseTransport | None = None,
        *,
        auth: tuple[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = base.rstrip("/")
        self._client = httpx.Client(transport=transport, timeout=TIMEOUT_S, auth=auth)
        self._sleep = sleep

    def get(self, path: str, query: dict[str, Any]) -> Any:
        """The JSON answer of a GET. Raises: SourceError."""
        return self._json(lambda: self._client.get(self.base + path, params=query))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON answer of a POST. Raises: SourceError."""
        return self._json(lambda: self._client.post(self.base + path, json=body))

    def _json(self, ask: Callable[[], httpx.Response]) -> Any:
        wait, problem = FIRST_WAIT_S, ""
        for attempt in range(MAX_TRIES):
            if attempt:
                self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)
            try:
                answer = ask()
            except httpx.TransportError as error:
                problem = str(error) or type(error).__name__
                continue
            if answer.status_code == 429 or answer.status_code >= 500:
                problem = f"HTTP {answer.status_code}"
                wait = _asked_wait(answer, wait)
                continue
            if answer.status_code >= 400:
                raise SourceError(
                    f"{self.base} answers HTTP {answer.status_code}: {answer.text[:200]}",
                    hint="check the address and whether the project is public",
                )
            try:
                return answer.json()
            except ValueError:
                raise SourceError(f"{self.base} did not answer with JSON: {answer.text[:100]!r}", hint="check the address") from None
        raise SourceError(
            f"{self.base} cannot be read after {MAX_TRIES} tries: {problem}", hint="try again later, or with a longer --every"
        )


def _asked_wait(answer: httpx.Response, wait: float) -> float:
    """Seconds the server asks for, capped."""
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT_S) if asked.isdigit() else wait
