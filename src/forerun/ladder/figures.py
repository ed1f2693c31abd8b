"""The figures of a forecast: its band with outcomes on it, its floor profile, its backtest. Each SVG lies beside its CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forerun.base.chart import Band, Chart, Line
from forerun.base.files import write_atomic
from forerun.ladder.answer import Forecast


def draw_forecast(forecast: Forecast, folder: Path, *, outcome: tuple[np.ndarray, np.ndarray] | None = None) -> list[Path]:
    """Write `forecast.svg`, `floor_profile.svg`, with four sizes or more `backtest.svg`, and their CSVs.

    Args:
        outcome: (steps, losses) of the run itself, drawn on the band.
    Returns: the paths of the SVGs.
    """
    drawn = [_band_figure(forecast, folder, outcome), _floor_figure(forecast, folder)]
    return [*drawn, _backtest_figure(forecast, folder)] if forecast.backtest else drawn


def write_figure(folder: Path, name: str, chart: Chart, footer: str, header: str, rows: Sequence[Sequence[float | str]]) -> Path:
    """One SVG and the numbers it was drawn from, under the same name."""
    table = "\n".join([header, *(",".join(f"{cell:.8g}" if isinstance(cell, float) else str(cell) for cell in row) for row in rows), ""])
    write_atomic(folder / f"{name}.csv", table.encode())
    write_atomic(folder / f"{name}.svg", chart.file(footer).encode())
    return folder / f"{name}.svg"


def _band_figure(forecast: Forecast, folder: Path, outcome: tuple[np.ndarray, np.ndarray] | None) -> Path:
    curve = forecast.curve
    x = [point.fraction * 100 for point in curve]
    lines = [Line(x=x, y=[point.loss for point in curve], label="forecast")]
    rows: list[tuple[float | str, ...]] = [
        ("forecast", point.fraction, point.loss, point.low90, point.high90, point.low50, point.high50) for point in curve
    ]
    finding = f"final {forecast.final.loss:.3f}, 90% between {forecast.final.low90:.3f} and {forecast.final.high90:.3f}"
    if outcome is not None:
        fractions = outcome[0] / forecast.target.train_steps
        seen = fractions >= curve[0].fraction * 0.98
        at, losses = fractions[seen], outcome[1][seen]
        bands = [forecast.band_at(min(float(value), 1.0)) for value in at]
        inside = sum(band.low90 <= loss <= band.high90 for band, loss in zip(bands, losses))
        finding = f"{inside} of {len(losses)} evaluations inside the 90% band"
        lines.append(Line(x=list(at * 100), y=list(losses), label="outcome", style=1, marker="circle"))
        rows += [("outcome", float(value), float(loss), "", "", "", "") for value, loss in zip(at, losses)]
    chart = Chart(
        title=f"Forecast from {len(forecast.rungs)} rungs: {finding}",
        x_label="progress of the run, percent of steps",
        y_label=f"{forecast.eval}, as the rungs were measured",
        bands=[
            Band(x=x, low=[point.low90 for point in curve], high=[point.high90 for point in curve], label="90%"),
            Band(x=x, low=[point.low50 for point in curve], high=[point.high50 for point in curve], label="50%"),
        ],
        lines=lines,
    )
    return write_figure(
        folder, "forecast", chart, _footer(forecast, "forecast.csv"), "series,fraction,loss,low90,high90,low50,high50", rows
    )


def _floor_figure(forecast: Forecast, folder: Path) -> Path:
    profile = forecast.floor_profile
    finals = [point.final for point in profile]
    chart = Chart(
        title=f"The final loss moves from {min(finals):.3f} to {max(finals):.3f} with the floor",
        x_label="floor (irreducible loss), same unit",
        y_label=f"final {forecast.eval}",
        lines=[
            Line(x=[point.floor for point in profile], y=finals, label="final if the floor were this"),
            Line(
                x=[point.floor for point in profile if point.weight >= 0.05],
                y=[point.final for point in profile if point.weight >= 0.05],
                label="holds 5% of belief or more",
                style=1,
                marker="square",
            ),
        ],
    )
    rows = [(point.floor, point.final, point.weight) for point in profile]
    return write_figure(folder, "floor_profile", chart, _footer(forecast, "floor_profile.csv"), "floor,final,belief", rows)


def _backtest_figure(forecast: Forecast, folder: Path) -> Path:
    """Relative to the forecast, so that rungs of any loss share one axis."""
    tested = forecast.backtest
    order = [float(index + 1) for index in range(len(tested))]
    held = sum(each.low90 <= each.outcome <= each.high90 for each in tested)
    chart = Chart(
        title=f"Backtest: {held} of {len(tested)} rungs end inside the 90% interval forecast from smaller rungs",
        x_label="rungs past the third size, by compute",
        y_label="end over its forecast, percent",
        bands=[
            Band(
                x=order,
                low=[100 * each.low90 / each.loss for each in tested],
                high=[100 * each.high90 / each.loss for each in tested],
                label="90%",
            )
        ],
        lines=[
            Line(x=order, y=[100.0] * len(tested), label="forecast"),
            Line(x=order, y=[100 * each.outcome / each.loss for each in tested], label="outcome", style=1, marker="circle"),
        ],
    )
    rows = [(each.rung, each.distance, each.loss, each.low90, each.high90, each.outcome) for each in tested]
    return write_figure(
        folder, "backtest", chart, _footer(forecast, "backtest.csv"), "rung,log_distance,forecast,low90,high90,outcome", rows
    )


def _footer(forecast: Forecast, data_file: str) -> str:
    seeds = "seed noise measured" if forecast.seed_noise is not None else "no repeated rung"
    return f"{data_file} · n = {len(forecast.rungs)} rungs, {seeds} · compute: {forecast.compute} · forecast {forecast.id}"
