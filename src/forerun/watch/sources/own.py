"""A run of this lab."""

from __future__ import annotations

from pathlib import Path

from forerun.record.reader import open_run
from forerun.record.series import RunRecord


def connect(where: str) -> OwnRun:
    """`where` is the run's folder."""
    return OwnRun(Path(where))


class OwnRun:
    """Opened anew at each read: sealing may have moved rows since."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def read(self) -> RunRecord:
        """A snapshot of the run."""
        return open_run(self.run_dir)
