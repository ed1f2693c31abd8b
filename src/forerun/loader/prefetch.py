"""Batches made ahead of the step by one thread, and how often the step had to wait for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from forerun.loader.batches import Batch


@dataclass(frozen=True)
class Fetched:
    """A batch and what getting it cost."""

    step: int
    batch: Batch
    wait_s: float
    """`loader_wait_s`: time the caller waited."""
    occupancy: float
    """`loader_occupancy`: filled share of the queue when the caller asked."""
    make_s: float
    """Time the thread took to make the batch."""


class Prefetcher:
    """Iterates `Fetched` for steps `first..last`, in order. Use as a context manager: leaving it ends the thread.

    Args:
        make: batch of a step, such as `Batches.batch`; an error in it is raised in the caller at that step.
        depth: batches kept ready.
    """

    def __init__(self, make: Callable[[int], Batch], first: int, last: int, *, depth: int = 8) -> None:
        self._make, self._first, self._last = make, first, last
        self._ready: queue.Queue[tuple[int, Batch | BaseException, float]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="forerun-loader", daemon=True)

    def __enter__(self) -> Prefetcher:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def __iter__(self) -> Iterator[Fetched]:
        for _ in range(self._first, self._last):
            occupancy = self._ready.qsize() / self._ready.maxsize
            started = time.perf_counter()
            step, outcome, make_s = self._ready.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield Fetched(step, outcome, time.perf_counter() - started, occupancy, make_s)

    def _fill(self) -> None:
        for step in range(self._first, self._last):
            started = time.perf_counter()
            try:
                outcome: Batch | BaseException = self._make(step)
            except BaseException as error:  # noqa: BLE001  handed to the caller, who must see it
                outcome = error
            made = (step, outcome, time.perf_counter() - started)
            while not self._stop.is_set():
                try:
                    self._ready.put(made, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._stop.is_set() or isinstance(outcome, BaseException):
                return
