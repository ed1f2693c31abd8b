"""Progress on standard error: what, how far, how fast, how long still. A bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType

from forerun.base import units

LINE_EVERY_S = 10.0  # assumed: often enough to see life in a log, rare enough to keep it short


class Progress:
    """Counts work of known length. Use as a context manager; `advance` from one thread.

    `work` is what `total` counts (documents, tokens, steps); the rate and the time left are in that unit.
    """

    def __init__(self, label: str, total: float, work: str, *, done: float = 0, quiet: bool = False) -> None:
        self.label, self.total, self.work = label, total, work
        self._done = self._resumed_at = done
        self._started = self._last_line = time.monotonic()
        self._note = ""
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()

    def advance(self, amount: float = 1, note: str = "") -> None:
        """Report `amount` more work; `note` is shown behind the figures until the next one."""
        self._done += amount
        self._note = note or self._note
        now = time.monotonic()
        if not self._quiet and now - self._last_line >= (0.1 if self._terminal else LINE_EVERY_S):
            self._last_line = now
            self._print(now, end="\r" if self._terminal else "\n")

    def _print(self, now: float, end: str) -> None:
        elapsed = max(now - self._started, 1e-9)
        rate = (self._done - self._resumed_at) / elapsed
        left = (self.total - self._done) / rate if rate > 0 else float("nan")
        share = units.percent(self._done / self.total, 0) if self.total else "100%"
        remaining = f"{units.duration(left)} left" if math.isfinite(left) and self._done < self.total else units.duration(elapsed)
        text = f"{self.label} {share}  {units.count(rate)} {self.work}/s  {remaining}"
        if self._note:
            text += f"  {self._note}"
        clear = "\x1b[K" if self._terminal else ""
        print(f"{text}{clear}", end=end, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._quiet:
            self._print(time.monotonic(), end="\n")
