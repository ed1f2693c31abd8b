"""How evenly a run's experts work: load and drops by layer over the run, by expert at its evaluations, and by both at the newest."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from forerun.dashboard.heat import HeatMap
from forerun.dashboard.run_view import RunView

NUM_COLUMNS = 24  # assumed: stretches of a heat map that still have room for a number in the table
MOST_EXPERTS = 64  # assumed: columns one can still tell apart; more experts share them, neighbours together
NUM_EVENTS = 12  # assumed: evaluations shown of the many there are, evenly spread
LAYER = re.compile(r"(load_imbalance|drop_fraction)/layer_(\d+)")


def layer_maps(run: RunView) -> list[HeatMap]:
    """Load balance and drops by layer over the run."""
    wanted = {
        "load_imbalance": (
            "balance",
            "most loaded expert over the mean",
            "Layer {layer} is the least balanced: {value:.2f} times the mean at the end",
        ),
        "drop_fraction": ("drops", "share of assignments dropped", "Layer {layer} drops the most at the end: {value:.2%}"),
    }
    maps = []
    for metric, (key, label, finding) in wanted.items():
        names = sorted((name for name in run.metrics() if (match := LAYER.fullmatch(name)) and match[1] == metric), key=layer_of)
        series = [run.series(name) for name in names]
        if not any(len(one) for one in series):
            continue
        edges = _edges(run)
        values = [_means(one.step, one.value, edges) for one in series]
        ends = [next((value for value in reversed(row) if math.isfinite(value)), 0.0) for row in values]
        worst = int(np.argmax(ends))
        title = finding.format(layer=layer_of(names[worst]), value=ends[worst])
        if metric == "drop_fraction" and max(ends) == 0:
            title = "No layer drops anything at the end"
        maps.append(
            HeatMap(
                key=key,
                title=title,
                x_label="step",
                y_label=label,
                columns=[str(int(edge)) for edge in edges[1:]],
                rows=[f"layer {layer_of(name)}" for name in names],
                values=values,
                term=metric,
                low=1.0 if metric == "load_imbalance" else 0.0,
            )
        )
    return maps


def expert_maps(run: RunView) -> list[HeatMap]:
    """Load and drops of every expert, summed over layers, between evaluations: what `drops` events count."""
    events = [event for event in run.events("drops") if _counts(event)]
    events = [events[index] for index in sorted({round(place) for place in np.linspace(0, len(events) - 1, NUM_EVENTS)})] if events else []
    if not events:
        return []
    valid = [np.asarray(event["valid_by_expert"], np.float64) for event in events]
    dropped = [np.asarray(event["dropped_by_expert"], np.float64) for event in events]
    loads = [row / max(row.mean(), 1e-9) for row in valid]
    shares = [lost / np.maximum(all_, 1.0) for lost, all_ in zip(dropped, valid)]
    columns, rows = [str(expert) for expert in range(len(valid[0]))], [f"step {event['step']}" for event in events]
    busiest, worst = int(np.argmax(loads[-1])), int(np.argmax(shares[-1]))
    maps = [
        *_layers_by_experts(events[-1]),
        HeatMap(
            key="expert-load",
            title=f"Expert {busiest} has {loads[-1][busiest]:.2f} times the mean load at step {events[-1]['step']}; expert {int(np.argmin(loads[-1]))} {loads[-1].min():.2f}",
            x_label="expert, all layers together",
            y_label="load over the mean",
            columns=columns,
            rows=rows,
            values=[row.tolist() for row in loads],
            term="load_over_mean",
            low=0.0,
        ),
    ]
    if any(lost.any() for lost in dropped):
        maps.append(
            HeatMap(
                key="expert-drops",
                title=f"Expert {worst} loses the largest share of what it is sent: {shares[-1][worst]:.2%} before step {events[-1]['step']}",
                x_label="expert, all layers together",
                y_label="share dropped",
                columns=columns,
                rows=rows,
                values=[row.tolist() for row in shares],
                term="drop_fraction",
                low=0.0,
            )
        )
    return maps


def _layers_by_experts(event: dict[str, Any]) -> list[HeatMap]:
    """Drops, and load, of every expert in every layer since the evaluation before; neighbours share a column where there are many."""
    valid, dropped = (_table(event.get(f"{what}_by_layer_and_expert")) for what in ("valid", "dropped"))
    if valid is None or dropped is None or valid.shape != dropped.shape:
        return []
    num_experts = valid.shape[1]
    width = math.ceil(num_experts / MOST_EXPERTS)
    starts = np.arange(0, num_experts, width)
    valid, dropped = (np.add.reduceat(counts, starts, axis=1) for counts in (valid, dropped))
    lasts = [min(first + width, num_experts) - 1 for first in starts.tolist()]
    columns = [str(last) if first == last else f"{first}-{last}" for first, last in zip(starts.tolist(), lasts)]
    rows = [f"layer {layer}" for layer in range(len(valid))]
    shares, loads = dropped / np.maximum(valid, 1), valid / np.maximum(valid.mean(1, keepdims=True), 1e-9)
    (layer, expert), (busy, most) = (np.unravel_index(int(np.argmax(values)), values.shape) for values in (shares, loads))
    common = {"x_label": "expert" if width == 1 else "experts", "columns": columns, "rows": rows, "low": 0.0}
    maps = [
        HeatMap(
            key="layer-expert-load",
            title=f"Expert {columns[most]} of layer {busy} is the busiest: {loads[busy, most]:.2f} times its layer's mean before step {event['step']}",
            y_label="load over the layer's mean",
            values=loads.tolist(),
            term="load_over_mean",
            **common,
        )
    ]
    if dropped.any():
        maps.insert(
            0,
            HeatMap(
                key="layer-expert-drops",
                title=f"Expert {columns[expert]} of layer {layer} loses the largest share: {shares[layer, expert]:.2%} before step {event['step']}",
                y_label="share dropped",
                values=shares.tolist(),
                term="drop_fraction",
                **common,
            ),
        )
    return maps


def _table(counts: Any) -> np.ndarray | None:
    """Counts by layer and expert; None for anything else, since any writer may log events of this kind."""
    try:
        table = np.asarray(counts, np.float64)
    except (TypeError, ValueError):
        return None
    return table if table.ndim == 2 and table.size and np.isfinite(table).all() else None


def _counts(event: dict[str, Any]) -> bool:
    """Whether an event has two lists of numbers of one length: any writer may log events of this kind."""
    lists = [event.get(name) for name in ("valid_by_expert", "dropped_by_expert")]
    return all(isinstance(one, list) and one and all(isinstance(value, int | float) for value in one) for one in lists) and len(
        lists[0] or ()
    ) == len(lists[1] or ())


def layer_of(name: str) -> int:
    """The layer in a metric's name, -1 when it names none."""
    match = re.search(r"layer_(\d+)", name)
    return int(match[1]) if match else -1


def _edges(run: RunView) -> np.ndarray:
    last = max(run.last_step, 1)
    return np.unique(np.linspace(0, last, min(NUM_COLUMNS, last) + 1).astype(np.int64))


def _means(step: np.ndarray, value: np.ndarray, edges: np.ndarray) -> list[float]:
    """Mean of the finite values in each stretch `(edge, next edge]`; NaN where there is none."""
    keep = np.isfinite(value)
    place = np.searchsorted(edges, step[keep], side="left") - 1
    inside = (place >= 0) & (place < len(edges) - 1)
    total = np.bincount(place[inside], value[keep][inside], len(edges) - 1)
    count = np.bincount(place[inside], minlength=len(edges) - 1)
    return [float(t / c) if c else math.nan for t, c in zip(total, count)]
