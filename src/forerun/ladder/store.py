"""Forecasts as files: kept in a lab's `ledger/forecasts/`, read back strictly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from forerun.base.config import decode, digest_of, load_json
from forerun.base.errors import RegistryError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.ladder.answer import Forecast


def keep(forecast: Forecast, lab: Path | None) -> Path | None:
    """Write `ledger/forecasts/<id>.json`; without a lab named, only where the current folder already has a ledger.

    Returns: the path, or None when nothing was written. The same forecast written twice is the same file.
    """
    root = lab if lab is not None else Path(".")
    if lab is None and not (root / "ledger").is_dir():
        return None
    path = Lab(root).forecasts / f"{forecast.id}.json"
    write_json(path, forecast)
    return path


def load(path: Path) -> Forecast:
    """A forecast from its file. Raises: ConfigError when malformed, RegistryError when it was edited after it was made."""
    raw = load_json(path, dict)
    forecast = decode(raw, Forecast, where=str(path))
    if forecast.id != digest_of({**raw, "id": ""})[:16]:
        raise RegistryError(
            f"{path} was changed after it was made: its id {forecast.id!r} does not match its content", hint="use the original"
        )
    return forecast


def identity(forecast: Forecast) -> str:
    """First 16 hex digits of the digest of everything but the id."""
    return digest_of(replace(forecast, id=""))[:16]
