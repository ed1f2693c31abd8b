"""Options that several commands share, and how results are printed."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forerun.base.lab import Lab

LabOption = Annotated[Path, typer.Option("--lab", help="folder of the lab", show_default=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
HERE = Path(".")


def lab_at(path: Path) -> Lab:
    """The lab at a path given on the command line."""
    return Lab(path)


def print_json(value: Any) -> None:
    """Data to standard output; NaN and infinities become null, dataclasses objects."""
    json.dump(_finite(msgspec.to_builtins(value)), sys.stdout, indent=2, ensure_ascii=False)
    print()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
