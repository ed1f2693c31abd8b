"""How an OpenAI-compatible server is asked: its address and key, and how long to wait before asking again."""

from __future__ import annotations

import datetime
import email.utils
import math
import os
from typing import TYPE_CHECKING

from forerun.base.errors import ConfigError

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE_S, MOST_PAUSE_S = 0.2, 60.0  # assumed: a server that wants more patience than a minute is tried again anyway
TIRED = (408, 409, 425, 429)  # source: RFC 9110 and RFC 6585; the request was fine, the moment was not


def require_address(field: str, url: str) -> None:
    """Raises: ConfigError when a config's field is no address of a server."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{field} must begin with http:// or https://, got {url!r}", hint="give the full base address")


def headers_of(key_variable: str) -> dict[str, str]:
    """The authorisation that an environment variable holds; empty when it is unset."""
    key = os.environ.get(key_variable)
    return {"Authorization": f"Bearer {key}"} if key else {}


def is_tired(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status in TIRED or status >= 500


def pause_s(response: httpx.Response | None, attempt: int) -> float:
    """Seconds until the next try: what the server asks for in `Retry-After`, seconds or a date, up to a minute; else doubling to 10."""
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    try:
        seconds = float(asked)
    except ValueError:
        seconds = _until(asked)
    if math.isfinite(seconds) and seconds >= 0:
        return min(seconds, MOST_PAUSE_S)
    return min(FIRST_PAUSE_S * 2**attempt, 10.0)


def _until(date: str) -> float:
    try:
        when = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    return (when - datetime.datetime.now(datetime.UTC)).total_seconds() if when.tzinfo else math.nan
