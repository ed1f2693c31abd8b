"""Mesh sizes and expert transport settings, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from forerun.base.errors import ConfigError

Transport = Literal["local", "all_gather", "fixed_cells", "pooled_wave", "ragged"]
DropRule = Literal["water_filling", "sender_receiver"]


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices along each axis; their product is the number of devices."""

    replica: int = 1
    """Copies of the model across racks."""
    data: int = 1
    """Batch shards inside a rack that are not expert shards."""
    expert: int = 1
    """Expert shards inside a rack; tokens are sharded over it too."""

    def __post_init__(self) -> None:
        for name in ("replica", "data", "expert"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"mesh.{name} must be at least 1, got {getattr(self, name)}", hint=f"set mesh.{name}=1 to leave the axis out"
                )

    @property
    def num_devices(self) -> int:
        """Devices the mesh spans."""
        return self.replica * self.data * self.expert


@dataclass(frozen=True, kw_only=True)
class TransportConfig:
    """How tokens reach their experts."""

    kind: Transport = "local"
    """`local` moves nothing and drops nothing unless `capacity_factor` says so."""
    capacity_factor: float = 0.0
    """Slots per expert over the balanced load; 0 is dropless."""
    sender_factor: float = 1.15
    """Slots per sender and destination over the balanced load; read only by drop_rule `sender_receiver`."""
    num_waves: int = 3
    """Waves of `pooled_wave`."""
    drop_rule: DropRule = "water_filling"
    """One unbiased decision from all counts, or the original two stages."""
    renormalize_survivors: bool = False
    """Rescale the combine weights of a token's surviving assignments to their sum before drops."""

    def __post_init__(self) -> None:
        if self.capacity_factor < 0:
            raise ConfigError(
                f"transport.capacity_factor must not be negative, got {self.capacity_factor}", hint="0 is dropless, 1.15 is usual"
            )
        if self.num_waves < 1:
            raise ConfigError(f"transport.num_waves must be at least 1, got {self.num_waves}", hint="3 is usual")
