"""Incidents: what went wrong in this lab's runs, what the alarms say now, how well they were tested, and what others met."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.base import units
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Markup, Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph, region, state
from forerun.dashboard.run_view import RunView
from forerun.watch.diagnose import knowledge
from forerun.watch.replay.results import shipped

CALM = frozenset(("start", "finished", "end", "heartbeat", "sample", "checkpoint_saved", "note", "drops", "compiled"))
"""Kinds of event that are no incident."""
AROUND = 0.02  # assumed: a link into a figure shows this share of the run on each side of the event


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="incidents.html", title="Incidents", content=lambda desk: content(files, desk))


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """Ours, then the tests of the alarms, then public ones."""
    return [
        region("incidents", *_own(files, desk)),
        *_tested(),
        *_public(desk),
    ]


def _own(files: LabFiles, desk: Desk) -> list[Piece]:
    rows = [
        (
            _link(run, event["step"], desk),
            number(event["step"], "step"),
            event["kind"],
            ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("kind", "step", "time", "segment")),
        )
        for run in files.runs.values()
        for event in run.events()
        if event["kind"] not in CALM
    ]
    restarts = [
        (desk.link(run.name, f"runs/{run.name}.html"), number(segment.first_step, "step"), segment.changed or "restart", segment.kind)
        for run in files.runs.values()
        for segment in run.info.segments[1:]
    ]
    reports = [(run, files.report_of(run)) for run in files.runs.values()]
    alarms = [
        (
            _link(run, finding.step, desk),
            number(max(finding.step, 0), "step"),
            finding.rule.replace("_", " "),
            state(finding.state),
            finding.evidence,
            report.diagnosis[0].cause if report.diagnosis else "",
        )
        for run, report in reports
        for finding in report.alarms
    ]
    return [
        paragraph(
            f"{units.counted(len(alarms), 'alarm')} standing, {units.counted(len(rows), 'event')} and "
            f"{units.counted(len(restarts), 'restart or change', 'restarts or changes')} on record.",
            class_="lead",
        ),
        tag("h2", "Alarms that stand"),
        table(["run", "since step", "rule", "state", "evidence", "likeliest cause"], alarms, caption="Of all runs, as the record was left")
        if alarms
        else paragraph("None."),
        tag("h2", "Events"),
        table(["run", "step", "event", "details"], rows, caption="Everything out of the ordinary") if rows else paragraph("None."),
        tag("h2", "Restarts and changes"),
        table(["run", "from step", "change", "kind"], restarts, caption="Segments after the first") if restarts else paragraph("None."),
    ]


def _link(run: RunView, step: int, desk: Desk) -> Markup:
    """To the run's loss figure, opened around a step."""
    path = f"runs/{run.name}.html"
    if step < 0 or run.last_step < 1:
        return desk.link(run.name, path)
    reach = max(1, round(AROUND * run.last_step))
    return desk.link(run.name, path, query=f"zoom=loss:{max(0, step - reach)}:{min(run.last_step, step + reach)}", fragment="loss")


def _tested() -> list[Piece]:
    results = shipped()
    rows = [
        (
            entry["incident"],
            number(entry["num_runs"], "num_runs"),
            number(entry["detected"], "detected", f"{entry['detected']:.0%}" if entry["detected"] is not None else "–"),
            number(entry["median_delay"], "detection_delay"),
            (entry["first_rule"] or "").replace("_", " "),
            number(entry["diagnosed"], "diagnosed", f"{entry['diagnosed']:.0%}") if entry["diagnosed"] is not None else "–",
        )
        for entry in results["incidents"]
    ]
    healthy = results.get("healthy")
    lead = (
        paragraph(
            "Planted incidents on healthy series. Of ",
            number(healthy["num_runs"], "num_runs"),
            " healthy runs of ",
            number(healthy["num_steps"], "num_steps"),
            " steps ",
            number(healthy["any_alarm"], "false_alarm_rate", f"{healthy['any_alarm']:.1%}"),
            " raise any alarm at any time.",
        )
        if healthy
        else ""
    )
    heads = ["planted", "runs", "found", "median delay, steps", "first alarm", "diagnosed first or second"]
    return [tag("h2", "How the alarms were tested"), lead, table(heads, rows, caption="Replay of incidents")]


def _public(desk: Desk) -> list[Piece]:
    rows = [
        (
            entry["id"],
            entry["run"],
            entry["date_utc"],
            entry["signature"],
            entry["cause"],
            entry["decision"],
            tag("span", entry["source"], class_="address"),
        )
        for entry in knowledge()["incident"]
    ]
    heads = ["id", "run", desk.term("date", "incident_date"), "seen", "cause", "decision", "source"]
    return [tag("h2", "What others met"), table(heads, rows, caption="Public incidents that the diagnosis cites")]
