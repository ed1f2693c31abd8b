"""Functions that tests of the engine run as tasks, in this process and in workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from forerun.base.errors import DataError


def note(out: str, text: str) -> None:
    Path(out).write_text(text)


def die(out: str) -> None:
    """What the out-of-memory killer does to a worker."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(out: str) -> None:
    """A worker that is lost for a reason outside the task."""
    mark = Path(out + ".died")
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    Path(out).write_text("second time")


def refuse(out: str) -> None:
    raise DataError("the column is missing", hint="rename it")
