"""The run a plan is about, from an experiment's config or from a preset, and what it counts to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from forerun.base.errors import ConfigError
from forerun.model import count
from forerun.model.config import ModelConfig
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.train.config import RunConfig

Recipe = Literal["muonh", "muon", "adamw"]
Remat = Literal["none", "block", "moe"]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Everything cost depends on, without data or seeds."""

    name: str
    model: ModelConfig
    seq_len: int
    batch_size: int
    """Sequences per step over all devices."""
    num_steps: int
    num_microbatches: int = 1
    compute_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    recipe: Recipe = "muonh"
    remat: Remat = "block"
    mesh: MeshConfig = field(default_factory=MeshConfig)
    transport: TransportConfig = field(default_factory=TransportConfig)

    def __post_init__(self) -> None:
        for name in ("seq_len", "batch_size", "num_steps", "num_microbatches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} must be at least 1, got {getattr(self, name)}", hint=f"raise train.{name}")
        if self.model.window > self.seq_len:
            raise ConfigError(
                f"model.window must be at most train.seq_len={self.seq_len}, got {self.model.window}",
                hint="lower model.window, or set it to 0 for full attention on every layer",
            )
        if self.model.num_experts and self.model.num_experts % self.mesh.expert:
            raise ConfigError(
                f"mesh.expert must divide model.num_experts={self.model.num_experts}, got {self.mesh.expert}",
                hint="every expert shard holds equally many experts",
            )
        pieces = self.mesh.num_devices * self.num_microbatches
        if self.batch_size % pieces:
            raise ConfigError(
                f"train.batch_size must be a multiple of devices x microbatches = {pieces}, got {self.batch_size}",
                hint=f"take {-(-self.batch_size // pieces) * pieces} sequences, or another mesh",
            )

    @property
    def batch_tokens(self) -> int:
        """Tokens per optimizer step."""
        return self.batch_size * self.seq_len

    @property
    def train_tokens(self) -> int:
        """Tokens over the run."""
        return self.batch_tokens * self.num_steps

    @property
    def tokens_per_device(self) -> int:
        """Tokens one device works on at a time: its share of a microbatch."""
        return self.batch_tokens // (self.mesh.num_devices * self.num_microbatches)

    @property
    def compute_bytes(self) -> int:
        """Bytes of one activation."""
        return 2 if self.compute_dtype == "bfloat16" else 4

    @property
    def train_flops(self) -> float:
        """Of the whole run."""
        return count.train_flops(self.model, self.seq_len, self.train_tokens)


def planned(config: RunConfig) -> PlannedRun:
    """The plannable part of a run's config."""
    return PlannedRun(
        name=config.name,
        model=config.model,
        seq_len=config.train.seq_len,
        batch_size=config.train.batch_size,
        num_steps=config.train.num_steps,
        num_microbatches=config.train.num_microbatches,
        compute_dtype=config.train.compute_dtype,
        recipe=config.optim.recipe,
        remat=config.train.remat,
        mesh=config.mesh,
        transport=config.transport,
    )


def parse_mesh(text: str) -> MeshConfig:
    """`data=11,expert=64` as a mesh; axes left out are 1. Raises: ConfigError naming the axis."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if axis not in ("replica", "data", "expert"):
            raise ConfigError(f"--mesh axis must be replica, data or expert, got {axis!r}", hint="for example --mesh data=11,expert=64")
        if axis in sizes:
            raise ConfigError(f"--mesh names axis {axis} twice, in {text!r}", hint="name each axis once")
        if not size.isdecimal() or int(size) < 1:
            raise ConfigError(f"--mesh {axis} must be a whole number of at least 1, got {size!r}", hint=f"for example {axis}=8")
        sizes[axis] = int(size)
    return MeshConfig(**sizes)
