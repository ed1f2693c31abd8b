"""One run: its loss against the promised band, evaluations by domain, gradients, routing, speed, events, lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.base import units
from forerun.dashboard.figure import Band, Figure, Line
from forerun.dashboard.html import Markup, table, tag
from forerun.dashboard.page import paragraph, state
from forerun.record.reader import JournalRecord
from forerun.watch.report import Report

EVAL = "eval/macro_loss_nats"
POINTS = 400
"""Points drawn of a long series; the record holds them all."""


def band_figure(run: JournalRecord | None, forecast: Mapping[str, Any], num_steps: int) -> Figure:
    """The promised band first, then the outcome on it."""
    curve = forecast["curve"]
    fractions = [point["fraction"] * 100 for point in curve]
    lines = [Line(x=fractions, y=[point["loss"] for point in curve], label="forecast", style=0)]
    title = f"Promised: {forecast['final']['loss']:.3f} at the end, 90% interval {forecast['final']['low90']:.3f} to {forecast['final']['high90']:.3f}"
    if run is not None:
        series = run.series(EVAL)
        if len(series.value):
            percent = [100 * step / num_steps for step in series.step]
            lines.append(Line(x=percent, y=series.value.tolist(), label="measured", style=1, marker="circle"))
            title += f"; measured {series.value[-1]:.3f} at {percent[-1]:.0f}%"
    band = Band(x=fractions, low=[point["low90"] for point in curve], high=[point["high90"] for point in curve], label="90% interval")
    return Figure(title=title, x_label="share of the run, %", y_label="held-out loss, nats per token", bands=[band], lines=lines)


def figures(run: JournalRecord) -> dict[str, Figure]:
    """The figures of a run by file name; those without data are left out."""
    wanted = {
        "loss": ("training loss", "nats per token", ["loss_nats"]),
        "domains": (
            "held-out loss by domain",
            "nats per token",
            sorted(name for name in run.metrics() if name.startswith("eval/") and name.endswith("/loss_nats"))[:6],
        ),
        "gradients": ("gradient norm by parameter group", "L2 norm", [name for name in run.metrics() if name.startswith("grad_norm")][:6]),
        "balance": (
            "most loaded expert over the mean, by layer; 1 is perfect",
            "load_imbalance",
            [name for name in run.metrics() if name.startswith("load_imbalance/")][:6],
        ),
        "entropy": ("entropy of the mean routing distribution", "nats", ["router_entropy_nats"]),
        "rates": ("learning rates", "step size", ["learning_rate", "learning_rate/adam"]),
        "speed": ("throughput", "tokens per second", ["tokens_per_second"]),
    }
    found = {}
    for name, (what, unit, metrics) in wanted.items():
        lines = [line for index, metric in enumerate(metrics) if (line := _line(run, metric, index)) is not None]
        if lines:
            ends = f"{lines[0].label} {lines[0].y[0]:.3g} to {lines[0].y[-1]:.3g}"
            found[name] = Figure(title=f"{what.capitalize()}: {ends}", x_label="step", y_label=unit, lines=lines)
    return found


def _line(run: JournalRecord, metric: str, style: int) -> Line | None:
    series = run.series(metric)
    if not len(series.value):
        return None
    edges = np.linspace(0, len(series.value), min(POINTS, len(series.value)) + 1).astype(int)
    pieces = [slice(a, b) for a, b in zip(edges, edges[1:]) if b > a]
    return Line(
        x=[float(series.step[piece].mean()) for piece in pieces],
        y=[float(np.mean(series.value[piece])) for piece in pieces],
        label=metric.removeprefix("eval/").removesuffix("/loss_nats") if metric.startswith("eval/") else metric,
        style=style,
    )


def content(run: JournalRecord, config: Mapping[str, Any], report: Report, drawn: list[Markup]) -> list[Markup]:
    """The page below its title."""
    info = run.info
    promise = paragraph(
        "Promised as ", tag("a", info.experiment, href=f"../experiments/{info.experiment}.html"), f" ({info.registration_id})."
    )
    rows = [(finding.rule, state(finding.state), finding.evidence) for finding in report.findings]
    checks = [(item.item, state(item.state), item.rule, item.evidence) for item in report.checklist]
    causes = [
        (cause.cause, f"{cause.confidence:.0%}", "; ".join(cause.evidence_for), cause.precedent, cause.next_measurement)
        for cause in report.diagnosis
    ]
    model, train = config.get("model", {}), config.get("train", {})
    shape = (
        f"d_model {model.get('d_model')}, {model.get('num_layers')} layers, {model.get('num_experts')} experts, top_k {model.get('top_k')}"
    )
    length = f"{train.get('num_steps')} steps of {train.get('batch_size')} x {train.get('seq_len')} tokens"
    events = [
        (
            event["step"],
            event["kind"],
            ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("kind", "step", "time", "segment")),
        )
        for event in run.events()
    ]
    segments = [(segment.first_step, segment.changed or "start or restart", segment.commit) for segment in info.segments]
    return [
        paragraph(state(report.state), f" at step {run.last_step:,} of {info.num_steps:,}.", class_="lead"),
        paragraph(shape, "; ", length, "."),
        promise if info.registration_id else paragraph(state("off_course", "Unregistered"), ": this run was started without a promise."),
        *drawn,
        tag("h2", "Health checklist"),
        table(["item", "state", "rule", "evidence"], checks, caption="Twelve checks of the newest evaluation"),
        tag("h2", "Every rule"),
        table(["rule", "state", "evidence"], rows, caption="Alarms and what they saw"),
        *(
            [
                tag("h2", "Likely causes"),
                table(["cause", "confidence", "for", "what others did", "next measurement"], causes, caption="Diagnosis"),
            ]
            if causes
            else []
        ),
        tag("h2", "Lineage and events"),
        table(["from step", "change", "commit"], segments, caption="Segments of the run"),
        table(["step", "event", "details"], events, caption="Events"),
    ]


def summary_row(run: JournalRecord) -> tuple:
    """One line about a run for lists."""
    series = run.series(EVAL)
    done = max(run.last_step, 0) / max(run.info.num_steps, 1)
    loss = f"{series.value[-1]:.4f}" if len(series.value) else ""
    speed = run.series("tokens_per_second").value
    link = tag("a", run.info.run_id, href=f"runs/{run.info.run_id}.html")
    label = run.info.registration_id or state("off_course", "unregistered")
    return link, label, f"{done:.0%}", loss, units.count(float(np.median(speed))) if len(speed) else ""
