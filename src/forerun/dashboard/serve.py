"""The same pages over HTTP, live: made from the lab's files when asked for, with one stream of news. Loopback unless told otherwise.

No path of a request ever reaches the file system: pages and files are looked up by name in the site.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.base.errors import CheckFailed
from forerun.base.lab import Lab
from forerun.base.listening import listening
from forerun.dashboard.feed import parse_place
from forerun.dashboard.ingest import Ingest
from forerun.dashboard.lab_files import Planner
from forerun.dashboard.live import STREAM, Fresh, Hub
from forerun.dashboard.page import POLICY

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1", "testserver")
KEEP_ALIVE_S = 15
HEADERS = {
    "Content-Security-Policy": POLICY + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "js": "text/javascript",
    "csv": "text/csv",
    "md": "text/markdown",
    "svg": "image/svg+xml",
}


def application(lab: Lab, planner: Planner, *, write_token: str = "", host: str = "127.0.0.1") -> Starlette:
    """The site of a lab as an ASGI application.

    Args:
        write_token: who sends it may add rows to runs; empty leaves the site read-only.
        host: address it is reached at; on loopback, requests for other host names are refused (DNS rebinding).
    """
    fresh, hub = Fresh(lab, planner), Hub(lab)
    ingest = Ingest(lab, write_token) if write_token else None

    async def show(request: Request) -> Response:
        path = request.path_params["path"]
        path = path + "index.html" if path in ("",) or path.endswith("/") else path
        try:
            content = await run_in_threadpool(fresh.get, path)
        except CheckFailed as error:
            return PlainTextResponse(f"This lab cannot be shown: {error}\n", 503)
        return PlainTextResponse("there is no such page\n", 404) if content is None else _answer(request, path, content)

    async def stream(request: Request) -> Response:
        place = request.headers.get("last-event-id") or request.query_params.get("place", "")
        run = request.query_params.get("run", "")
        run = "" if "/" in run or "\\" in run or run.startswith(".") else run
        return EventSourceResponse(hub.stream(run, parse_place(place)), ping=KEEP_ALIVE_S, headers={"Cache-Control": "no-store"})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        poller = asyncio.create_task(hub.poll_for_ever())
        yield
        poller.cancel()
        with suppress(asyncio.CancelledError):
            await poller
        if ingest:
            await run_in_threadpool(ingest.close)

    writes = [Route("/ingest/{run}", ingest.__call__, methods=["POST"])] if ingest else []
    hosts = list(LOOPBACK) if host in LOOPBACK else ["*"]
    return Starlette(
        routes=[Route(f"/{STREAM}", stream), *writes, Route("/{path:path}", show)],
        middleware=[Middleware(_Guard), Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        lifespan=lifespan,
    )


def serve(lab: Lab, planner: Planner, *, host: str, port: int, write_token: str = "") -> None:
    """Serve until interrupted. Raises: ConfigError when the address cannot be had."""
    import uvicorn

    place = listening(host, port)
    app = application(lab, planner, write_token=write_token, host=host)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)).run(sockets=[place])


def _answer(request: Request, path: str, content: bytes) -> Response:
    """The bytes, or the part asked for, or word that the reader has them already."""
    kind = TYPES.get(path.rpartition(".")[2]) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Accept-Ranges": "bytes"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
    if asked and asked.group() != "bytes=-":
        first, last = asked.groups()
        begin = int(first) if first else max(len(content) - int(last), 0)
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        if begin >= end:
            return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        return Response(content[begin:end], 206, headers, kind)
    return Response(content, headers=headers, media_type=kind)


class _Guard:
    """Headers on every answer; a plain ASGI layer, as streams pass through it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((name.lower().encode(), value.encode()) for name, value in HEADERS.items())]
            await send(message)

        await self._app(scope, receive, guarded if scope["type"] == "http" else send)
