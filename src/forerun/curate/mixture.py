"""Weights over cells for a run: in proportion or tilted to quality, capped in epochs, without cells too small to be read."""

# C cells

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forerun.base.errors import ConfigError
from forerun.curate.remove import available_tokens
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.manifest import Cell, Manifest
from forerun.loader.order import PERIODS

LEAST_WEIGHT = 1 / PERIODS[-1]


@dataclass(frozen=True)
class Plan:
    """A phase and what was done to make it readable."""

    phase: MixturePhase
    exposure: dict[str, float]
    """Epochs of each cell over the planned tokens."""
    notes: tuple[str, ...]
    """Cells capped, merged or left out, one sentence each."""


def plan_mixture(
    manifest: Manifest,
    *,
    train_tokens: int,
    quality_tilt: float = 0.0,
    wanted: dict[str, float] | None = None,
    epoch_cap: float = 8.0,
    start_fraction: float = 0.0,
) -> Plan:
    """Weights that a run of `train_tokens` can be read with.

    Args:
        quality_tilt: a cell counts `exp(tilt x (quality - 2))` times its tokens; 0 keeps the store's proportions.
        wanted: weights to make readable instead of proportions; they need not sum to 1.
        epoch_cap: a cell that would be read more often gives its surplus to the others.
    Raises: ConfigError when all cells together are too small for the run at this cap, or `wanted` names an unknown cell.
    """
    if train_tokens < 1 or not epoch_cap > 0:
        raise ConfigError(
            f"a mixture needs at least 1 training token and an epoch cap above 0, got {train_tokens} and {epoch_cap}",
            hint="give the tokens of the run; a cap of 8 is usual",
        )
    cells = {cell.name: cell for cell in manifest.cells}
    notes = [f"{name} is left out: all its documents were removed" for name, cell in cells.items() if not available_tokens(manifest, cell)]
    if wanted is not None and (unknown := sorted(set(wanted) - set(cells))):
        raise ConfigError(
            f"mixture names cell {unknown[0]!r}, which the manifest does not have", hint=f"cells: {', '.join(sorted(cells)[:5])}, ..."
        )
    raw = (
        wanted
        if wanted is not None
        else {name: cell.num_tokens * np.exp(quality_tilt * ((cell.quality or 0) - 2)) for name, cell in cells.items()}
    )
    wrong = next((name for name, value in raw.items() if not (math.isfinite(value) and value >= 0)), None)
    if wrong is not None:
        raise ConfigError(f"mixture weight of {wrong!r} must be a number from 0 on, got {raw[wrong]}", hint="leave the cell out instead")
    names = sorted(name for name, value in raw.items() if value > 0 and available_tokens(manifest, cells[name]))
    weights = np.array([raw[name] for name in names], float)
    tokens = np.array([cells[name].num_tokens for name in names], float)
    if epoch_cap * tokens.sum() < train_tokens:
        raise ConfigError(
            f"the chosen cells hold {int(tokens.sum())} tokens, {train_tokens} are needed and data.epoch_cap is {epoch_cap:g}",
            hint="shorten the run, add cells, or raise data.epoch_cap",
        )
    limit = epoch_cap * tokens / train_tokens
    capped = _water_filled(weights / weights.sum(), limit)
    notes += [f"{name} is capped at {epoch_cap:g} epochs" for name, now, most in zip(names, capped, limit) if now >= most * (1 - 1e-9)]
    merged = _merged(dict(zip(names, capped.tolist())), cells, notes)
    exposure = {name: weight * train_tokens / cells[name].num_tokens for name, weight in merged.items()}
    return Plan(MixturePhase(start_fraction=start_fraction, weights=merged), exposure, tuple(notes))


def with_phase(data: DataConfig, phase: MixturePhase) -> DataConfig:
    """A data config in which `phase` replaces everything from its start on; the past is kept, so reading goes on where it was.

    Use it for a registered amendment of a running mixture: `phase.start_fraction` is step / num_steps.
    """
    past = tuple(earlier for earlier in data.mixture if earlier.start_fraction < phase.start_fraction)
    if phase.start_fraction > 0 and not past:
        raise ConfigError(
            "data.mixture is empty, so a later phase would leave the beginning undefined", hint="write the proportional weights as phase 0"
        )
    return DataConfig(
        manifest=data.manifest,
        mixture=(*past, phase),
        seed=data.seed,
        max_seq_len=data.max_seq_len,
        epoch_cap=data.epoch_cap,
        target_tokens=data.target_tokens,
    )


def rescaled(data: DataConfig, *, old_num_steps: int, new_num_steps: int) -> DataConfig:
    """The same phases at the same steps for a changed horizon; a phase that would begin after the new end is dropped."""
    phases = []
    for phase in data.mixture:
        start = phase.start_fraction * old_num_steps / new_num_steps
        if start < 1:
            phases.append(MixturePhase(start_fraction=start, weights=phase.weights))
    return DataConfig(
        manifest=data.manifest,
        mixture=tuple(phases),
        seed=data.seed,
        max_seq_len=data.max_seq_len,
        epoch_cap=data.epoch_cap,
        target_tokens=data.target_tokens,
    )


def _water_filled(weights: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Weights summing to 1 with none above its limit; surplus goes to the others in proportion."""
    out, fixed = weights.copy(), np.zeros(len(weights), bool)
    for _ in range(len(weights)):
        over = ~fixed & (out > limit)
        if not over.any():
            break
        fixed |= over
        out[fixed] = limit[fixed]
        free = 1 - out[fixed].sum()
        if (~fixed).any():
            out[~fixed] = weights[~fixed] / weights[~fixed].sum() * max(free, 0.0)
    return out / out.sum()


def _merged(weights: dict[str, float], cells: dict[str, Cell], notes: list[str]) -> dict[str, float]:
    """Weights without cells below one window a period: their weight goes to the nearest quality of the same domain, else to all."""
    kept = {name: weight for name, weight in weights.items() if weight >= LEAST_WEIGHT}
    for name in sorted(set(weights) - set(kept)):
        cell = cells[name]
        siblings = [other for other in kept if cells[other].domain == cell.domain]
        if siblings:
            target = min(siblings, key=lambda other: (abs((cells[other].quality or 0) - (cell.quality or 0)), other))
            kept[target] += weights[name]
            notes.append(f"{name} (weight {weights[name]:.1e}) is merged into {target}: below one window per {PERIODS[-1]}")
        else:
            notes.append(f"{name} (weight {weights[name]:.1e}) is left out: below one window per {PERIODS[-1]} and alone in its domain")
    total = sum(kept.values())
    return {name: weight / total for name, weight in kept.items()}
