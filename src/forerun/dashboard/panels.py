"""The figures of one run: each says what was found in its title, with the numbers of this run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.base import units
from forerun.base.chart import Band, Chart, Line, Mark
from forerun.dashboard.figure import Figure, Source
from forerun.dashboard.heat import HeatMap
from forerun.dashboard.lab_files import LabFiles
from forerun.dashboard.points import thinned
from forerun.dashboard.routing_panels import expert_maps, layer_maps, layer_of
from forerun.dashboard.run_view import RunView
from forerun.watch.case import finite

EVAL = "eval/macro_loss_nats"
MAX_LINES = 6
TOKENS = "nats per token"

Drawn = Figure | HeatMap


def panels(files: LabFiles, run: RunView) -> list[Drawn]:
    """All figures of a run that have data, in reading order."""
    forecast = files.forecast_for(run)
    found = [
        band_figure(run, forecast) if forecast else _held_out(run),
        _loss(run),
        *_domains(files, run),
        *_gradients(files, run),
        *layer_maps(run),
        *expert_maps(run),
        _entropy(run),
        _single(run, "mfu", ["mfu", "mfu_executed", "mfu_useful"], "share of the peak", "MFU"),
        _single(run, "throughput", ["tokens_per_second"], "tokens per second", "Throughput"),
        _single(run, "rates", ["learning_rate", "learning_rate/adam"], "step size", "Learning rate"),
    ]
    return [figure for figure in found if figure is not None]


def band_figure(
    run: RunView | None, forecast: Mapping[str, Any], *, metric: str = EVAL, key: str = "forecast", word: str = "promised"
) -> Figure:
    """The band first, then the outcome on it; `word` says whether the band was promised or only forecast."""
    curve, final = forecast["curve"], forecast["final"]
    num_steps = (run.info.num_steps if run else 0) or forecast["target"]["train_steps"]
    x = [point["fraction"] * 100 for point in curve]
    lines = [Line(x=x, y=[point["loss"] for point in curve], label="forecast")]
    sources: list[Source | None] = [None]
    title = f"{word.capitalize()}: {final['loss']:.3f} at the end, 90% interval {final['low90']:.3f} to {final['high90']:.3f}"
    if run is not None and len(run.series(metric)):
        step, value = thinned(run.series(metric))
        lines.append(Line(x=(100 * step / num_steps).tolist(), y=value.tolist(), label="measured", style=1, marker="circle"))
        sources.append(Source(run=run.name, metric=metric, x_factor=100 / num_steps))
        inside = _inside(curve, step / num_steps, value)
        title = f"{inside[0]} of {inside[1]} evaluations lie inside the {word} 90% band; measured {value[-1]:.3f} at {100 * step[-1] / num_steps:.0f}%"
    bands = [
        Band(x=x, low=[point["low90"] for point in curve], high=[point["high90"] for point in curve], label="90% interval"),
        Band(x=x, low=[point["low50"] for point in curve], high=[point["high50"] for point in curve], label="50% interval"),
    ]
    marks = [Mark(x=100 * mark.x / num_steps, label=mark.label) for mark in _segments(run)] if run else []
    chart = Chart(
        title=title, x_label="share of the run, %", y_label=f"held-out loss, {TOKENS}", bands=bands, lines=lines, marks=marks, log_x=False
    )
    return Figure(key=key, chart=chart, x_term="fraction_done", y_term=metric, sources=sources)


def _inside(curve: Sequence[Mapping[str, float]], fraction: np.ndarray, value: np.ndarray) -> tuple[int, int]:
    """Evaluations inside the 90% band, and those the band speaks about."""
    at = np.array([point["fraction"] for point in curve])
    asked = (fraction >= at[0] * 0.98) & (fraction <= 1 + 1e-9)
    low, high = (np.interp(np.log(fraction[asked]), np.log(at), np.array([point[name] for point in curve])) for name in ("low90", "high90"))
    return int(((value[asked] >= low) & (value[asked] <= high)).sum()), int(asked.sum())


def _segments(run: RunView) -> list[Mark]:
    """Where a stretch of training began, after the first."""
    return [Mark(x=segment.first_step, label=segment.changed or "restart") for segment in run.info.segments[1:]]


def _lines(run: RunView, metrics: Sequence[str]) -> tuple[list[Line], list[Source]]:
    lines, sources = [], []
    for metric in metrics:
        step, value = thinned(run.series(metric))
        if len(step):
            label = metric.removeprefix("eval/").removesuffix("/loss_nats") if metric.startswith("eval/") else metric
            lines.append(Line(x=step.tolist(), y=value.tolist(), label=label, style=len(lines)))
            sources.append(Source(run=run.name, metric=metric))
    return lines, sources


def _of(run: RunView, key: str, metrics: Sequence[str], unit: str, title: str) -> Figure | None:
    lines, sources = _lines(run, metrics)
    if not lines:
        return None
    chart = Chart(title=title, x_label="step", y_label=unit, lines=lines, marks=_segments(run))
    return Figure(key=key, chart=chart, x_term="step", y_term=metrics[0], sources=sources)


def _single(run: RunView, key: str, metrics: Sequence[str], unit: str, what: str) -> Figure | None:
    """One quantity over time: the title says its usual value and how far it strays."""
    value = run.series(metrics[0]).value
    value = value[np.isfinite(value)]
    if not len(value):
        return None
    half = value[len(value) // 2 :]
    usual, spread = float(np.median(half)), float(np.quantile(half, 0.9) - np.quantile(half, 0.1))
    shown = units.count(usual) if key == "throughput" else f"{usual:.3g}"
    moves = "falls to" if key == "rates" else "is usually"
    ending = (
        f"{value[-1]:.3g} at the last step"
        if key == "rates"
        else f"{shown}; the middle 80% of the second half span {units.count(spread) if key == 'throughput' else f'{spread:.2g}'}"
    )
    return _of(run, key, metrics, unit, f"{what} {moves} {ending}")


def _loss(run: RunView) -> Figure | None:
    value = run.series("loss_nats").value
    finite = value[np.isfinite(value)]
    if not len(finite):
        return None
    bad = len(value) - len(finite)
    lost = f"; {bad} steps were not finite" if bad else ""
    tail = finite[-max(1, len(finite) // 20) :]
    title = f"Training loss went from {finite[0]:.3f} to {np.mean(tail):.3f}, mean of the last {len(tail)} steps{lost}"
    return _of(run, "loss", ["loss_nats"], f"training loss, {TOKENS}", title)


def _held_out(run: RunView) -> Figure | None:
    """The evaluations of a run about which nothing was forecast."""
    series = finite(run.series(EVAL))
    if not len(series):
        return None
    title = f"Held-out loss went from {series.value[0]:.3f} to {series.last:.3f} in {units.counted(len(series), 'evaluation')}"
    return _of(run, "held-out", [EVAL], f"held-out loss, {TOKENS}", title)


def _domains(files: LabFiles, run: RunView) -> list[Figure]:
    """All domains together, then each that was promised on its own band."""
    metrics = [name for name in run.metrics() if name.startswith("eval/") and name.endswith("/loss_nats")]
    ends = {metric: run.series(metric).last for metric in metrics}
    metrics = [metric for metric in metrics if math.isfinite(ends[metric])]
    if not metrics:
        return []
    ordered = sorted(metrics, key=lambda metric: ends[metric])
    shown = ordered if len(ordered) <= MAX_LINES else [*ordered[: MAX_LINES // 2], *ordered[-MAX_LINES // 2 :]]
    names = [metric.split("/")[1] for metric in (ordered[0], ordered[-1])]
    title = f"Of {len(ordered)} domains {names[0]} is lowest at {ends[ordered[0]]:.3f}, {names[1]} highest at {ends[ordered[-1]]:.3f}"
    figures = [_of(run, "domains", shown, f"held-out loss, {TOKENS}", title)]
    for metric in metrics:
        forecast = files.domain_forecast(run, metric)
        if forecast:
            figures.append(
                band_figure(
                    run, forecast, metric=metric, word="forecast", key=f"domain-{re.sub(r'[^A-Za-z0-9._-]', '-', metric.split('/')[1])}"
                )
            )
    return [figure for figure in figures if figure is not None]


def _gradients(files: LabFiles, run: RunView) -> list[Figure | None]:
    """By shape and by group; as it was logged where neither can be told."""
    found = [_gradient_shape(files, run), _gradient_groups(run)]
    return found if any(found) else [_single(run, "gradient", ["grad_norm"], "L2 norm", "Gradient norm")]


def _gradient_shape(files: LabFiles, run: RunView) -> Figure | None:
    """The run's gradient norm over progress, beside its rungs', each over its own median: shapes compare, sizes do not."""
    rungs = files.rungs_of(files.forecast_for(run))
    lines, sources = [], list[Source | None]()
    for view in [run, *(rung for rung in rungs if rung is not run)][:MAX_LINES]:
        step, value = thinned(view.series("grad_norm"))
        if not len(step) or not view.info.num_steps:
            continue
        usual = float(np.median(value)) or 1.0
        x = (100 * step / view.info.num_steps).tolist()
        lines.append(Line(x=x, y=(value / usual).tolist(), label=view.name if view is not run else "this run", style=len(lines)))
        sources.append(None)
    if not lines or lines[0].label != "this run":
        return None
    last = lines[0].y[-1]
    ends = [line.y[-1] for line in lines[1:]]
    title = f"Gradient norm ends at {last:.2f} of its own median" + (
        f"; the rungs ended at {min(ends):.2f} to {max(ends):.2f}" if ends else ""
    )
    chart = Chart(title=title, x_label="share of the run, %", y_label="grad_norm over its own median", lines=lines)
    return Figure(key="gradient-shape", chart=chart, x_term="fraction_done", y_term="grad_norm_shape", sources=sources)


def _gradient_groups(run: RunView) -> Figure | None:
    groups = [name for name in run.metrics() if name.startswith("grad_norm/")]
    ends = {name: float(np.median(run.series(name).value[-50:])) for name in groups if len(run.series(name))}
    if not ends:
        return None
    ordered = sorted(ends, key=lambda name: -ends[name])
    title = f"The largest gradients are in {ordered[0].split('/')[1]}: median {ends[ordered[0]]:.3g} over the last steps"
    return _of(run, "gradient-groups", ["grad_norm", *ordered[: MAX_LINES - 1]], "L2 norm", title)


def _entropy(run: RunView) -> Figure | None:
    value = run.series("router_entropy_nats").value
    if not len(value):
        return None
    experts = run.config.get("model", {}).get("num_experts") or 0
    best = math.log(experts) if experts > 1 else math.nan
    layers = sorted((name for name in run.metrics() if name.startswith("router_entropy_nats/layer_")), key=layer_of)
    perfect = f", {value[-1] / best:.0%} of the {best:.2f} of perfect balance" if math.isfinite(best) else ""
    title = f"Router entropy ends at {value[-1]:.2f} nats{perfect}"
    shown = layers if len(layers) < MAX_LINES else [layers[0], layers[len(layers) // 2], layers[-1]]
    return _of(run, "entropy", ["router_entropy_nats", *shown], "nats", title)
