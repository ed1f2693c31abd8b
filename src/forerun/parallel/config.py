"""Mesh sizes and expert transport settings, as plain data, and the sizes that follow from them. Never imports JAX."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from forerun.base.errors import ConfigError

Transport = Literal["local", "all_gather", "fixed_cells", "pooled_wave", "ragged"]
DropRule = Literal["water_filling", "sender_receiver"]
ROUNDING = 1e-6  # derived: eight roundings of float32, so that a product a hair above a whole number is not rounded up to the next
LARGEST_COUNT = 1 << 31  # derived: counts of one layer are int32; layers and steps are summed in 64 bits on the host
LARGEST_HEADER_ID = {"bfloat16": 256, "float16": 2048, "float32": 1 << 24}  # derived: 2^(bits of the significand)


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
    """How tokens reach their experts, and which of them do when there is not room for all."""

    kind: Transport = "local"
    """`local` moves no token: every device computes all experts for its own tokens."""
    capacity_factor: float = 0.0
    """Slots over the balanced load, per receiver; 0 is dropless."""
    receiver: Literal["expert", "shard"] = "expert"
    """Whose slots these are: each expert's own, or shared by all experts of a shard (fewer drops, same memory)."""
    sender_factor: float = 1.15
    """Rows that buffers hold over the balanced load: cells, pools, and without a capacity those of `all_gather` and `ragged`. Under
    `sender_receiver` pools drop what does not fit; otherwise it travels in a further round."""
    num_waves: int = 3
    """Waves of `pooled_wave`; under `water_filling` the least there are."""
    drop_rule: DropRule = "water_filling"
    """One unbiased decision from all counts before anything is sent, or the original's two stages, sender then receiver."""
    renormalize_survivors: bool = False
    """Rescale the combine weights of a token's surviving assignments to their sum before drops."""

    def __post_init__(self) -> None:
        if not 0 <= self.capacity_factor < math.inf:
            raise ConfigError(
                f"transport.capacity_factor must be finite and not negative, got {self.capacity_factor}",
                hint="0 is dropless, 1.15 is usual",
            )
        if not 0 < self.sender_factor < math.inf:
            raise ConfigError(f"transport.sender_factor must be positive and finite, got {self.sender_factor}", hint="1.15 is usual")
        if self.num_waves < 1:
            raise ConfigError(f"transport.num_waves must be at least 1, got {self.num_waves}", hint="3 is usual")
        if self.drop_rule == "sender_receiver" and (self.capacity_factor == 0 or self.receiver != "expert"):
            raise ConfigError(
                "transport.drop_rule sender_receiver needs a capacity_factor above 0 and receiver=expert, "
                f"got {self.capacity_factor} and {self.receiver}",
                hint="set transport.capacity_factor=1.15, or drop_rule=water_filling",
            )


def rows_within(num_assignments: int, factor: float, parts: int) -> int:
    """Rows of a buffer for one of `parts` equal shares of the assignments, times the factor: rounded up, at least 1, at most all."""
    return max(1, min(num_assignments, math.ceil(factor * num_assignments / parts * (1 - ROUNDING))))


def check_header_ids(experts_per_shard: int, dtype: str) -> None:
    """Raises: ConfigError when in-band expert ids, counted from 1, cannot all be told apart in the rows' dtype."""
    largest = LARGEST_HEADER_ID.get(dtype, 1 << 24)
    if experts_per_shard >= largest:
        raise ConfigError(
            f"transport.kind pooled_wave carries expert ids in {dtype} rows, so model.num_experts / mesh.expert "
            f"must be at most {largest - 1}, got {experts_per_shard}",
            hint="raise mesh.expert, use float32, or take transport.kind=ragged",
        )


def check_counts(num_tokens: int, top_k: int, num_experts: int, mesh: MeshConfig, transport: TransportConfig) -> None:
    """For one microbatch of all devices.

    Raises: ConfigError when a layer's assignments pass 31 bits, or an expert and an assignment's place do not fit one sort key together.
    """
    assignments = num_tokens * top_k
    if assignments >= LARGEST_COUNT:
        raise ConfigError(
            f"train.batch_size x seq_len x model.top_k must stay below 2^31 in a microbatch, got {assignments}",
            hint="raise train.num_microbatches",
        )
    own, experts = assignments // mesh.num_devices, num_experts
    if transport.kind == "all_gather":
        own, experts = own * mesh.expert, num_experts // mesh.expert  # a shard sorts what its whole group has for its own experts
    if sort_key_bits(experts, own) > 32:
        raise ConfigError(
            f"an expert and one of {own} assignments must fit a 32-bit sort key, got {sort_key_bits(experts, own)} bits for {experts} experts",
            hint="raise train.num_microbatches or the mesh",
        )


def sort_key_bits(num_experts: int, num_assignments: int) -> int:
    """Of an expert, or the place behind all experts, and an assignment's place."""
    return num_experts.bit_length() + max(1, (num_assignments - 1).bit_length())
