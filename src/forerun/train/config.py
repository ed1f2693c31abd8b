"""A whole run as plain data: what `register` freezes into config.json and what the trainer reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from forerun.base.errors import ConfigError
from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.optim.config import OptimConfig
from forerun.parallel.config import MeshConfig, TransportConfig


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Length, batch and numerics of a run."""

    num_steps: int
    """Optimizer steps."""
    batch_size: int
    """Sequences per optimizer step over all devices."""
    seq_len: int
    """Tokens predicted per sequence."""
    seed: int = 0
    """Of the parameters at the start."""
    num_microbatches: int = 1
    """Pieces a batch is computed in, gradients summed."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Of activations and matrix products; parameters and optimizer state are float32."""
    remat: Literal["none", "block", "moe"] = "none"
    """What is recomputed in the backward pass instead of kept."""
    layer_loop: Literal["unrolled", "scan"] = "unrolled"
    """One compiled body for all layers (`scan`), or one per layer: faster on CPUs for shallow models, same loss."""

    def __post_init__(self) -> None:
        for name in ("num_steps", "batch_size", "seq_len", "num_microbatches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} must be at least 1, got {getattr(self, name)}", hint=f"raise train.{name}")
        if self.batch_size % self.num_microbatches:
            raise ConfigError(
                f"train.num_microbatches must divide train.batch_size={self.batch_size}, got {self.num_microbatches}", hint="use a divisor"
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.batch_size * self.seq_len

    @property
    def train_tokens(self) -> int:
        """Tokens over the run."""
        return self.num_steps * self.batch_tokens


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """When and on how much held-out text a run is measured."""

    every_fraction: float = 0.05
    """Share of the run between evaluations; the last step is always evaluated."""
    num_sequences: int = 64
    """Held-out sequences per domain (fewer when the domain has fewer)."""
    with_drops: bool = False
    """Also report the loss as trained, with capacity drops, under names that say so."""
    sample_prompts: tuple[str, ...] = ()
    """Texts continued by the model at each evaluation."""
    suites: dict[str, str] = field(default_factory=dict)
    """Further texts to measure: name to a folder or file of JSON lines with `text` (Paloma, uncheatable-eval); see `train/suites.py`."""

    def __post_init__(self) -> None:
        if not 0 < self.every_fraction <= 1:
            raise ConfigError(
                f"eval.every_fraction must lie in 0..1, 0 excluded, got {self.every_fraction}", hint="0.05 evaluates 20 times"
            )


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """What is kept so that a run survives."""

    every_fraction: float = 0.05
    """Share of the run between rolling saves; 0 saves only at the end."""
    num_rolling: int = 2
    """Rolling checkpoints kept."""
    milestones: tuple[float, ...] = ()
    """Fractions of the run whose checkpoint is kept for ever."""
    timeout_s: float = 600.0
    """Longest a save or restore may take before it is an event and the run goes on or stops."""


@dataclass(frozen=True, kw_only=True)
class SpikePolicy:
    """What happens at a bad step: loss or gradient not finite, or gradient above a declared limit."""

    on_nonfinite: Literal["skip", "rewind", "stop"] = "skip"
    """Leave the update out and go on; go back to the newest checkpoint and read other batches (PaLM, arXiv:2204.02311, sec. 5.1);
    or end the run as crashed."""
    grad_norm_limit: float = 0.0
    """A finite gradient whose norm is above this is a bad step too; 0 sets no limit."""
    rewind_batches: int = 20
    """Batches passed over behind the checkpoint after a rewind, at least up to the bad one; read only by `rewind`."""
    max_skips: int = 5
    """Bad steps before the run ends as crashed all the same."""

    def __post_init__(self) -> None:
        if self.max_skips < 0:
            raise ConfigError(f"spikes.max_skips must not be negative, got {self.max_skips}", hint="0 ends the run at the first one")
        if not self.grad_norm_limit >= 0:
            raise ConfigError(f"spikes.grad_norm_limit must not be negative, got {self.grad_norm_limit}", hint="0 sets no limit")
        if self.rewind_batches < 1:
            raise ConfigError(f"spikes.rewind_batches must be at least 1, got {self.rewind_batches}", hint="the same batch fails again")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run's numbers, and nothing else."""

    schema: Literal[1] = 1
    """Of this file."""
    name: str
    """Short name, also the start of the run id."""
    model: ModelConfig
    """Architecture."""
    optim: OptimConfig
    """Optimizer groups and schedule."""
    data: DataConfig
    """Store, mixture and order."""
    train: TrainConfig
    """Length, batch and numerics."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    """Devices."""
    transport: TransportConfig = field(default_factory=TransportConfig)
    """How tokens reach experts."""
    eval: EvalConfig = field(default_factory=EvalConfig)
    """Measurement."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Survival."""
    spikes: SpikePolicy = field(default_factory=SpikePolicy)
    """Bad steps."""

    def __post_init__(self) -> None:
        if self.model.window > self.train.seq_len:
            raise ConfigError(
                f"model.window must be at most train.seq_len={self.train.seq_len}, got {self.model.window}",
                hint="lower model.window, or set it to 0 for full attention on every layer",
            )
        if self.train.batch_size % (self.mesh.num_devices * self.train.num_microbatches):
            raise ConfigError(
                f"train.batch_size must be a multiple of devices x microbatches = {self.mesh.num_devices} x {self.train.num_microbatches}, got {self.train.batch_size}",
                hint="raise train.batch_size or shrink the mesh",
            )
        if self.model.num_experts and self.model.num_experts % self.mesh.expert:
            raise ConfigError(
                f"mesh.expert must divide model.num_experts={self.model.num_experts}, got {self.mesh.expert}",
                hint="every expert shard holds equally many experts",
            )
