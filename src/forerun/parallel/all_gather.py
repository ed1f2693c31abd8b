"""Every shard sees all rows of its group, computes its own experts' share, and the shares are summed back: simple, for small meshes.

Memory and traffic grow with the number of shards, whatever the routing.
"""

# T tokens, d working width, K top_k, E experts, S shards, L = E / S experts per shard

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import from_slots, to_slots
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import admit, most_rows
from forerun.parallel.layout import in_blocks, rows_per_block, slot_map
from forerun.parallel.order import sort_by_expert
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
    num_rows = most_rows(num_tokens, top_k, own_experts, shards, config)
    blocks = in_blocks(order.load, num_rows, rows_per_block(num_rows, own_experts))
    slots = slot_map(
        order.assignment,
        source=order.start[blocks.expert_of_slot] + blocks.rank_of_slot,
        filled=blocks.filled,
        slot_of_assignment=blocks.first_slot[local_index] + order.rank,
        kept=mine,
    )
    buffer = to_slots(all_rows, slots).reshape(blocks.expert_of_block.shape[0], -1, rows.shape[-1])
    out = swiglu(buffer, *experts, blocks.expert_of_block).reshape(-1, rows.shape[-1])
    shares = from_slots(out.astype(jnp.float32), all_weight, slots).reshape(shards, num_tokens, -1)
    traffic = traffic_of(
        admission,
        valid,
        axes,
        rows_sent=(shards - 1) * num_tokens,
        rows_executed=blocks.filled.size,
    )
    return summed_to_own(shares, axes).astype(rows.dtype), traffic
