"""Chromium, labs and servers for the browser tests. Run by `make test-browser`, which installs what only they need."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from browsing import CHROMIUM, COMMAND, HOSTILE, ROOT, LiveServer, QuietHandler

sys.path.insert(0, str(ROOT / "tests" / "dashboard"))


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it (2026-11)")
    assert CHROMIUM, "no chromium found; make test-browser installs it, or set FORERUN_CHROMIUM"
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """`open_page(url, **context options)` gives a page that fails the test on any error, dialog or request to elsewhere."""
    contexts, troubles = [], []

    def opened(url: str, **options):
        context = chromium.new_context(viewport=options.pop("viewport", {"width": 1200, "height": 900}), **options)
        contexts.append(context)
        page = context.new_page()
        home = "/".join(url.split("/")[:3])
        page.on("console", lambda message: troubles.append(f"console: {message.text}") if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: troubles.append(f"elsewhere: {request.url}") if not request.url.startswith(home) else None)
        page.goto(url)
        return page

    opened.troubles = troubles
    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """An ordinary made lab."""
    from small_lab import small_lab

    return small_lab(tmp_path_factory.mktemp("small") / "lab")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """The same lab with markup, scripts and bidirectional controls in every text."""
    from small_lab import small_lab

    return small_lab(tmp_path_factory.mktemp("hostile") / "lab", HOSTILE)


@pytest.fixture(scope="session")
def demo():
    """The quick demo's own lab: FORERUN_DEMO_LAB, or one made once (3 to 6 minutes) under lab-browser/."""
    from forerun.base.lab import Lab

    given = os.environ.get("FORERUN_DEMO_LAB")
    if given:
        return Lab(Path(given))
    place = ROOT / "lab-browser" / "demo"
    subprocess.run([*COMMAND, "demo", "--quick", "--lab", str(place)], check=False, cwd=ROOT)
    lab = Lab(place)
    assert (lab.run("demo-big") / "run.json").exists(), "forerun demo --quick did not finish"
    return lab


@pytest.fixture(scope="session")
def static_site(tmp_path_factory):
    """`static_site(lab)` builds a lab's site and serves it from a plain file server; the address."""
    from plan_twin import planner

    from forerun.dashboard.build import build_site

    servers, known = [], {}

    def served(lab) -> str:
        if lab.root in known:
            return known[lab.root]
        out = tmp_path_factory.mktemp("site") / "site"
        build_site(lab, out, planner())
        handler = functools.partial(QuietHandler, directory=str(out))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        known[lab.root] = f"http://127.0.0.1:{server.server_address[1]}"
        return known[lab.root]

    yield served
    for server in servers:
        server.shutdown()


@pytest.fixture
def live_site():
    """`live_site(lab, *options)` starts a server."""
    servers = []

    def served(lab, *options: str) -> LiveServer:
        servers.append(LiveServer(lab, *options))
        return servers[-1]

    yield served
    for server in servers:
        server.kill()
