"""A task, and how one is run wherever it is: marked while it runs, so that a death can be laid at its door."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from forerun.base import errors
from forerun.base.errors import PlatformError
from forerun.base.files import storage_errors


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of a stage: a pure function of files, writing files that are whole or absent."""

    name: str
    """Unique in its stage; a file name."""
    call: str
    """`module:function`; it gets the arguments as keywords and has no result but its files."""
    arguments: dict[str, Any]
    """Plain data."""
    num_bytes: int
    """Text it works on: for progress, and to decide about workers."""

    def packed(self, scratch: Path) -> str:
        """As one string for an engine."""
        return json.dumps({"name": self.name, "call": self.call, "arguments": self.arguments, "scratch": str(scratch)})


def marker(scratch: Path, name: str) -> Path:
    """The file that is there while a task runs, and after its worker died."""
    return scratch / f"{name}.running"


def run_packed(packed: str) -> str:
    """Run a task from its string. Returns an empty string, or a user's error as JSON: exceptions do not travel between processes whole."""
    task = json.loads(packed)
    mark = marker(Path(task["scratch"]), task["name"])
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps({"pid": os.getpid(), "started": time.time()}))
    try:
        with storage_errors(mark.parent):
            function_of(task["call"])(**task["arguments"])
    except PlatformError as error:
        return json.dumps({"kind": type(error).__name__, "message": error.message, "hint": error.hint})
    finally:
        mark.unlink(missing_ok=True)
    return ""


def raise_answer(answer: str) -> None:
    """Raise the user's error that a task returned, if it did."""
    if answer:
        told = json.loads(answer)
        kind = getattr(errors, told["kind"], errors.DataError)
        raise kind(told["message"], hint=told["hint"])


def function_of(call: str) -> Callable[..., Any]:
    """The function that `module:name` names."""
    module, _, name = call.partition(":")
    return getattr(import_module(module), name)
