"""First paint of the overview, time to a topic's answer and to a pair page, in Chromium against `forerun site serve`.

Run: python benchmarks/atlas/browse.py LAB [OUT.json]      LAB holds a store as made by store.py; needs playwright and chromium
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import KEY_DIGITS, book_of

PORT, REPEATS = 8993, 5
TOPICS = ("def", "class", "return", "import", "file")


def main(lab: Lab, out: str) -> None:
    """Measure, print, and keep the numbers."""
    digest = next(lab.manifests.glob("*.json")).stem
    book = book_of(lab, digest)
    shutil.rmtree(lab.atlas / digest, ignore_errors=True)
    server = subprocess.Popen(
        [sys.executable, "-c", "from forerun.cli.main import main; main()", "site", "serve", "--lab", str(lab.root), "--port", str(PORT)]
    )
    url = f"http://127.0.0.1:{PORT}/data/{digest[:KEY_DIGITS]}/index.html"
    try:
        begin = _wait(f"http://127.0.0.1:{PORT}/glossary.html")
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            cold = _first_paint(browser, url)
            warm = [_first_paint(browser, url) for _ in range(REPEATS)]
            page = browser.new_page()
            page.goto(url)
            prepared = time.monotonic()
            _ask(page, "make the index")
            prepared = time.monotonic() - prepared
            page.goto(url)
            asked = [_ask(page, topic) for topic in TOPICS]
            browser.close()
    finally:
        server.terminate()
    found = {
        "documents": sum(cell.num_documents or 0 for cell in book.cells),
        "first_paint_ms_nothing_made": round(cold),
        "first_paint_ms": round(statistics.median(warm)),
        "index_made_s": round(prepared, 1),
        "topic_ms_first": round(asked[0]),
        "topic_ms": round(statistics.median(asked[1:])),
        "server_ready_s": round(begin, 2),
    }
    print(json.dumps(found))
    if out:
        Path(out).write_text(json.dumps(found, indent=1) + "\n")


def _wait(url: str) -> float:
    begin = time.monotonic()
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return time.monotonic() - begin
        except OSError:
            time.sleep(0.05)


def _first_paint(browser, url: str) -> float:
    """Milliseconds from the request to the first contentful paint."""
    page = browser.new_page()
    page.goto(url)
    for _ in range(200):
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0] ?? null")
        if paint is not None:
            page.close()
            return paint
        time.sleep(0.02)
    raise AssertionError("nothing was painted in 4 s")


def _ask(page, topic: str) -> float:
    """Milliseconds from the last key to the answer, the typing pause of 120 ms not counted; measured inside the page."""
    page.evaluate(
        """(topic) => new Promise((done) => {
            const told = document.querySelector('#topic-search [role=status]');
            const input = document.querySelector('#topic');
            const begin = performance.now();
            new MutationObserver((_, watch) => { watch.disconnect(); window.took = performance.now() - begin; done(); }).observe(told, { childList: true, characterData: true, subtree: true });
            input.value = topic;
            input.dispatchEvent(new Event('input'));
        })""",
        topic,
    )
    return page.evaluate("window.took") - 120


if __name__ == "__main__":
    main(Lab(Path(sys.argv[1])), sys.argv[2] if len(sys.argv) > 2 else "")
