"""The site shows a lab's files, escapes every text, asks nobody else for anything, and its links lead somewhere."""

from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from forerun.base.chart import Band, Chart, Line
from forerun.base.lab import Lab
from forerun.dashboard.build import build_site
from forerun.dashboard.figure import Figure
from forerun.dashboard.html import Markup, tag, text
from forerun.dashboard.serve import application
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.registry.calibration import wilson

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202eabc\x07"


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path / "lab")
    start_run(lab.run("first"), num_steps=4, unregistered=True)
    with Journal(lab.run("first")) as journal:
        journal.event("note", 1, words=HOSTILE)
        for step in range(1, 5):
            journal.log(step, {"loss_nats": 5.0 - step / 10, "eval/macro_loss_nats": 5.1 - step / 10, "grad_norm": 1.0})
    return lab


def test_text_is_escaped_and_markup_is_not():
    assert text(HOSTILE) == "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;\\u202eabc\\u0007"
    assert tag("p", Markup("<b>x</b>"), "<", title='"') == '<p title="&quot;"><b>x</b>&lt;</p>'


def test_every_page_is_whole_links_lead_to_files_and_nothing_is_asked_of_others(lab, planner, tmp_path):
    build_site(lab, tmp_path / "site", planner)
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert {page.name for page in pages} >= {"index.html", "first.html", "data.html", "ladder.html", "glossary.html"}
    for page in pages:
        content = page.read_text()
        assert "<script>" not in content and "onerror=alert" not in content.replace("onerror=alert(2)&gt;", "")
        assert "default-src &#x27;none&#x27;" in content
        for link in re.findall(r'(?:href|src)="([^"#]+)"', content):
            assert "//" not in link
            assert (page.parent / link).resolve().exists(), f"{page.name} -> {link}"
    assert "unregistered" in (tmp_path / "site" / "index.html").read_text()
    assert "\\u202eabc" in (tmp_path / "site/runs/first.html").read_text()


def test_the_same_lab_gives_the_same_bytes(lab, planner, tmp_path):
    for name in ("a", "b"):
        build_site(lab, tmp_path / name, planner)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)


def test_a_figure_draws_the_band_before_the_points_and_its_csv_holds_every_number():
    chart = Chart(
        title="t",
        x_label="x",
        y_label="y",
        bands=[Band(x=[0, 1], low=[1, 2], high=[3, 4], label="band")],
        lines=[Line(x=[0, 1], y=[2, 3], label="measured", marker="circle")],
    )
    figure = Figure(key="k", chart=chart)
    drawn = figure.render("n.csv")
    assert drawn.index("<polygon") < drawn.index("<circle")
    assert figure.csv().splitlines() == ["series,x,y,low,high", "band,0,,1,3", "band,1,,2,4", "measured,0,2,,", "measured,1,3,,"]


def test_the_server_shows_new_rows_refuses_writes_and_stays_inside_its_site(lab, planner):
    with TestClient(application(lab, planner)) as client:
        assert "4.7" in client.get("/runs/first.html").text
        with Journal(lab.run("first")) as journal:
            journal.log(5, {"eval/macro_loss_nats": 3.25})
        time.sleep(0.3)  # the server looks at files at most four times a second
        assert "3.25" in client.get("/index.html").text
        assert client.post("/index.html").status_code == 405
        assert client.post("/ingest/first").status_code == 405
        for path in (
            "/../lab/runs/first/run.json",
            "/%2e%2e/%2e%2e/lab/runs/first/run.json",
            "/..%2f..%2fetc/passwd",
            "/static/../pages.py",
        ):
            response = client.get(path)
            assert response.status_code == 404
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_wilson_matches_a_hand_worked_case():
    low, high = wilson(9, 10)
    assert (round(low, 3), round(high, 3)) == (0.596, 0.982)  # Wilson 1927: 9 of 10 at z = 1.96
