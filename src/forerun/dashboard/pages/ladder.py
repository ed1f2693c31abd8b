"""The ladder: rungs side by side by fraction, the fit, the floor profile, the backtest, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forerun.base import units
from forerun.base.chart import Chart, Line
from forerun.dashboard.backtest import backtest
from forerun.dashboard.desk import Desk, Page
from forerun.dashboard.figure import Figure, Source
from forerun.dashboard.html import Piece, table, tag
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.numbers import number
from forerun.dashboard.page import paragraph
from forerun.dashboard.panels import EVAL
from forerun.dashboard.points import thinned


def pages(files: LabFiles) -> Iterator[Page]:
    """One page, a section a forecast."""
    yield Page(path="ladder.html", title="The ladder", content=lambda desk: content(files, desk))


def content(files: LabFiles, desk: Desk) -> list[Piece]:
    """Every promised forecast's ladder; forecasts from the same rungs are shown once."""
    parts: list[Piece] = []
    seen: set[str] = set()
    for name, forecast in files.forecasts.items():
        about = str(forecast.get("eval", ""))
        if forecast.get("parent") or forecast["inputs_digest"] in seen or (about and not about.startswith(EVAL)):
            continue
        seen.add(forecast["inputs_digest"])
        parts += _section(files, name, forecast, desk)
    return parts or [paragraph("No forecast yet. `forerun forecast` makes one from finished rungs.")]


def _section(files: LabFiles, name: str, forecast: Mapping[str, Any], desk: Desk) -> list[Piece]:
    target = forecast["target"]["train_steps"] * forecast["target"]["compute_per_step"]
    total = sum(use["compute"] for use in forecast["rungs"])
    rows = [
        (
            desk.link(use["rung"], f"runs/{use['rung']}.html") if use["rung"] in files.runs else use["rung"],
            number(use["compute"], "fit_compute", units.flops(use["compute"])),
            number(use["compute"] / target, "compute_fraction", f"{use['compute'] / target:.2%}"),
            number(use["end"], EVAL, f"{use['end']:.4f}"),
            f"inferred, died at {use['last_fraction']:.0%}" if use["inferred"] else "measured",
        )
        for use in forecast["rungs"]
    ]
    noise = forecast.get("seed_noise")
    return [
        tag("h2", f"Forecast {name}"),
        paragraph(
            "Small runs of one recipe, together ",
            number(total / target, "compute_fraction", f"{total / target:.2%}"),
            " of the big run's compute, and what they say about it.",
            class_="lead",
        ),
        tag("div", *(desk.draw(figure) for figure in figures(files, name, forecast)), class_="figures"),
        table(
            [
                "rung",
                desk.term(str(forecast["compute"]), "fit_compute"),
                desk.term("share of the big run", "compute_fraction"),
                "end, nats per token",
                "end",
            ],
            rows,
            caption=f"Rungs of {name}",
        ),
        *_backtest(files, name, forecast),
        paragraph("Noise between seeds: ", number(noise, "seed_noise", f"{noise:.3%}"), " of the loss.")
        if noise is not None
        else paragraph("No rung was repeated, so noise between seeds is not measured."),
        tag("ul", *(tag("li", note) for note in forecast["notes"])) if forecast["notes"] else "",
    ]


def figures(files: LabFiles, name: str, forecast: Mapping[str, Any]) -> list[Figure]:
    """Rungs by fraction, the fit in compute, and how the answer moves with the floor."""
    target = forecast["target"]["train_steps"] * forecast["target"]["compute_per_step"]
    uses = sorted(forecast["rungs"], key=lambda use: use["compute"])
    measured = Line(x=[use["compute"] for use in uses], y=[use["end"] for use in uses], label="rungs at their end", marker="circle")
    promised = Line(x=[target], y=[forecast["final"]["loss"]], label="forecast", style=1, marker="square")
    ends = [Line(x=[target, target], y=[forecast["final"]["low90"], forecast["final"]["high90"]], label="90% interval", style=1)]
    profile = forecast["floor_profile"]
    floors = Line(x=[point["floor"] for point in profile], y=[point["final"] for point in profile], label="forecast of the end")
    believed = [point for point in profile if point["weight"] >= 0.05]
    likely = Line(
        x=[point["floor"] for point in believed],
        y=[point["final"] for point in believed],
        label="5% of belief or more",
        style=1,
        marker="square",
    )
    found = [
        Figure(
            key=f"fit-{name}",
            x_term="fit_compute",
            y_term=EVAL,
            interactive=False,
            chart=Chart(
                title=f"From {uses[0]['end']:.3f} at {units.flops(uses[0]['compute'])} the rungs fall to {min(use['end'] for use in uses):.3f}; {forecast['final']['loss']:.3f} is forecast at {units.flops(target)}",
                x_label=f"{forecast['compute']}, FLOPs, log",
                y_label="held-out loss, nats per token",
                lines=[*ends, measured, promised],
                log_x=True,
            ),
        ),
        Figure(
            key=f"floor-{name}",
            x_term="floor",
            y_term=EVAL,
            interactive=False,
            chart=Chart(
                title=f"The floor moves the answer from {min(floors.y):.3f} to {max(floors.y):.3f}",
                x_label="irreducible loss assumed, nats per token",
                y_label="forecast of the end, nats per token",
                lines=[floors, likely],
            ),
        ),
    ]
    curves, sources = [], list[Source | None]()
    for use in forecast["rungs"]:
        run = files.runs.get(use["rung"])
        if run is None or not run.info.num_steps:
            continue
        step, value = thinned(run.series(EVAL))
        curves.append(Line(x=(100 * step / run.info.num_steps).tolist(), y=value.tolist(), label=run.name, style=len(curves)))
        sources.append(Source(run=run.name, metric=EVAL, x_factor=100 / run.info.num_steps))
    if curves:
        best = min(curves, key=lambda line: line.y[-1] if len(line.y) else float("inf"))
        chart = Chart(
            title=f"At the same share of its own run, {best.label} ends lowest of {len(curves)} rungs",
            x_label="share of the run, %",
            y_label="held-out loss, nats per token",
            lines=curves,
        )
        found.insert(0, Figure(key=f"rungs-{name}", chart=chart, x_term="fraction_done", y_term=EVAL, sources=sources))
    return found


def _backtest(files: LabFiles, name: str, forecast: Mapping[str, Any]) -> list[Piece]:
    """Rungs past the third size, each forecast from the smaller ones alone, by the forecaster's own method."""
    tested = backtest(files, forecast, EVAL)
    if not tested:
        return [paragraph("Fewer than four sizes have run here: no rung can be forecast from three smaller ones, so there is no backtest.")]
    rows = [
        (
            test.rung,
            number(test.final.loss, EVAL, f"{test.final.loss:.4f}"),
            number(test.final.low90, "interval90", f"{test.final.low90:.4f} to {test.final.high90:.4f}"),
            number(test.outcome, EVAL, f"{test.outcome:.4f}"),
            number(1 - test.final.loss / test.outcome, "signed_error", f"{1 - test.final.loss / test.outcome:+.2%}"),
            "inside" if test.held else "outside",
        )
        for test in tested
    ]
    heads = ["rung", "forecast from smaller rungs", "90% interval", "outcome", "error", "interval"]
    held = sum(test.held for test in tested)
    title = f"Backtest: {held} of {len(tested)} rungs end inside the interval forecast from smaller rungs"
    return [tag("h3", title), table(heads, rows, caption=f"Rungs of {name} forecast from smaller ones, size by size")]
