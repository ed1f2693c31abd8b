"""Live forwarding of a run to another tracker, when the user asks for it. The record comes first; a mirror that fails is an event.

Both trackers work without a network: `WANDB_MODE=offline`, and trackio keeps its own file.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from forerun.base.errors import ConfigError

KINDS = ("wandb", "trackio")


def tracker_of(kind: str) -> ModuleType:
    """The tracker's module. Raises: ConfigError when the kind is unknown or its package is not installed."""
    if kind not in KINDS:
        raise ConfigError(f"--mirror must be one of {', '.join(KINDS)}, got {kind!r}", hint="leave it out to keep the record only")
    try:
        return importlib.import_module(kind)
    except ImportError:
        raise ConfigError(f"--mirror {kind} needs the package {kind}", hint=f"pip install {kind}") from None


class Mirror:
    """Sends rows on. `send` never raises: it returns the words of a failure, once, and then stays silent."""

    def __init__(self, kind: str, *, project: str, run_id: str, folder: Path, config: Mapping[str, Any] | None = None) -> None:
        """Start the tracker's run. Raises: ConfigError when the kind is unknown or its package is not installed."""
        self._tracker = tracker_of(kind)
        options: dict[str, Any] = (
            {"dir": str(folder), "id": run_id, "resume": "allow"} if kind == "wandb" else {"embed": False, "resume": "allow"}
        )
        self._run = self._tracker.init(project=project, name=run_id, config=dict(config or {}), **options)
        self._own_error: type[Exception] = getattr(self._tracker, "Error", RuntimeError)
        self.failed = ""

    def send(self, step: int, metrics: Mapping[str, float]) -> str:
        """Forward one row. Returns: what went wrong for the first time, else an empty string."""
        if self.failed:
            return ""
        try:
            self._tracker.log(dict(metrics), step=step)
        except (OSError, RuntimeError, TypeError, ValueError, self._own_error) as error:
            self.failed = f"mirror stopped at step {step}: {type(error).__name__}: {error}"
            return self.failed
        return ""

    def close(self) -> None:
        """Tell the tracker that the run has ended."""
        self._tracker.finish()
