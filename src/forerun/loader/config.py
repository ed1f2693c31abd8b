"""What a run reads, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from forerun.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MixturePhase:
    """Weights over cells from one point of the run on."""

    start_fraction: float = 0.0
    """Share of the run's tokens after which this phase begins."""
    weights: dict[str, float]
    """Cell name (`<domain>/q<bucket>`) to weight; weights of a phase sum to 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.start_fraction < 1:
            raise ConfigError(
                f"data.mixture start_fraction must lie in 0..1, 1 excluded, got {self.start_fraction}", hint="0 starts the first phase"
            )
        negative = [cell for cell, weight in self.weights.items() if not weight >= 0]  # also what is no number
        if negative:
            raise ConfigError(
                f"data.mixture weight of {negative[0]!r} must not be negative, got {self.weights[negative[0]]}",
                hint="leave the cell out instead",
            )
        total = sum(self.weights.values())
        if abs(total - 1) > 1e-6:  # float64 sums of 200 weights stay far below this
            raise ConfigError(f"data.mixture weights must sum to 1, got {total:.6g}", hint="divide each weight by their sum")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which store is read, in which proportions and order."""

    manifest: str
    """Digest of the data manifest (`manifests/<digest>.json`)."""
    mixture: tuple[MixturePhase, ...] = field(default_factory=tuple)
    """Phases in order; empty reads every cell in proportion to its tokens."""
    seed: int = 0
    """Of the order of documents; independent of the model's seed."""
    max_seq_len: int = 0
    """Longest context planned for the run: order is defined at this length, so a switch neither skips nor repeats; 0 means train.seq_len."""
    epoch_cap: float = 8.0
    """Most times any cell may be read in a run."""
    target_tokens: int = 0
    """Token budget of the larger run this one stands in for: cells shrink by the ratio, so text repeats as it will there; 0 reads whole cells."""

    def __post_init__(self) -> None:
        starts = [phase.start_fraction for phase in self.mixture]
        if len(set(starts)) < len(starts):
            raise ConfigError(
                f"data.mixture phases must begin at different fractions, got {starts}", hint="merge the phases that begin together"
            )
        if not self.epoch_cap > 0:
            raise ConfigError(f"data.epoch_cap must be above 0, got {self.epoch_cap}", hint="8 is usual")
        for name in ("max_seq_len", "target_tokens"):
            if getattr(self, name) < 0:
                raise ConfigError(f"data.{name} must not be negative, got {getattr(self, name)}", hint="0 is the default")
