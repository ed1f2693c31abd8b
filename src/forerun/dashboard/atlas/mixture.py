"""What a mixture would do: epochs of every cell, cells over the cap, shares by quality and domain, tokens read of every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.base.errors import ConfigError
from forerun.dashboard.atlas.attributes import SourceView
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book

EPOCH_CAP = 8.0  # source: the cap of the loader and of Marin's mixtures


@dataclass(frozen=True)
class Phase:
    """A stretch of a run and the weights of its cells, which sum to 1."""

    fraction: float
    """Of the run's tokens."""
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """What a run with these phases reads."""

    exposure: dict[str, float]
    """Epochs of each cell."""
    over_cap: tuple[str, ...]
    qualities: tuple[float, ...]
    """Share of the tokens read in Q0 to Q4."""
    domains: dict[str, float]
    """Share of the tokens read."""
    sources: dict[str, float]
    """Tokens read of each source; a cell is read evenly."""


def proportional(book: Book) -> dict[str, float]:
    """Every cell in proportion to its tokens."""
    return {cell.name: cell.num_tokens / book.num_tokens for cell in book.cells} if book.num_tokens else {}


def scaled(book: Book, factors: Mapping[str, float]) -> dict[str, float]:
    """Proportions times factors of cells, domains or qualities (`law/q3`, `law`, `q4`), normalised.

    Raises: ConfigError for a name the data set does not have, a negative factor, or when nothing is left.
    """
    known = {cell.name for cell in book.cells} | set(book.grid) | {f"q{quality}" for quality in range(NUM_QUALITIES)}
    for name, factor in factors.items():
        if name not in known:
            raise ConfigError(
                f"--set {name!r} is no cell, domain or quality of {book.name}",
                hint=f"domains: {', '.join(book.domains[:6])}; qualities: q0 to q4",
            )
        if not 0 <= factor < float("inf"):
            raise ConfigError(f"--set {name}={factor} must not be negative or infinite", hint="0 leaves it out, 1 keeps its share")
    raw = {
        cell.name: cell.num_tokens * factors.get(cell.name, 1.0) * factors.get(cell.domain, 1.0) * factors.get(f"q{cell.quality}", 1.0)
        for cell in book.cells
    }
    total = sum(raw.values())
    if not total:
        raise ConfigError("no cell has any weight left", hint="give at least one factor above 0")
    return {name: value / total for name, value in raw.items() if value}


def outcome(
    book: Book,
    phases: Sequence[Phase],
    train_tokens: float,
    sources: Mapping[str, SourceView] | None = None,
    *,
    epoch_cap: float = EPOCH_CAP,
) -> Outcome:
    """Add up the phases over a run of `train_tokens`."""
    read = {cell.name: sum(phase.fraction * phase.weights.get(cell.name, 0.0) for phase in phases) for cell in book.cells}
    exposure = {cell.name: read[cell.name] * train_tokens / cell.num_tokens for cell in book.cells if cell.num_tokens}
    qualities, domains = [0.0] * NUM_QUALITIES, dict.fromkeys(book.domains, 0.0)
    for cell in book.cells:
        qualities[cell.quality] += read[cell.name]
        domains[cell.domain] += read[cell.name]
    tokens = {
        name: sum(exposure.get(cell, 0.0) * count for cell, (_, count) in source.by_cell.items())
        for name, source in (sources or {}).items()
    }
    over = tuple(name for name, epochs in exposure.items() if epochs > epoch_cap * (1 + 1e-9))
    return Outcome(exposure, over, tuple(qualities), domains, tokens)


def phases_of(book: Book, config: Mapping[str, Any]) -> tuple[list[Phase], float]:
    """Phases and tokens of a run's `config.json`; its mixture, or proportions where it names none."""
    data, train = config.get("data", {}), config.get("train", {})
    tokens = float(train.get("num_steps", 0)) * float(train.get("batch_size", 0)) * float(train.get("seq_len", 0))
    listed = data.get("mixture") or [{"start_fraction": 0.0, "weights": proportional(book)}]
    starts = [float(phase.get("start_fraction", 0.0)) for phase in listed] + [1.0]
    return [Phase(after - start, phase["weights"]) for phase, start, after in zip(listed, starts, starts[1:])], tokens
