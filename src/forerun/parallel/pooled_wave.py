"""Waves of pools: one pool of rows per sender and destination shard and wave, expert ids in the payload's own header rows.

A sender's rows for one destination are dealt over the waves like cards, so all waves are equally deep. One exchange carries ids and
rows. The receiver ranks what arrived slot by slot over all senders, compacts it by inverted indices, computes, and sends every row
back to the slot it came from. Forward and backward move data by gathers and one-to-one moves alone.

Under `water_filling` what was admitted always fits: when a pool is fuller than `sender_factor` foresaw, there are more waves. Under
`sender_receiver` the waves are fixed and both sides drop what does not fit, as the original does.
Source: reference model-and-training 4.2.
"""

# T tokens, d working width, K top_k, A = T K assignments, E experts, S shards, L = E / S experts per shard, P slots of a pool, M header rows

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import SlotMap, from_slots, to_slots
from forerun.parallel import two_stage
from forerun.parallel.config import TransportConfig, check_header_ids, rows_within
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import Admission, admit
from forerun.parallel.layout import Moves, in_blocks, moved, moves_to, num_slots, rows_per_block
from forerun.parallel.rounds import sum_over_rounds
from forerun.parallel.shards import Axes, exchanged, group_sum, largest, num_shards
from forerun.parallel.weights import renormalized, traffic_of


class Dealt(NamedTuple):
    """Where each assignment travels."""

    expert_index: Int[Array, "T K"]
    wave: Int[Array, "T K"]
    slot: Int[Array, "T K"]
    """Within the pool of its destination."""
    sent: Bool[Array, "T K"]
    rows_per_expert: Int[Array, ""]
    """Rows an expert takes in a wave; what arrives beyond is dropped. Read only by `sender_receiver`."""


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
    """As `local.run_experts`, `experts` being those of this shard. Raises: ConfigError when the rows' dtype cannot carry the ids."""
    shards, own_experts = num_shards(axes), experts.w_gate.shape[0]
    check_header_ids(own_experts, rows.dtype.name)
    pool = rows_within(expert_index.size, config.sender_factor, shards * config.num_waves)
    admission = admit(expert_index, valid, own_experts * shards, config, axes, step)
    if config.drop_rule == "sender_receiver":
        buffer_rows = rows_within(shards * expert_index.size, config.capacity_factor, own_experts * shards * config.num_waves)
        dealt, num_waves = _two_stages(expert_index, valid, own_experts * shards, config, axes), config.num_waves
        executed = own_experts * buffer_rows
    else:
        buffer_rows = 0
        dealt, num_waves = _water_filled(admission, expert_index, pool, config, axes)
        executed = num_slots(shards * pool, own_experts, rows_per_block(shards * pool, own_experts))
    if config.renormalize_survivors:
        weight = renormalized(weight, admission.kept)
    one_wave = functools.partial(_one_wave, pool=pool, buffer_rows=buffer_rows, axes=axes)
    out = sum_over_rounds(one_wave, num_waves, (rows, weight, experts), dealt)
    sent = (shards - 1) * (_header_rows(pool, rows.shape[-1]) + pool)
    traffic = traffic_of(admission, valid, axes, rows_sent=num_waves * sent, rows_executed=num_waves * executed)
    return out.astype(rows.dtype), traffic


def _two_stages(expert_index, valid, num_experts: int, config: TransportConfig, axes: Axes) -> Dealt:
    shards = num_shards(axes)
    pooled = two_stage.pool(expert_index, valid, num_experts, shards, config)
    num_valid = group_sum(valid.sum(), axes) * expert_index.shape[1]
    limit = two_stage.receiver_limit(num_valid, shards * expert_index.size, num_experts, config)
    return Dealt(expert_index, pooled.wave, pooled.slot, pooled.sent, limit)


def _water_filled(
    admission: Admission, expert_index: Int[Array, "T K"], pool: int, config: TransportConfig, axes: Axes
) -> tuple[Dealt, Int[Array, ""]]:
    """Deal every admitted assignment over as many waves as the fullest pool of the mesh needs."""
    shards = num_shards(axes)
    by_destination = admission.admitted[admission.own].reshape(shards, -1)
    before = (jnp.cumsum(by_destination, 1) - by_destination).reshape(-1)
    rank = before[expert_index] + admission.order.rank
    fullest = largest(admission.admitted.reshape(shards, shards, -1).sum(-1).max(), axes)
    num_waves = jnp.maximum(config.num_waves, -(-fullest // pool))
    return Dealt(expert_index, rank % num_waves, rank // num_waves, admission.kept, jnp.int32(0)), num_waves


def _one_wave(number, arrays, dealt: Dealt, *, pool: int, buffer_rows: int, axes: Axes) -> Float[Array, "T d"]:
    """What wave `number` adds to the rows, in float32."""
    rows, weight, experts = arrays
    shards, own_experts = num_shards(axes), experts.w_gate.shape[0]
    slots = _slots_of(dealt, number, shards, own_experts, pool)
    local_expert = (dealt.expert_index % own_experts).reshape(-1)[slots.assignment_of_slot]
    header = _header(jnp.where(slots.filled, local_expert + 1, 0).reshape(shards, pool), rows.shape[-1]).astype(rows.dtype)
    payload = jnp.concatenate([header, to_slots(rows, slots).reshape(shards, pool, -1)], 1)
    received = exchanged(payload, axes)
    num_header = header.shape[1]
    ids = jax.lax.stop_gradient(received[:, :num_header]).reshape(shards, -1)[:, :pool].astype(jnp.int32) - 1
    out, moves = _computed(received[:, num_header:].reshape(shards * pool, -1), ids, experts, dealt.rows_per_expert, buffer_rows)
    back = moved(out, moves.back()).reshape(shards, pool, -1)
    returned = exchanged(back, axes).reshape(shards * pool, -1)
    return from_slots(returned.astype(jnp.float32), weight, slots)


def _slots_of(dealt: Dealt, number: Int[Array, ""], shards: int, own_experts: int, pool: int) -> SlotMap:
    """Which assignment fills which slot of this wave's payload, by one scatter of integers."""
    here = dealt.sent & (dealt.wave == number)
    slot = (dealt.expert_index // own_experts) * pool + dealt.slot
    moves = moves_to(slot.reshape(-1), here.reshape(-1), shards * pool)
    return SlotMap(
        token_of_slot=moves.source // here.shape[1],
        assignment_of_slot=moves.source,
        filled=moves.filled,
        slot_of_assignment=moves.target.reshape(here.shape),
        kept=here,
    )


def _computed(
    received: Float[Array, "S*P d"], ids: Int[Array, "S P"], experts: ExpertParams, limit: Int[Array, ""], buffer_rows: int
) -> tuple[Array, Moves]:
    """Expert outputs in the order of the expert buffer, and the move that brought the received rows there.

    Rows of one expert are ranked slot by slot over all senders, so that no sender is served before the others.
    """
    own_experts, width = experts.w_gate.shape[0], received.shape[-1]
    expert = jnp.where(ids >= 0, ids, own_experts)
    rank = two_stage.rank_within(expert.T, own_experts).T.reshape(-1)
    expert = expert.reshape(-1)
    here = expert < own_experts
    if buffer_rows:
        moves = moves_to(expert * buffer_rows + rank, here & (rank < limit), own_experts * buffer_rows)
        buffer = moved(received, moves).reshape(own_experts, buffer_rows, width)
        return swiglu(buffer, *experts).reshape(-1, width), moves
    load = jnp.bincount(expert, length=own_experts)
    blocks = in_blocks(load, received.shape[0], rows_per_block(received.shape[0], own_experts))
    first_slot = blocks.first_slot[jnp.minimum(expert, own_experts - 1)]
    moves = moves_to(first_slot + rank, here, blocks.filled.size)
    buffer = moved(received, moves).reshape(blocks.expert_of_block.shape[0], -1, width)
    return swiglu(buffer, *experts, blocks.expert_of_block).reshape(-1, width), moves


def _header_rows(pool: int, width: int) -> int:
    return -(-pool // width)


def _header(ids: Int[Array, "S P"], width: int) -> Int[Array, "S M d"]:
    """The ids of each destination's slots, as whole rows."""
    num_rows = _header_rows(ids.shape[1], width)
    return jnp.pad(ids, ((0, 0), (0, num_rows * width - ids.shape[1]))).reshape(ids.shape[0], num_rows, width)
