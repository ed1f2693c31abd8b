"""Experts where the tokens are: sort assignments by expert, gather rows into slots, batched products, gather back.

No token moves. On a mesh every device computes all experts for its own tokens, so their matrices are gathered instead: what small
meshes and dropless evaluation want. Two layouts share all code: on one device with a capacity per expert, each has the same number
of slots; otherwise each expert's rows are padded to whole blocks (about 1.6x slower on CPUs, any load fits).
"""

# T tokens, d working width, K top_k, E experts

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import SlotMap, from_slots, to_slots
from forerun.parallel.config import TransportConfig, rows_within
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import Admission, admit
from forerun.parallel.layout import in_blocks, rows_per_block, slot_map
from forerun.parallel.shards import Axes
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
    """Weighted sum of each row's experts, and what was dropped on the way.

    Args:
        valid: False for padding tokens; they use no slot, get zeros and count nowhere.
        experts: of all shards together.
        config: `capacity_factor` 0 is dropless.
        axes: all mesh axes when inside `shard_map`, none on one device.
        step: turns the order in which assignments are dropped.
    """
    num_experts = experts.w_gate.shape[0]
    admission = admit(expert_index, valid, num_experts, config, axes, step)
    if config.capacity_factor > 0 and config.receiver == "expert" and not axes:
        capacity = rows_within(expert_index.size, config.capacity_factor, num_experts)
        if config.drop_rule == "sender_receiver":
            capacity = config.num_waves * rows_within(expert_index.size, config.capacity_factor, num_experts * config.num_waves)
        slots, expert_of_group, num_groups = _capacity_slots(admission, expert_index, min(capacity, expert_index.size)), None, num_experts
    else:
        block = rows_per_block(expert_index.size, num_experts)
        slots, expert_of_group = _block_slots(admission, expert_index, block)
        num_groups = expert_of_group.shape[0]
    if config.renormalize_survivors:
        weight = renormalized(weight, admission.kept)
    buffer = to_slots(rows, slots).reshape(num_groups, -1, rows.shape[-1])
    out = swiglu(buffer, *experts, expert_of_group).reshape(-1, rows.shape[-1])
    traffic = traffic_of(admission, valid, axes, rows_sent=0, rows_executed=slots.filled.size)
    return from_slots(out, weight, slots), traffic


def _capacity_slots(admission: Admission, expert_index: Int[Array, "T K"], capacity: int) -> SlotMap:
    """The same number of slots for every expert: slot = expert * capacity + rank."""
    order = admission.order
    rank = jnp.arange(capacity, dtype=jnp.int32)
    return slot_map(
        order.assignment,
        source=(order.start[:, None] + rank).reshape(-1),
        filled=(rank < admission.admitted[admission.own][:, None]).reshape(-1),
        slot_of_assignment=expert_index * capacity + order.rank,
        kept=admission.kept,
    )


def _block_slots(admission: Admission, expert_index: Int[Array, "T K"], block: int) -> tuple[SlotMap, Int[Array, "N"]]:
    """Whole blocks per expert, and each block's expert."""
    order = admission.order
    blocks = in_blocks(admission.admitted[admission.own], expert_index.size, block)
    slots = slot_map(
        order.assignment,
        source=order.start[blocks.expert_of_slot] + blocks.rank_of_slot,
        filled=blocks.filled,
        slot_of_assignment=blocks.first_slot[expert_index] + order.rank,
        kept=admission.kept,
    )
    return slots, blocks.expert_of_block
