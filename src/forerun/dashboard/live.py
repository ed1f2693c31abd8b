"""What a served site knows of its lab: a fresh snapshot for pages, and one stream of new rows and changes for every reader."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool

from forerun.base.errors import PlatformError
from forerun.base.lab import Lab
from forerun.dashboard.feed import Batch, Feed, format_place
from forerun.dashboard.lab_files import LabFiles, Planner, lab_signature, read_lab
from forerun.dashboard.site import Site

POLL_S = 0.25  # assumed: a new point is on screen within 2 s, drawing and network included
LOOK_S = 1.0  # assumed: seconds between looks at all files of the lab for changes
STALE_S = 60.0  # assumed: a verdict on a running run is made again after a minute, as its silence counts
STREAM = "live"


class Fresh:
    """The site of the lab as it is now; runs that did not change are not read or judged again."""

    def __init__(self, lab: Lab, planner: Planner) -> None:
        self._lab, self._planner, self._lock = lab, planner, threading.Lock()
        self._files: LabFiles | None = None
        self._site: Site | None = None
        self._signature: object = None
        self._looked = -math.inf

    def get(self, path: str) -> bytes | None:
        """The bytes of a path now. Raises: CheckFailed when the ledger was changed."""
        with self._lock:
            if self._site is None or time.monotonic() - self._looked > POLL_S:
                self._look()
            assert self._site is not None
            return self._site.get(path)

    def _look(self) -> None:
        signature, now = lab_signature(self._lab), time.time()
        old = self._files is None or self._files.now is None or now - self._files.now > STALE_S
        if signature != self._signature or old:
            self._files = read_lab(self._lab, self._planner, before=self._files, now=now)
            self._site, self._signature = Site(self._files, live=STREAM), signature
        self._looked = time.monotonic()


class Hub:
    """One poller for all readers: a run is followed while somebody watches it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._feeds: dict[str, Feed] = {}
        self._readers: dict[str, int] = {}
        self._tick = asyncio.Event()
        self._changes = 0
        self._signature: object = None
        self._encoded: dict[int, tuple[Batch, bytes]] = {}

    async def poll_for_ever(self) -> None:
        """Look at followed runs often and at the lab each second; wake the readers when something is new."""
        looked = -math.inf
        while True:
            new = False
            for name, feed in list(self._feeds.items()):
                with suppress(OSError, ValueError):
                    new |= bool(await run_in_threadpool(feed.poll))
            if time.monotonic() - looked > LOOK_S:
                with suppress(OSError):
                    signature = await run_in_threadpool(lab_signature, self._lab)
                    new |= signature != self._signature
                    self._changes += signature != self._signature
                    self._signature = signature
                looked = time.monotonic()
            if new:
                self._encoded.clear()
                tick, self._tick = self._tick, asyncio.Event()
                tick.set()
            await asyncio.sleep(POLL_S)

    async def stream(self, run: str, place: Mapping[int, int]) -> AsyncIterator[bytes]:
        """Messages for one reader: `rows` of its run from its place on, `changed` when any file of the lab did.

        Args:
            run: name of a run, or an empty string for changes alone.
            place: rows the reader has.
        """
        have, seen = dict(place), self._changes
        feed = await self._follow(run)
        try:
            yield b"retry: 1000\n\n"
            while True:
                tick = self._tick
                for batch in await run_in_threadpool(_missing, feed, dict(have)) if feed and _behind(feed, have) else ():
                    have[batch.writer] = batch.end
                    yield self._rows(batch, have)
                if self._changes != seen:
                    seen = self._changes
                    yield b"event: changed\ndata: {}\n\n"
                await tick.wait()
        finally:
            self._leave(run)

    async def _follow(self, run: str) -> Feed | None:
        if not run or not (self._lab.run(run) / "run.json").is_file():
            return None
        self._readers[run] = self._readers.get(run, 0) + 1
        if run not in self._feeds:
            feed = Feed(self._lab.run(run))
            await run_in_threadpool(feed.poll)
            self._feeds.setdefault(run, feed)
        return self._feeds[run]

    def _leave(self, run: str) -> None:
        if run in self._readers:
            self._readers[run] -= 1
            if self._readers[run] <= 0:
                del self._readers[run]
                self._feeds.pop(run, None)

    def _rows(self, batch: Batch, have: Mapping[int, int]) -> bytes:
        """A message; the rows of a batch that many readers get are written as JSON once."""
        known = self._encoded.get(id(batch))
        if known is None or known[0] is not batch:
            known = (batch, orjson.dumps([_plain(row) for row in batch.rows]))
            self._encoded[id(batch)] = known
        return b"event: rows\nid: %s\ndata: %s\n\n" % (format_place(have).encode(), known[1])


def _behind(feed: Feed, have: Mapping[int, int]) -> bool:
    return any(have.get(writer, 0) < end for writer, end in feed.place.items())


def _missing(feed: Feed, have: dict[int, int]) -> list[Batch]:
    with suppress(PlatformError):
        return list(feed.missing(have))
    return []


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values JSON cannot say become the words the journal uses."""
    return {
        name: value
        if not isinstance(value, float) or math.isfinite(value)
        else "NaN"
        if math.isnan(value)
        else "Infinity"
        if value > 0
        else "-Infinity"
        for name, value in row.items()
    }
