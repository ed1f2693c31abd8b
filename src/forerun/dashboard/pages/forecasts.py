"""Every forecast ever made and how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from forerun.base.chart import Chart, Line
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.figure import Figure
from forerun.dashboard.html import Piece, table
from forerun.dashboard.lab_files import LabFiles, Promise
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph, region
from forerun.watch.band import subject_of


def pages(files: LabFiles) -> Iterator[Page]:
    """One page."""
    yield Page(path="forecasts.html", title="Forecasts and how they ended", content=lambda desk: content(files, desk))


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """The table of all, and a figure of those that have an outcome."""
    if not files.forecasts:
        return [paragraph("No forecast yet. `forerun forecast` makes one from finished rungs.")]
    rows = [_row(files, name, forecast, desk) for name, forecast in files.forecasts.items()]
    heads = ["forecast", "of", "method", "compute", "end", "90% interval", "seen before", "promised as", "outcome", "error", "inside 90%"]
    figure = _figure(files)
    return [
        *([desk.draw(figure)] if figure else []),
        region("forecasts", table(heads, rows, caption="All forecasts of this lab")),
    ]


def _promise_of(files: LabFiles, name: str) -> Promise | None:
    return next(
        (promise for promise in files.promises if promise.text["prediction"].get("forecast", "").removesuffix(".json") == name), None
    )


def _outcome(files: LabFiles, name: str, forecast: Mapping[str, Any]) -> float | None:
    """What the run it was about ended at: the verdict's, or the last evaluation of a finished run of the same length."""
    promise = _promise_of(files, name)
    if promise and promise.verdict:
        return promise.verdict.get("outcome")
    metric = subject_of(forecast)
    targets = [files.run_of(other) for other in files.promises if _same_target(files.forecast_of(other), forecast)]
    for run in targets:
        if run is not None and run.done == 1 and math.isfinite(run.series(metric).last):
            return run.series(metric).last
    return None


def _same_target(one: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    return one is not None and one["target"] == other["target"]


def _row(files: LabFiles, name: str, forecast: Mapping[str, Any], desk: Desk) -> tuple[Piece, ...]:
    promise, final, outcome = _promise_of(files, name), forecast["final"], _outcome(files, name, forecast)
    error = None if outcome is None else (outcome - final["loss"]) / outcome
    inside = "" if outcome is None else "yes" if final["low90"] <= outcome <= final["high90"] else "no"
    seen = forecast.get("seen_fraction", 0.0)
    return (
        name,
        str(forecast.get("eval", "")),
        str(forecast["method"]),
        str(forecast["compute"]),
        number(final["loss"], "macro_loss_nats", f"{final['loss']:.4f}"),
        number(final["low90"], "interval90", f"{final['low90']:.4f} to {final['high90']:.4f}"),
        number(seen, "fraction_done", f"{seen:.0%} of the run") if seen else "nothing",
        desk.link(promise.name, f"experiments/{promise.name}.html") if promise else "–",
        number(outcome, "macro_loss_nats", f"{outcome:.4f}") if outcome is not None else "open",
        number(error, "signed_error", f"{error:+.2%}") if error is not None else "",
        inside,
    )


def _figure(files: LabFiles) -> Figure | None:
    scored = [
        (name, forecast, outcome) for name, forecast in files.forecasts.items() if (outcome := _outcome(files, name, forecast)) is not None
    ]
    if not scored:
        return None
    held = sum(forecast["final"]["low90"] <= outcome <= forecast["final"]["high90"] for _, forecast, outcome in scored)
    lines = []
    for index, (_, forecast, outcome) in enumerate(scored, start=1):
        low, high = (100 * (forecast["final"][side] / outcome - 1) for side in ("low90", "high90"))
        label = "90% interval" if index == 1 else f"90% interval {index}"
        lines.append(Line(x=[index, index], y=[low, high], label=label, style=0))
    ends = [100 * (forecast["final"]["loss"] / outcome - 1) for _, forecast, outcome in scored]
    points = Line(x=list(range(1, len(scored) + 1)), y=ends, label="forecast", style=1, marker="square")
    zero = Line(x=[0.5, len(scored) + 0.5], y=[0, 0], label="outcome", style=2)
    chart = Chart(
        title=f"{held} of {len(scored)} scored forecasts held the outcome in their 90% interval",
        x_label="forecast, in the order of the table",
        y_label="above the outcome, %",
        lines=[points, zero, *lines],
    )
    return Figure(key="scored", chart=chart, x_term="place", y_term="signed_error", interactive=False)
