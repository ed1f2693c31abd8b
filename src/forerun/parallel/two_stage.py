"""The original's rule, kept for faithful rehearsal: a sender drops what its pools cannot hold, a receiver what its experts cannot.

A row can survive the first stage and die at the second; late tokens of a crowded destination are always the ones that go. Stage one
is arithmetic on a sender's own assignments. Stage two is decided where rows arrive; other transports than `pooled_wave` find it out
beforehand by gathering all expert ids of the group.
Source: reference model-and-training 4.2 (waves, pools, round-robin ranking of senders).
"""

# T tokens, K top_k, A = T K assignments, S shards, E experts, L experts per shard, W waves

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from forerun.parallel.config import ROUNDING, TransportConfig, rows_within
from forerun.parallel.shards import Axes, gathered, num_shards, own_shard


class Pooled(NamedTuple):
    """Each assignment's place in its destination's pool."""

    wave: Int[Array, "T K"]
    slot: Int[Array, "T K"]
    sent: Bool[Array, "T K"]
    """Neither padding nor beyond the pool."""


def pool(expert_index: Int[Array, "T K"], valid: Bool[Array, "T"], num_experts: int, shards: int, config: TransportConfig) -> Pooled:
    """Stage one: rank assignments of one destination in token order and deal them over the waves; ranks beyond the pool are dropped."""
    destination = jnp.where(valid[:, None], expert_index // (num_experts // shards), shards)
    rank = rank_within(destination, shards)
    wave, slot = rank % config.num_waves, rank // config.num_waves
    return Pooled(wave, slot, valid[:, None] & (slot < pool_limit(valid, expert_index.size, shards, config)))


def pool_limit(valid: Bool[Array, "T"], num_assignments: int, shards: int, config: TransportConfig) -> Int[Array, ""]:
    """Slots of a pool that this sender's valid assignments entitle it to: padding must not eat capacity."""
    parts = shards * config.num_waves
    num_valid = valid.sum() * (num_assignments // valid.size)
    return room(num_valid, config.sender_factor, parts, num_assignments)


def receiver_limit(num_valid: Int[Array, ""], num_assignments: int, num_experts: int, config: TransportConfig) -> Int[Array, ""]:
    """Rows an expert takes per wave, from the valid assignments of the whole group."""
    parts = num_experts * config.num_waves
    return room(num_valid, config.capacity_factor, parts, num_assignments)


def keep(
    expert_index: Int[Array, "T K"], valid: Bool[Array, "T"], num_experts: int, config: TransportConfig, axes: Axes
) -> Bool[Array, "T K"]:
    """Both stages, foreseen: which of this shard's assignments an expert will take."""
    shards = num_shards(axes)
    index, is_valid = gathered(expert_index, axes), gathered(valid, axes)
    pooled = jax.vmap(lambda one_index, one_valid: pool(one_index, one_valid, num_experts, shards, config))(index, is_valid)
    num_valid = is_valid.sum() * expert_index.shape[1]
    limit = receiver_limit(num_valid, index.size, num_experts, config)
    sender = jnp.broadcast_to(jnp.arange(shards)[:, None, None], index.shape)
    queue = jnp.where(pooled.sent, index * config.num_waves + pooled.wave, num_experts * config.num_waves)
    ordered = jnp.lexsort((sender.reshape(-1), pooled.slot.reshape(-1), queue.reshape(-1)))
    place = jnp.zeros(index.size, jnp.int32).at[ordered].set(jnp.arange(index.size, dtype=jnp.int32), unique_indices=True)
    first = jnp.searchsorted(queue.reshape(-1)[ordered], jnp.arange(num_experts * config.num_waves + 1))
    rank = place.reshape(index.shape) - first[queue]
    return (pooled.sent & (rank < limit))[own_shard(axes)]


def rank_within(group: Int[Array, "T K"], num_groups: int) -> Int[Array, "T K"]:
    """Each assignment's place among those of its group, in token order; group `num_groups` holds what does not count."""
    flat = group.reshape(-1)
    ordered = jnp.argsort(flat, stable=True)
    place = jnp.zeros(flat.size, jnp.int32).at[ordered].set(jnp.arange(flat.size, dtype=jnp.int32), unique_indices=True)
    first = jnp.searchsorted(flat[ordered], jnp.arange(num_groups + 1))
    return (place - first[flat]).reshape(group.shape)


def room(num_valid: Int[Array, ""], factor: float, parts: int, num_assignments: int) -> Int[Array, ""]:
    """Rows one of `parts` may hold: its share of the valid assignments times the factor, at most what its buffer holds of all.

    With padding it is computed in float32, whose rounding can pass the whole number that Python finds for the buffer: hence the
    clip, and the slack, which costs a row in a million.
    """
    buffer = rows_within(num_assignments, factor, parts)
    share = jnp.ceil(num_valid.astype(jnp.float32) * jnp.float32(factor / parts * (1 - ROUNDING))).astype(jnp.int32)
    return jnp.where(num_valid == num_assignments, buffer, jnp.clip(share, 1, buffer))
