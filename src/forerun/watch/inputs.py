"""The two files a watch is given: a forecast, and limits of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from forerun.base.errors import ConfigError
from forerun.watch.band import band_of
from forerun.watch.case import Limit, limits_of, shipped_limits


def load_forecast(path: Path | None) -> dict[str, Any] | None:
    """The forecast JSON, checked. Raises: ConfigError when it is absent, not JSON or has no curve."""
    if path is None:
        return None
    forecast = _json(path)
    band_of(forecast, where=str(path))
    return forecast


def load_limits(path: Path | None) -> dict[str, Limit]:
    """The shipped limits, with those of a calibration in their place. Raises: ConfigError."""
    if path is None:
        return shipped_limits()
    try:
        return shipped_limits() | limits_of(_json(path)["limits"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} holds no limits ({error})", hint="write it with `forerun replay --calibrate`") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        data = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="check the path") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: {error}", hint="write it with forerun") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold an object, got {type(data).__name__}", hint="write it with forerun")
    return data
