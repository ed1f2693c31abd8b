"""Optimizer and schedule settings, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from forerun.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate over the run, as a factor on the peak."""

    kind: Literal["linear", "cosine", "wsd"] = "linear"
    """Decay after the warm-up; `wsd` holds the peak until `decay_fraction` before the end."""
    warmup_fraction: float = 0.01
    """Share of the steps over which the rate rises from 0."""
    decay_fraction: float = 1.0
    """Share of the steps spent decaying; read only by `wsd`."""
    final_fraction: float = 0.05
    """Rate at the last step over the peak."""

    planned_steps: int = 0
    """Length the run was started with, when an amendment changed it; 0 when it was not."""
    reaimed_at_step: int = 0
    """Step of that amendment: until then the planned schedule holds, from then on the rate falls linearly to the same end."""

    def __post_init__(self) -> None:
        if (self.planned_steps > 0) != (self.reaimed_at_step > 0) or not 0 <= self.reaimed_at_step <= self.planned_steps:
            raise ConfigError(
                f"optim.schedule.reaimed_at_step must lie in 1..planned_steps={self.planned_steps}, got {self.reaimed_at_step}",
                hint="give both, or neither",
            )
        for name in ("warmup_fraction", "decay_fraction", "final_fraction"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ConfigError(f"optim.schedule.{name} must lie in 0..1, got {value}", hint="give a fraction, for example 0.05")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Three groups by parameter path; see `optim/groups.py` for which parameter is in which."""

    recipe: Literal["muonh", "muon", "adamw"] = "muonh"
    """`muonh`: the 535B recipe (MuonH, AdamH on the head, Adam for the rest); the others are for comparison."""
    muonh_learning_rate: float
    """Peak step of the matrix groups (MuonH and AdamH): an angle, since norms are kept."""
    adam_learning_rate: float
    """Peak step of the Adam group."""
    momentum: float = 0.95
    """Of MuonH, Nesterov."""
    beta1: float = 0.9
    """First-moment decay of the Adam kinds."""
    beta2: float = 0.95
    """Second-moment decay of the Adam kinds."""
    eps: float = 1e-15
    """Added to the root of the second moment."""
    orthogonalization: Literal["quintic", "gram", "gram_bfloat16"] = "quintic"
    """`quintic`: Newton-Schulz as published, in float32; `gram`: half its products, for matrices so large that the optimizer is felt;
    `gram_bfloat16`: with factors in bfloat16. Design note 0022 has both against the published form."""
    newton_schulz_steps: int = 5
    """Iterations of `quintic`."""
    expert_norm: Literal["per_expert", "pooled"] = "per_expert"
    """Whose Frobenius norm is kept: each expert's matrix (ours) or all experts of a layer together (as the original does)."""
    weight_decay: dict[str, float] = field(default_factory=dict)
    """Peak decoupled decay by group name (`router`, `head_gate`, ...), annealed linearly to 0; absent groups have none."""
    clip_grad_norm: float = 0.0
    """Largest global gradient norm; 0 does not clip."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Shape of the learning rate over the run."""

    def __post_init__(self) -> None:
        for name in ("muonh_learning_rate", "adam_learning_rate", "eps"):
            if not getattr(self, name) > 0:
                raise ConfigError(
                    f"optim.{name} must be positive, got {getattr(self, name)}", hint="see `forerun plan` for the transferred value"
                )
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"optim.{name} must lie in 0..1, 1 excluded, got {getattr(self, name)}", hint="usual values are 0.9 to 0.999"
                )
