"""The site shows a lab's files, escapes every text, asks nobody else for anything, and its links lead somewhere."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

import numpy as np
import pytest

from forerun.base.chart import Band, Chart, Line
from forerun.base.errors import CheckFailed, ConfigError
from forerun.base.lab import Lab
from forerun.dashboard.build import build_site
from forerun.dashboard.figure import Figure
from forerun.dashboard.html import Markup, tag, text
from forerun.dashboard.lab_files import read_lab
from forerun.dashboard.site import Site
from forerun.record.copy import copy_run
from forerun.record.journal import Journal
from forerun.record.run import RunInfo, Segment, start_run
from forerun.record.series import TableRecord, series_of
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
    figure = Figure(key="k", chart=chart, x_term="step", y_term="loss_nats")
    drawn = figure.render("n.csv")
    assert drawn.index("<polygon") < drawn.index("<circle")
    assert figure.csv().splitlines() == ["series,x,y,low,high", "band,0,,1,3", "band,1,,2,4", "measured,0,2,,", "measured,1,3,,"]


def test_hostile_text_in_every_field_of_a_whole_lab_stays_text(hostile_lab, planner, tmp_path):
    build_site(hostile_lab, tmp_path / "site", planner)
    pages = {str(page.relative_to(tmp_path / "site")): page.read_text() for page in (tmp_path / "site").rglob("*.html")}
    assert {"experiments/002-big.html", "runs/big.html", "runs/still-going.html"} <= set(pages)
    shown = 0
    for name, content in pages.items():
        assert "<script>" not in content and "<img" not in content and "\u202e" not in content and "\x07" not in content, name
        shown += content.count("&lt;script&gt;alert(1)")
        for link in re.findall(r'(?:href|src)="([^"#?]+)', content):
            place = (tmp_path / "site" / name).parent / unquote(html.unescape(link))
            assert place.resolve().exists(), f"{name} -> {link}"
    assert shown > 60, "the words must be readable, or this test tests nothing"


def test_pages_tell_the_whole_story_of_a_lab(hostile_lab, planner):
    site = Site(read_lab(hostile_lab, planner))
    page = {path: (site.get(path) or b"").decode() for path in site.page_paths()}
    assert "Nothing is running" not in page["index.html"] and "still-going" in page["index.html"]
    assert "Amendments" in page["experiments/002-big.html"] and "Report" in page["experiments/002-big.html"]
    assert "the nearest earlier experiment" in page["experiments/002-big.html"]
    figures = set(re.findall(r'<figure id="([^"]+)"', page["runs/big.html"]))
    expected = {
        "forecast",
        "loss",
        "domains",
        "domain-astronomy",
        "gradient-shape",
        "gradient-groups",
        "balance",
        "drops",
        "expert-load",
        "expert-drops",
        "layer-expert-load",
        "layer-expert-drops",
    }
    assert figures >= expected | {"entropy", "mfu", "throughput", "rates"}
    assert "inside the promised 90% band" in page["runs/big.html"]
    assert "Backtest: " in page["ladder.html"] and "of the big run" in page["ladder.html"]
    assert "skipped_step" in page["incidents.html"] and "zoom=loss:" in page["incidents.html"]
    assert 'id="grad_norm"' in page["glossary.html"]


def test_one_unreadable_file_is_a_line_on_the_front_page_and_stops_nothing(lab, planner, tmp_path):
    (lab.runs / "broken").mkdir()
    (lab.runs / "broken" / "run.json").write_text("{")
    lab.forecasts.mkdir(parents=True)
    (lab.forecasts / "bad.json").write_text('{"curve": 5}')
    lab.manifests.mkdir()
    (lab.manifests / "bad.json").write_text("[1]")
    (lab.forecasts / "list.json").write_text("[]")
    (lab.manifests / "odd.json").write_text('{"name": 3, "cells": [{"name": "a"}], "held_out": []}')
    (lab.runs / "listed").mkdir()
    (lab.runs / "listed" / "run.json").write_bytes((lab.runs / "first" / "run.json").read_bytes())
    (lab.runs / "listed" / "config.json").write_text("[]")
    build_site(lab, tmp_path / "site", planner)
    front = (tmp_path / "site" / "index.html").read_text()
    for what in ("run broken", "run listed", "forecast bad.json", "forecast list.json", "manifest bad.json", "manifest odd.json"):
        assert f"{what} cannot be read" in front
    assert (tmp_path / "site" / "runs" / "first.html").exists()


def test_a_folder_that_is_no_site_is_left_alone_and_an_old_site_is_replaced(lab, planner, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="is not a site"):
        build_site(lab, tmp_path / "mine", planner)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    build_site(lab, tmp_path / "site", planner)
    (tmp_path / "site" / "runs" / "gone.html").write_text("old")
    build_site(lab, tmp_path / "site", planner)
    assert not (tmp_path / "site" / "runs" / "gone.html").exists() and not list(tmp_path.glob(".site*"))


def test_a_ledger_that_names_a_path_is_refused(lab, planner):
    from forerun.registry import ledger

    ledger.append(lab, "promise", {"experiment": "../../outside", "promise": {}})
    with pytest.raises(CheckFailed, match="no folder name"):
        read_lab(lab, planner)


def test_wilson_matches_a_hand_worked_case():
    low, high = wilson(9, 10)
    assert (round(low, 3), round(high, 3)) == (0.596, 0.982)  # Wilson 1927: 9 of 10 at z = 1.96


def test_a_foreign_run_of_unknown_length_shows_what_it_logged_and_no_end(planner, tmp_path):
    """A table brought in by `forerun record import`: no config, no times, no planned length, no forecast."""
    steps = np.arange(10, 1010, 10)
    table = {"loss_nats": 3 - steps / 2000, "eval/macro_loss_nats": 3.1 - steps / 2000, "grad_norm": 1 + steps / 1e4}
    info = RunInfo(run_id="theirs", created=0.0, num_steps=0, segments=(Segment(run_id="theirs", first_step=0, time=0.0),))
    lab = Lab(tmp_path)
    copy_run(TableRecord(info=info, table={name: series_of(steps, values) for name, values in table.items()}), lab, "theirs")
    site = Site(read_lab(lab, planner))
    page = (site.get("runs/theirs.html") or b"").decode()
    assert "Held-out loss went from 3.095 to 2.600 in 100 evaluations" in page
    assert "Gradient norm is usually" in page
    assert "1970" not in page and "steps planned" not in page
    front = (site.get("index.html") or b"").decode()
    assert "Nothing is running." in front and ">stopped<" in front
