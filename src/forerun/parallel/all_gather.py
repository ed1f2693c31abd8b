"""Every shard sees all rows of its group, computes its own experts' share, and the shares are summed back: simple, for small meshes.

Memory and traffic grow with the number of shards, whatever the routing.
"""

# T tokens, d working width, K top_k, E experts, S shards, L = E / S experts per shard

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import from_slots, to_slots
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import admit, buffer_rows, num_rounds
from forerun.parallel.layout import in_blocks, num_slots, rows_per_block, slot_map, window
from forerun.parallel.order import sort_by_expert
from forerun.parallel.rounds import sum_over_rounds
from forerun.parallel.shards import Axes, gathered, num_shards, summed_to_own
from forerun.parallel.weights import renormalized, traffic_of


def run_experts(
    rows: Float[Array, "T d"],
    expert_index: Int[Array, "T K"],
    weight: Float[Array, "T K"],
    valid: Bool[Array, "T"],
    experts: ExpertParams,
    *,
    config: TransportConfig,
    axes: Axes = (),
    step: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, "T d"], Traffic]:
    """As `local.run_experts`, `experts` being those of this shard."""
    shards, own_experts = num_shards(axes), experts.w_gate.shape[0]
    num_tokens, top_k = expert_index.shape
    admission = admit(expert_index, valid, own_experts * shards, config, axes, step)
    if config.renormalize_survivors:
        weight = renormalized(weight, admission.kept)
    all_rows, all_weight = (gathered(array, axes).reshape(shards * num_tokens, -1) for array in (rows, weight))
    local_index = (gathered(expert_index, axes) - admission.own * own_experts).reshape(-1, top_k)
    mine = gathered(admission.kept, axes).reshape(-1, top_k) & (local_index >= 0) & (local_index < own_experts)
    local_index = jnp.clip(local_index, 0, own_experts - 1)
    order = sort_by_expert(local_index, mine, own_experts)
    size = buffer_rows(num_tokens, top_k, own_experts, shards, config)
    rounds = num_rounds(admission, size, config, axes)
    block = rows_per_block(size, own_experts)
    one_round = functools.partial(_one_round, size=size, block=block)
    shares = sum_over_rounds(one_round, rounds, (all_rows, all_weight, experts), (order, local_index, mine))
    traffic = traffic_of(
        admission,
        valid,
        axes,
        rows_sent=(shards - 1) * num_tokens,
        rows_executed=rounds * num_slots(size, own_experts, block),
    )
    return summed_to_own(shares.reshape(shards, num_tokens, -1), axes).astype(rows.dtype), traffic


def _one_round(number, arrays, indices, *, size: int, block: int) -> Float[Array, "S*T d"]:
    """What this shard's experts add to all rows of the group, from the next `size` rows they got."""
    rows, weight, experts = arrays
    order, local_index, mine = indices
    part = window(order.load, number, size)
    blocks = in_blocks(part.count, size, block)
    rank = order.rank - part.skip[local_index]
    slots = slot_map(
        order.assignment,
        source=(order.start + part.skip)[blocks.expert_of_slot] + blocks.rank_of_slot,
        filled=blocks.filled,
        slot_of_assignment=blocks.first_slot[local_index] + rank,
        kept=mine & (rank >= 0) & (rank < part.count[local_index]),
    )
    buffer = to_slots(rows, slots).reshape(blocks.expert_of_block.shape[0], block, -1)
    out = swiglu(buffer, experts.w_gate, experts.w_up, experts.w_down, blocks.expert_of_block).reshape(-1, rows.shape[-1])
    return from_slots(out.astype(jnp.float32), weight, slots)
