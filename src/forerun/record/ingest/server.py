"""The endpoint itself: three routes, loopback only."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from forerun.base.errors import PlatformError
from forerun.base.lab import Lab
from forerun.record.ingest.graphql import answer
from forerun.record.ingest.runs import IngestedRuns

MAX_BODY = 256 * 2**20  # assumed: a client's largest batch of rows is far smaller


def application(lab: Lab) -> Starlette:
    """The endpoint as an ASGI application; serve it on 127.0.0.1."""
    runs = IngestedRuns(lab)

    async def graphql(request: Request) -> JSONResponse:
        question = await _body(request)
        try:
            data = await run_in_threadpool(
                answer, runs, str(request.base_url).rstrip("/"), question.get("query", ""), question.get("variables") or {}
            )
        except PlatformError as error:
            return JSONResponse({"data": None, "errors": [{"message": str(error)}]})
        return JSONResponse({"data": data})

    async def file_stream(request: Request) -> JSONResponse:
        message = await _body(request)
        where = request.path_params
        try:
            run = runs.open(where["entity"], where["project"], where["run"])
            await run_in_threadpool(run.take, message.get("files") or {})
            if message.get("complete"):
                await run_in_threadpool(run.finish, int(message.get("exitcode") or 0))
        except PlatformError as error:
            return JSONResponse({"error": str(error)}, status_code=500)
        return JSONResponse({"exitcode": None, "limits": {}})

    async def accepted(request: Request) -> JSONResponse:
        """Uploads of files and anything else a client sends: read and let go."""
        async for _ in request.stream():
            continue
        return JSONResponse({})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(runs.close)

    routes = [
        Route("/graphql", graphql, methods=["POST"]),
        Route("/files/{entity}/{project}/{run}/file_stream", file_stream, methods=["POST"]),
        Route("/{rest:path}", accepted, methods=["GET", "PUT", "POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _body(request: Request) -> dict[str, Any]:
    data = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    if len(data) > MAX_BODY:
        return {}
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return message if isinstance(message, dict) else {}
