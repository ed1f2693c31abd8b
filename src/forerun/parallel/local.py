"""Experts on one device: sort assignments by expert, gather rows into slots, batched products, gather back.

Two layouts share all code. With a capacity factor every expert has the same number of slots and overflow is dropped; without one,
each expert's rows are padded to whole blocks and nothing is ever dropped (exact, about 1.6x slower on CPUs).
"""

# T tokens, d working width, K top_k, A = T K assignments, E experts, C slots per expert, N blocks, B rows per block

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import SlotMap, from_slots, to_slots
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import ExpertParams, Traffic

MAX_BLOCK_ROWS = 128  # measured: 64 and 128 are equally fast on CPUs (reference training-stack 2.1), larger pads more
MIN_BLOCK_ROWS = 8  # assumed: below this a matrix product is all overhead
GOLDEN_FRACTION = 0.6180339887498949  # derived: multiples of it, modulo 1, fill the unit interval evenly (Knuth, TAOCP 3, 6.4)


class ExpertOrder(NamedTuple):
    """All assignments sorted by expert; within an expert by a hash of their place in the batch, padding last."""

    assignment: Int[Array, "A"]
    """Assignments, token * K + choice, in sorted order."""
    start: Int[Array, "E"]
    """Where each expert's assignments begin in that order."""
    load: Int[Array, "E"]
    """How many there are."""
    rank: Int[Array, "T K"]
    """Each assignment's place among those of its expert; meaningless for padding."""


def run_experts(
    rows: Float[Array, "T d"],
    expert_index: Int[Array, "T K"],
    weight: Float[Array, "T K"],
    valid: Bool[Array, "T"],
    experts: ExpertParams,
    *,
    config: TransportConfig,
    axes: tuple[str, ...] = (),
) -> tuple[Float[Array, "T d"], Traffic]:
    """Weighted sum of each row's experts, and what was dropped on the way.

    Args:
        valid: False for padding tokens; they use no slot, get zeros and count nowhere.
        config: `capacity_factor` 0 is dropless. Which assignments overflow is decided by a hash of their place in the
            batch, so no position is favoured.
        axes: mesh axes, for the transports that move rows; this one moves nothing.
    """
    del axes
    num_experts = experts.w_gate.shape[0]
    order = sort_by_expert(expert_index, valid, num_experts)
    if config.capacity_factor > 0:
        capacity = slots_per_expert(expert_index.size, num_experts, config.capacity_factor)
        slots, expert_of_group, num_groups = _capacity_slots(order, expert_index, valid, capacity), None, num_experts
        dropped = jnp.maximum(order.load - capacity, 0)
    else:
        block = rows_per_block(expert_index.size, num_experts)
        num_groups = -(-expert_index.size // block) + num_experts
        slots, expert_of_group = _block_slots(order, expert_index, valid, block, num_groups)
        dropped = jnp.zeros_like(order.load)
    if config.renormalize_survivors:
        weight = renormalized(weight, slots.kept)
    buffer = to_slots(rows, slots).reshape(num_groups, -1, rows.shape[-1])
    out = swiglu(buffer, *experts, expert_of_group).reshape(-1, rows.shape[-1])
    return from_slots(out, weight, slots), Traffic(load=order.load, dropped=dropped)


def slots_per_expert(num_assignments: int, num_experts: int, capacity_factor: float) -> int:
    """Slots each expert gets: the balanced load times the factor, rounded up, at least 1 and at most one per assignment."""
    exact = capacity_factor * num_assignments / num_experts
    return max(1, min(num_assignments, math.ceil(exact - 1e-9)))  # a float product may land a hair above a whole number


def rows_per_block(num_assignments: int, num_experts: int) -> int:
    """Block height of the dropless layout: a power of two near half the balanced load, so padding stays near a quarter."""
    half_load = max(1, num_assignments // (2 * num_experts))
    return min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 1 << (half_load.bit_length() - 1)))


def renormalized(weight: Float[Array, "T K"], kept: Bool[Array, "T K"]) -> Float[Array, "T K"]:
    """Scale a token's surviving weights to the sum they had before drops; tokens that lost everything stay lost."""
    surviving = (weight * kept).sum(-1, keepdims=True)
    return weight * jnp.where(surviving > 0, weight.sum(-1, keepdims=True) / jnp.where(surviving > 0, surviving, 1), 0)


def sort_by_expert(expert_index: Int[Array, "T K"], valid: Bool[Array, "T"], num_experts: int) -> ExpertOrder:
    """Sort assignments by expert with one single-key sort: key = expert * 2^bits + place hashed by an odd multiplier.

    The hash is a bijection on `bits` bits, so the assignment is read back from the key and no second array is sorted.
    Raises: AssertionError at trace time when expert and place do not fit 32 bits together.
    """
    num_assignments = expert_index.size
    bits = max(1, (num_assignments - 1).bit_length())
    assert (num_experts + 1) << bits <= 1 << 32, "expert and assignment must fit one 32-bit sort key"
    multiplier = int((1 << bits) * GOLDEN_FRACTION) | 1
    mask = jnp.uint32((1 << bits) - 1)
    place = jnp.arange(num_assignments, dtype=jnp.uint32)
    expert = jnp.where(valid[:, None], expert_index, num_experts).astype(jnp.uint32).reshape(-1)
    keys = jnp.sort((expert << bits) | ((place * jnp.uint32(multiplier)) & mask))
    assignment = (((keys & mask) * jnp.uint32(pow(multiplier, -1, 1 << bits))) & mask).astype(jnp.int32)
    bounds = jnp.searchsorted(keys, jnp.arange(num_experts + 1, dtype=jnp.uint32) << bits, method="compare_all").astype(jnp.int32)
    position = (
        jnp.zeros(num_assignments, jnp.int32)
        .at[assignment]
        .set(jnp.arange(num_assignments, dtype=jnp.int32), unique_indices=True, mode="promise_in_bounds")
    )
    rank = position.reshape(expert_index.shape) - bounds[expert_index]
    return ExpertOrder(assignment=assignment, start=bounds[:-1], load=jnp.diff(bounds), rank=rank)


def _capacity_slots(order: ExpertOrder, expert_index: Int[Array, "T K"], valid: Bool[Array, "T"], capacity: int) -> SlotMap:
    """The same number of slots for every expert: slot = expert * C + rank, ranks from C on are dropped."""
    rank = jnp.arange(capacity, dtype=jnp.int32)
    return _slot_map(
        order,
        source=(order.start[:, None] + rank).reshape(-1),
        filled=(rank < order.load[:, None]).reshape(-1),
        slot_of_assignment=expert_index * capacity + order.rank,
        kept=valid[:, None] & (order.rank < capacity),
    )


def _block_slots(
    order: ExpertOrder, expert_index: Int[Array, "T K"], valid: Bool[Array, "T"], block: int, num_blocks: int
) -> tuple[SlotMap, Int[Array, "N"]]:
    """Whole blocks per expert, one after the other, and each block's expert; blocks past the end are empty."""
    num_experts = order.start.shape[0]
    blocks_until = jnp.cumsum(-(-order.load // block))
    expert_of_block = jnp.minimum(
        jnp.searchsorted(blocks_until, jnp.arange(num_blocks), side="right", method="compare_all"), num_experts - 1
    )
    first_slot = (blocks_until - -(-order.load // block)) * block
    rank = jnp.arange(num_blocks * block).reshape(num_blocks, block) - first_slot[expert_of_block][:, None]
    slots = _slot_map(
        order,
        source=(order.start[expert_of_block][:, None] + rank).reshape(-1),
        filled=(rank < order.load[expert_of_block][:, None]).reshape(-1),
        slot_of_assignment=first_slot[expert_index] + order.rank,
        kept=jnp.broadcast_to(valid[:, None], expert_index.shape),
    )
    return slots, expert_of_block


def _slot_map(order: ExpertOrder, *, source, filled, slot_of_assignment, kept) -> SlotMap:
    """Both index maps from the place each slot reads in the sorted order; empty slots read any place."""
    num_assignments, num_choices = order.assignment.shape[0], kept.shape[1]
    assignment = order.assignment[jnp.clip(source, 0, num_assignments - 1)]
    return SlotMap(
        token_of_slot=assignment // num_choices,
        assignment_of_slot=assignment,
        filled=filled,
        slot_of_assignment=jnp.where(kept, slot_of_assignment, 0),
        kept=kept,
    )
