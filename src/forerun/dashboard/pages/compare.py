"""Compare: runs on one figure, aligned by fraction, tokens or compute; every series stitched over its segments by the same rules."""

from __future__ import annotations

import json
from collections.abc import Iterator

from forerun.base import units
from forerun.base.chart import Chart, Line
from forerun.dashboard import rows
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.figure import Figure, Source
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import hover_of_metric, number, percent
from forerun.dashboard.page import paragraph
from forerun.dashboard.panels import EVAL
from forerun.dashboard.points import thinned

INDEX = "compare.json"
MOST_DRAWN = 12  # assumed: lines one can follow; each of six styles twice. With scripts any runs are chosen


def pages(files: LabFiles) -> Iterator[Page]:
    """One page and the list its script reads."""
    yield Page(
        path="compare.html",
        title="Compare runs",
        content=lambda desk: content(files, desk),
        scripts=("compare",),
        files={INDEX: lambda: _index(files)},
    )


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """By fraction without a script; with one, any metric of any runs by fraction, tokens or compute."""
    if not files.runs:
        return [paragraph("No run yet.")]
    figure = _figure(files)
    lines = []
    for run in files.runs.values():
        plan = files.plan_of(run) or {}
        tokens, compute = plan.get("train_tokens"), plan.get("fit_compute")
        lines.append(
            (
                desk.link(run.name, f"runs/{run.name}.html"),
                percent(run.done, "fraction_done"),
                number(tokens, "train_tokens", units.count(tokens)) if tokens else "–",
                number(compute, "fit_compute", units.flops(compute)) if compute else "–",
                number(run.series(EVAL).last, EVAL),
            )
        )
    heads = ["run", desk.term("done", "fraction_done"), "tokens", "compute without the head", "held-out loss, nats per token"]
    return [
        paragraph("Steps that a restart trained again count once; a declared change is part of its run."),
        tag("div", id="compare", data_index=desk.address(INDEX)),
        *([desk.draw(figure)] if figure else []),
        table(heads, lines, caption="Runs at their newest evaluation"),
    ]


def _figure(files: LabFiles) -> Figure | None:
    lines, sources = [], []
    newest = sorted(files.runs.values(), key=lambda run: run.info.created, reverse=True)[:MOST_DRAWN]
    for run in sorted(newest, key=lambda run: run.name):
        step, value = thinned(run.series(EVAL))
        if len(step) and run.info.num_steps:
            factor = 100 / run.info.num_steps
            lines.append(Line(x=(factor * step).tolist(), y=value.tolist(), label=run.name, style=len(lines)))
            sources.append(Source(run=run.name, metric=EVAL, x_factor=factor))
    if not lines:
        return None
    lowest = min(lines, key=lambda line: line.y[-1])
    chart = Chart(
        title=f"{lowest.label} is lowest of {len(lines)} runs, at {lowest.y[-1]:.3f}",
        x_label="share of the run, %",
        y_label="held-out loss, nats per token",
        lines=lines,
    )
    return Figure(key="runs", chart=chart, x_term="fraction_done", y_term=EVAL, sources=sources)


def _index(files: LabFiles) -> bytes:
    """Per run what turns steps into fractions, tokens and compute."""
    entries = []
    for run in files.runs.values():
        plan = files.plan_of(run) or {}
        steps = plan.get("num_steps") or 0
        entries.append(
            {
                "run": run.name,
                "num_steps": run.info.num_steps or None,
                "tokens_per_step": plan["batch_tokens"] if steps else None,
                "compute_per_step": plan["fit_compute"] / steps if steps else None,
                "metrics": [metric for metric in run.metrics() if len(run.series(metric))],
                "rows": rows.index_path(run),
            }
        )
    logged = sorted({metric for entry in entries for metric in entry["metrics"]})
    words = {name: hover_of_metric(name) for name in ("fraction_done", "train_tokens", "fit_compute", "step", *logged)}
    return json.dumps({"schema": 1, "runs": entries, "words": words}).encode()
