"""A live page: a new point within 2 s of being written, nothing lost over a crash of the server, verdicts that follow."""

from __future__ import annotations

import time

import pytest
from browsing import settle, until
from small_lab import LIVE, small_lab

from forerun.record.journal import Journal

pytestmark = pytest.mark.browser
WITHIN_S = 2.0


@pytest.fixture
def lab(tmp_path):
    return small_lab(tmp_path / "lab")


def last_x(page, key: str = "loss") -> float:
    return float(page.locator(f"figure#{key} .plot").get_attribute("data-last") or "nan")


def num_points(page, key: str = "loss") -> int:
    return int(page.locator(f"figure#{key} .plot").get_attribute("data-points") or 0)


def test_a_new_point_is_on_screen_within_two_seconds(lab, live_site, open_page):
    page = open_page(f"{live_site(lab).url}/runs/{LIVE}.html")
    settle(page)
    until(page, "document.querySelector('[data-live-note]').textContent.startsWith('Live')")
    delays = []
    with Journal(lab.run(LIVE)) as journal:
        for step in range(200, 206):
            journal.log(step, {"loss_nats": 3.0 + step / 1000, "grad_norm": 1.0})
            written = time.monotonic()
            until(page, f"document.querySelector('figure#loss .plot').dataset.last === '{step}'")
            delays.append(time.monotonic() - written)
    print(f"seconds from write to screen: {[round(delay, 2) for delay in delays]}")
    assert max(delays) < WITHIN_S


def test_a_server_that_dies_and_comes_back_loses_no_row_not_even_a_sealed_one(lab, live_site, open_page):
    server = live_site(lab)
    page = open_page(f"{server.url}/runs/{LIVE}.html")
    settle(page)
    before = num_points(page)
    until(page, "document.querySelector('[data-live-note]').textContent.startsWith('Live')")
    server.kill()
    with Journal(lab.run(LIVE)) as journal:  # closing seals what was written
        for step in range(300, 340):
            journal.log(step, {"loss_nats": 3.1})
    with Journal(lab.run(LIVE)) as journal:
        journal.log(340, {"loss_nats": 3.2})
        server.start()
        journal.log(341, {"loss_nats": 3.3})
        until(page, "document.querySelector('figure#loss .plot').dataset.last === '341'")
    assert num_points(page) == before + 42
    page.reload()
    settle(page)
    assert num_points(page) == before + 42, "the page that stayed and a fresh one show the same"
    open_page.troubles[:] = [trouble for trouble in open_page.troubles if "ERR_" not in trouble]  # the dead server's refusals


def test_verdict_and_tables_follow_without_a_reload(lab, live_site, open_page):
    page = open_page(f"{live_site(lab).url}/index.html")
    assert "still-going" in page.locator("#live-now").inner_text()
    with Journal(lab.run(LIVE)) as journal:
        journal.event("finished", 200)
    until(page, "document.querySelector('#live-now').innerText.includes('Nothing is running')")
