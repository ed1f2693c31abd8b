"""The front page: what is running and whether it is on course, what was promised and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from forerun.base import units
from forerun.base.terms import spoken
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Markup, Piece, table, tag
from forerun.dashboard.lab_files import LabFiles, Promise
from forerun.dashboard.numbers import number, percent, place, sentence
from forerun.dashboard.page import minute, paragraph, region, state
from forerun.dashboard.panels import EVAL, band_figure
from forerun.dashboard.run_view import RunView
from forerun.registry.calibration import wilson

MOST_LISTED = 500  # assumed: rows of a table people still scroll; every run has its page, and `forerun record` lists all


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="index.html", title="The lab at a glance", content=lambda desk: front(files, desk))


def front(files: LabFiles, desk: Desk) -> list[Piece]:
    """Running now, then the story of every confirmatory promise, then counts and lists."""
    confirmatory = [promise for promise in reversed(files.promises) if promise.text["kind"] == "confirmatory"]
    stories = [_story(files, promise, desk) for promise in confirmatory]
    forecast = files.forecast_of(confirmatory[0]) if confirmatory else None
    problems = tag("ul", *(tag("li", problem) for problem in files.problems))
    return [
        region("glance", _glance(files, desk)),
        region("now", *_running(files, desk)),
        region("newest", *([tag("h2", "The newest promise"), stories[0]] if stories else [])),
        desk.draw(band_figure(files.run_of(confirmatory[0]), forecast, key="newest-promise")) if forecast else "",
        region("stories", *([tag("h2", "Earlier promises"), *stories[1:]] if stories[1:] else [])),
        region("promises", *_promises(files, desk)),
        region("runs", tag("h2", "Runs"), _runs(files, desk)),
        region("problems", *([tag("h2", "Files that cannot be read"), problems] if files.problems else [])),
    ]


def _glance(files: LabFiles, desk: Desk) -> Markup:
    """Counts of what the lab has promised and how it ended."""
    counts = Counter(promise.answer for promise in files.promises)
    answers = (desk.fact(word, counts.get(word, 0), "num_promises") for word in ("open", "kept", "missed", "undecided", "deviated"))
    return tag(
        "dl",
        desk.fact("runs", len(files.runs), "num_runs"),
        desk.fact("promises", len(files.promises), "num_promises"),
        *answers,
        class_="facts",
    )


def _running(files: LabFiles, desk: Desk) -> list[Piece]:
    running = [run for run in files.runs.values() if not run.ended and run.last_step >= 0]
    if not running:
        return [tag("h2", "Running now"), paragraph("Nothing is running.")]
    entries = []
    for run in running:
        report = files.report_of(run)
        entries.append(
            tag(
                "li",
                desk.link(run.name, f"runs/{run.name}.html"),
                " is ",
                state(report.state),
                *place(run.last_step, run.info.num_steps),
                sentence(f": {report.reason}." if report.reason else ".", EVAL),
            )
        )
    return [tag("h2", "Running now"), tag("ul", *entries, class_="running")]


def _story(files: LabFiles, promise: Promise, desk: Desk) -> Markup:
    prediction, run, metric = promise.text["prediction"], files.run_of(promise), promise.text["metric"]
    trained = [" It was trained as ", desk.link(run.name, f"runs/{run.name}.html"), "."] if run else [" It has not been started."]
    return tag(
        "section",
        tag("h3", desk.link(promise.text["title"], f"experiments/{promise.name}.html")),
        paragraph(promise.text["hypothesis"], class_="lead"),
        paragraph(
            f"Before launch, on {minute(promise.time)}, the lab promised that the ",
            desk.term(spoken(metric), metric),
            " would end at ",
            number(prediction["point"], metric, f"{prediction['point']:.4f}"),
            ", and with 90% confidence between ",
            number(prediction["low90"], "interval90", f"{prediction['low90']:.4f}"),
            " and ",
            number(prediction["high90"], "interval90", f"{prediction['high90']:.4f}"),
            ".",
            *trained,
        ),
        paragraph(state(promise.answer), " ", sentence(promise.words, metric)),
        class_="card",
    )


def _promises(files: LabFiles, desk: Desk) -> list[Piece]:
    never = [promise for promise in files.promises if promise.closing is None]
    listed: list[Piece] = []
    for promise in never:
        listed += [", " if listed else "", desk.link(promise.name, f"experiments/{promise.name}.html")]
    return [
        tag("h2", "Calibration"),
        paragraph("Promises never closed: ", *(listed or ["none"]), "."),
        _calibration(files),
    ]


def _calibration(files: LabFiles) -> Markup:
    scored = [
        promise.verdict
        for promise in files.promises
        if promise.verdict and promise.text["kind"] == "confirmatory" and promise.verdict["inside90"] is not None
    ]
    if not scored:
        return paragraph("No confirmatory prediction has been scored yet.")
    rows = []
    for name, share in (("inside50", "50%"), ("inside90", "90%")):
        held = sum(verdict[name] for verdict in scored)
        low, high = wilson(held, len(scored))
        where = f"{low:.0%} to {high:.0%}"
        rows.append(
            (
                number(float(share.rstrip("%")) / 100, f"interval{share.rstrip('%')}", share),
                number(len(scored), "num_promises"),
                number(held, "num_promises"),
                number(held / len(scored), "coverage", where),
            )
        )
    return table(
        ["interval", "scored", "held", "share held, 95% interval"], rows, caption="How often confirmatory intervals held their outcome"
    )


def _runs(files: LabFiles, desk: Desk) -> Markup:
    if not files.runs:
        return paragraph("No run yet.")
    heads = [
        "run",
        "promise",
        "state",
        desk.term("done", "fraction_done"),
        desk.term(f"{spoken(EVAL)}, nats per token", "macro_loss_nats"),
        desk.term("tokens per second", "tokens_per_second"),
    ]
    newest = sorted(files.runs.values(), key=lambda run: run.info.created, reverse=True)[:MOST_LISTED]
    caption = "All runs of this lab" if len(newest) == len(files.runs) else f"The newest {MOST_LISTED} of {len(files.runs)} runs"
    return table(heads, [_row(files, run, desk) for run in sorted(newest, key=lambda run: run.name)], caption=caption)


def _row(files: LabFiles, run: RunView, desk: Desk) -> tuple[Piece, ...]:
    series, speed = run.series(EVAL), run.series("tokens_per_second").value
    promise = files.promise_of(run)
    promised = desk.link(promise.name, f"experiments/{promise.name}.html") if promise else state("off_course", "unregistered")
    usual = float(np.median(speed)) if len(speed) else None
    return (
        desk.link(run.name, f"runs/{run.name}.html"),
        promised,
        run.ended or "running",
        percent(run.done, "fraction_done"),
        number(series.last, "macro_loss_nats", f"{series.last:.4f}") if len(series) else "",
        number(usual, "tokens_per_second", units.count(usual)) if usual is not None and np.isfinite(usual) else "",
    )
