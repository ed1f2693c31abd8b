"""The same pages over HTTP, rebuilt when the lab's files have changed. Read-only, loopback unless told otherwise."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from forerun.base.lab import Lab
from forerun.dashboard.build import build_site
from forerun.dashboard.page import POLICY


def application(lab: Lab, scratch: Path) -> Starlette:
    """An application that serves a lab's site from `scratch`; paths cannot leave that folder."""
    fresh = _Fresh(lab, scratch / "site")
    fresh.ensure()
    static = Mount("/", StaticFiles(directory=scratch / "site", html=True, follow_symlink=False))
    return Starlette(routes=[static], middleware=[Middleware(_Guard, fresh=fresh)])


def serve(lab: Lab, host: str, port: int) -> None:
    """Serve until interrupted."""
    import uvicorn

    with tempfile.TemporaryDirectory(prefix="forerun-site-") as scratch:
        uvicorn.run(application(lab, Path(scratch)), host=host, port=port, log_level="warning")


class _Fresh:
    """Rebuilds the site when a file it shows is newer than the last build."""

    def __init__(self, lab: Lab, out: Path) -> None:
        self._lab, self._out, self._seen, self._lock = lab, out, 0, threading.Lock()

    def ensure(self) -> None:
        with self._lock:
            newest = max((path.stat().st_mtime_ns for path in self._watched()), default=1)
            if newest != self._seen:
                build_site(self._lab, self._out)
                self._seen = newest

    def _watched(self) -> list[Path]:
        lab = self._lab
        found = [
            *lab.runs.glob("*/run.json"),
            *lab.runs.glob("*/w*/*"),
            *lab.forecasts.glob("*.json"),
            *lab.manifests.glob("*.json"),
            lab.ledger,
        ]
        return [path for path in found if path.exists()]


class _Guard(BaseHTTPMiddleware):
    def __init__(self, app: ASGIApp, fresh: _Fresh) -> None:
        super().__init__(app)
        self._fresh = fresh

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response("read-only", status_code=405)
        if request.url.path.endswith((".html", "/")):
            self._fresh.ensure()
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response
