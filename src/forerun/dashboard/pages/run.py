"""The page of one run: its state, its figures, checks, alarms, lineage, events and what it writes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from forerun.base import units
from forerun.dashboard import rows
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import hover, number, place, sentence
from forerun.dashboard.page import paragraph, region, state
from forerun.dashboard.panels import EVAL, panels
from forerun.dashboard.run_view import RunView
from forerun.watch.report import Report

MAX_EVENTS = 200  # assumed: newest ones on the page; the record holds all
QUIET = ("heartbeat", "sample", "drops")
"""Kinds that have a place of their own, or none."""


def pages(files: LabFiles) -> Iterator[Page]:
    """One page a run, with its rows for scripts."""
    for run in files.runs.values():
        yield Page(path=f"runs/{run.name}.html", title=f"Run {run.name}", content=_content(files, run), files=rows.files_of(run))


def _content(files: LabFiles, run: RunView) -> Any:
    return lambda desk: content(files, run, desk)


def content(files: LabFiles, run: RunView, desk: Desk) -> list[Piece]:
    """The page below its title."""
    report = files.report_of(run)
    return [
        tag("div", data_run=run.name, data_rows=rows.place(run), class_="run-place"),
        region("state", *_state(files, run, report, desk)),
        tag("h2", "Figures"),
        tag(
            "p",
            desk.link("every recorded row (Parquet index)", rows.index_path(run)),
            ". ",
            tag("span", data_live_note=True),
            class_="links",
        ),
        tag("div", *(desk.draw(figure) for figure in panels(files, run)), class_="figures"),
        region("checks", *_checks(report), *_causes(report)),
        region("lineage", *_lineage(run, desk)),
        region("samples", *_samples(run)),
    ]


def _state(files: LabFiles, run: RunView, report: Report, desk: Desk) -> list[Piece]:
    model, train = run.config.get("model", {}), run.config.get("train", {})
    plan = files.plan_of(run)
    promise = files.promise_of(run)
    facts = [desk.fact("done", run.done, "fraction_done", f"{run.done:.0%}")] if run.done is not None else []
    if plan:
        facts += [
            desk.fact("parameters", plan["num_params"], "num_params", units.count(plan["num_params"])),
            desk.fact("active parameters", plan["num_active_params"], "num_active_params", units.count(plan["num_active_params"])),
            desk.fact("compute", plan["train_flops"], "train_flops", units.flops(plan["train_flops"])),
            desk.fact("tokens", plan["train_tokens"], "train_tokens", units.count(plan["train_tokens"])),
        ]
    shape = ", ".join(f"{name} {model[name]}" for name in ("d_model", "num_layers", "num_experts", "top_k") if name in model)
    length = f"{train.get('num_steps')} steps of {train.get('batch_size')} x {train.get('seq_len')} tokens" if train else ""
    rungs = files.rungs_of(files.forecast_for(run))
    return [
        paragraph(
            state(report.state),
            *place(report.step, run.info.num_steps),
            sentence(f": {report.reason}." if report.reason else ".", EVAL),
            class_="lead",
        ),
        tag("dl", *facts, class_="facts") if facts else "",
        paragraph(tag("span", "; ".join(part for part in (shape, length) if part), title=hover("config_field"))) if shape or length else "",
        paragraph("Promised as ", desk.link(promise.name, f"experiments/{promise.name}.html"), f" ({promise.id}).")
        if promise
        else paragraph(state("off_course", "Unregistered"), ": this run was started without a promise."),
        paragraph("Judged with its rungs ", ", ".join(rung.name for rung in rungs), ".") if rungs else "",
    ]


def _checks(report: Report) -> list[Piece]:
    items = [(item.item, state(item.state), _value(item.value), item.rule, item.evidence) for item in report.checklist]
    alarms = [
        (
            finding.rule.replace("_", " "),
            state(finding.state),
            _value(finding.value),
            _limits(finding.low, finding.high),
            number(finding.false_alarm_rate, "false_alarm_rate", f"{finding.false_alarm_rate:.1%}"),
            finding.evidence,
        )
        for finding in report.findings
    ]
    return [
        tag("h2", "Health checklist"),
        table(["item", "state", "value", "rule", "evidence"], items, caption="Twelve checks of the newest evaluation"),
        tag("h2", "Alarms"),
        table(
            ["rule", "state", "value", "limits", "false-alarm rate, tested", "evidence"],
            alarms,
            caption="Every rule, what it saw, and how often it cries wolf on healthy runs",
        ),
    ]


def _value(value: float) -> Piece:
    return number(value, "evidence") if math.isfinite(value) else "–"


def _limits(low: float, high: float) -> Piece:
    low_shown, high_shown = (f"{value:.4g}" if math.isfinite(value) else "" for value in (low, high))
    if not low_shown and not high_shown:
        return "–"
    shown = (
        f"{low_shown} to {high_shown}" if low_shown and high_shown else f"at least {low_shown}" if low_shown else f"at most {high_shown}"
    )
    return number(high if high_shown else low, "evidence", shown)


def _causes(report: Report) -> list[Piece]:
    causes = [
        (
            cause.cause,
            number(cause.confidence, "confidence", f"{cause.confidence:.0%}"),
            "; ".join(cause.evidence_for),
            "; ".join(cause.evidence_against),
            cause.precedent,
            cause.next_measurement,
        )
        for cause in report.diagnosis
    ]
    heads = ["cause", "confidence", "for", "against", "what others did", "next measurement"]
    return [tag("h2", "Likely causes"), table(heads, causes, caption="Diagnosis, the likeliest first")] if causes else []


def _lineage(run: RunView, desk: Desk) -> list[Piece]:
    segments = [
        (
            number(segment.first_step, "step"),
            segment.changed or ("start" if index == 0 else "restart"),
            segment.kind,
            segment.run_id,
            segment.commit,
            _when(segment.time),
        )
        for index, segment in enumerate(run.info.segments)
    ]
    told = [event for event in run.events() if event["kind"] not in QUIET]
    events = [
        (
            number(event["step"], "step"),
            event["kind"],
            ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("kind", "step", "time", "segment")),
            _when(event["time"]),
        )
        for event in told[-MAX_EVENTS:]
    ]
    more = f", the newest {MAX_EVENTS} of {len(told)}" if len(told) > MAX_EVENTS else ""
    versions = [(name, version) for name, version in sorted(run.info.versions.items())]
    return [
        tag("h2", "Lineage"),
        table(["from step", "change", "kind", "logged as", "commit", "time"], segments, caption="Segments of the run"),
        table(["package", desk.term("version", "version")], versions, caption="Trained with") if versions else "",
        tag("h2", "Events"),
        table(["step", "event", "details", "time"], events, caption=f"Events{more}"),
    ]


def _samples(run: RunView) -> list[Piece]:
    """What the model wrote, newest first, by prompt."""
    samples = run.events("sample")
    if not samples:
        return []
    parts: list[Piece] = [tag("h2", "Samples of text")]
    for prompt in dict.fromkeys(str(sample.get("prompt", "")) for sample in samples):
        texts = [sample for sample in samples if str(sample.get("prompt", "")) == prompt]
        newest, older = texts[-1], texts[:-1][::-1][:10]
        parts.append(tag("h3", "After “", prompt, "”"))
        parts.append(tag("p", "At step ", number(newest["step"], "step"), ":"))
        parts.append(tag("pre", str(newest.get("text", "")), tabindex="0"))
        if older:
            shown = [
                piece
                for sample in older
                for piece in (
                    tag("p", "At step ", number(sample["step"], "step"), ":"),
                    tag("pre", str(sample.get("text", "")), tabindex="0"),
                )
            ]
            parts.append(tag("details", tag("summary", f"{len(older)} earlier"), *shown))
    return parts


def _when(seconds: Any) -> str:
    if seconds == 0:  # a foreign run whose rows carry no time
        return ""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError, TypeError):
        return ""
