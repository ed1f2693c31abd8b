"""What the browser tests share beside fixtures: where things are, servers, waiting."""

from __future__ import annotations

import html
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).parents[2]
HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\u202eabc"\'><b id=bold>'
CHROMIUM = (
    os.environ.get("FORERUN_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
SHOTS = Path(os.environ.get("FORERUN_SCREENSHOTS", ROOT / "lab-browser" / "screenshots"))
COMMAND = [sys.executable, "-c", "from forerun.cli.main import main; main()"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class LiveServer:
    """`forerun site serve` as a process of its own; it can be killed and started again on its port."""

    def __init__(self, lab, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [*COMMAND, "site", "serve", "--lab", str(lab.root), "--port", str(self.port), *options]
        self.start()

    def start(self) -> None:
        """Start and wait until pages come."""
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(900):
            try:
                urllib.request.urlopen(f"{self.url}/glossary.html", timeout=5).read()
                return
            except OSError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.1)
        raise AssertionError("the server did not start within 90 s")

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait()


def until(page, expression: str, timeout_s: float = 20.0) -> None:
    """Wait for a condition. The pages' policy forbids evaluating strings, so the waiting is done out here."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {expression}"
        time.sleep(0.02)


def settle(page, timeout_s: float = 30.0) -> None:
    """Scroll through a page until every figure has come alive and has its rows. A figure wakes 400 pixels before it is in view."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = page.evaluate(
            """async () => {
                const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                const waiting = () => [...document.querySelectorAll('figure[data-figure]')].filter((figure) => figure.dataset.live !== 'rows');
                for (const figure of waiting()) { figure.scrollIntoView({ behavior: 'instant' }); await frame(); }
                for (let tries = 0; tries < 50 && waiting().length; tries += 1) await new Promise((done) => setTimeout(done, 10));
                scrollTo({ top: 0, behavior: 'instant' });
                return waiting().map((figure) => figure.id);
            }"""
        )
        if not left:
            return
        assert time.monotonic() < deadline, f"figures that did not come alive: {left}"


def paths_of(url: str) -> list[str]:
    """Every page of a site that links lead to, found by following them; each must be there."""
    seen, todo = {"/index.html"}, ["/index.html"]
    while todo:
        here = todo.pop()
        with urllib.request.urlopen(url + here, timeout=60) as answer:
            content = answer.read().decode("utf-8")
        for link in re.findall(r'href="([^"#?]+)', content):
            path = urljoin(here, html.unescape(link))
            if path.endswith(".html") and path not in seen:
                seen.add(path)
                todo.append(path)
    return sorted(seen)
