"""Contingency: another data mix from some step on, in numbers a person can decide on: how often each cell will have been read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.base.errors import RegistryError


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """One cell before and after the change."""

    cell: str
    weight: float
    """Share of the tokens still to come, as planned."""
    new_weight: float
    exposure: float
    """Epochs over the whole run, as planned."""
    new_exposure: float
    over_cap: bool
    """Whether the new exposure passes `data.epoch_cap`: the trainer would refuse it."""


@dataclass(frozen=True, kw_only=True)
class Remix:
    """What another mix from a step on means."""

    start_fraction: float
    """Of the planned length, as `data.mixture` counts it."""
    cells: tuple[CellChange, ...]
    """Those that change, the largest change of exposure first."""
    epoch_cap: float
    mixture: tuple[dict[str, Any], ...]
    """The phases to put into `data.mixture`."""


def remix(config: dict[str, Any], manifest: dict[str, Any], weights: Mapping[str, float], *, step: int, new_num_steps: int) -> Remix:
    """Arithmetic of reading cells with `weights` from `step` on, in a run that ends at `new_num_steps`.

    Args:
        config: the frozen run config as plain data.
        manifest: of its data.
        weights: by cell; cells left out get none.
    Raises: RegistryError for an unknown cell, a weight below 0, or weights that do not sum to 1.
    """
    available = {cell["name"]: cell["num_tokens"] for cell in manifest["cells"] if cell.get("split", "train") == "train"}
    for cell, weight in weights.items():
        if cell not in available:
            raise RegistryError(
                f"mixture names cell {cell!r}, which the data does not have", hint=f"cells: {', '.join(sorted(available)[:6])}, ..."
            )
        if not (math.isfinite(weight) and weight >= 0):
            raise RegistryError(f"mixture weight of {cell!r} must not be negative, got {weight}", hint="leave the cell out instead")
    if abs(sum(weights.values()) - 1) > 1e-6:
        raise RegistryError(f"mixture weights must sum to 1, got {sum(weights.values()):.6g}", hint="divide each weight by their sum")
    train, data = config["train"], config["data"]
    batch_tokens = train["batch_size"] * train["seq_len"]
    planned = config["optim"]["schedule"].get("planned_steps") or train["num_steps"]  # phases are fractions of the first planned length
    whole = sum(available.values())
    phases = [dict(phase) for phase in data.get("mixture", ())] or [
        {"start_fraction": 0.0, "weights": {name: num / whole for name, num in available.items()}}
    ]
    start = step / planned
    changed = [phase for phase in phases if phase["start_fraction"] < start] + [{"start_fraction": start, "weights": dict(weights)}]
    before = _read(phases, planned, train["num_steps"] * batch_tokens, batch_tokens)
    after = _read(changed, planned, new_num_steps * batch_tokens, batch_tokens)
    now = max((phase for phase in phases if phase["start_fraction"] <= start), key=lambda phase: phase["start_fraction"])["weights"]
    cap = data.get("epoch_cap", math.inf)
    rows = [
        CellChange(
            cell=name,
            weight=now.get(name, 0.0),
            new_weight=weights.get(name, 0.0),
            exposure=before.get(name, 0.0) / num,
            new_exposure=after.get(name, 0.0) / num,
            over_cap=after.get(name, 0.0) / num > cap,
        )
        for name, num in available.items()
        if num and (name in weights or name in now or name in before)
    ]
    rows.sort(key=lambda row: -abs(row.new_exposure - row.exposure))
    return Remix(start_fraction=start, cells=tuple(rows), epoch_cap=cap, mixture=tuple(changed))


def _read(phases: list[dict[str, Any]], planned: int, train_tokens: int, batch_tokens: int) -> dict[str, float]:
    """Tokens of each cell over a run: every phase's tokens shared out by its weights."""
    starts = [phase["start_fraction"] * planned * batch_tokens for phase in phases] + [math.inf]
    read: dict[str, float] = {}
    for phase, begin, end in zip(phases, starts, starts[1:]):
        tokens = max(0.0, min(end, train_tokens) - begin)
        for cell, weight in phase["weights"].items():
            read[cell] = read.get(cell, 0.0) + tokens * weight
    return read
