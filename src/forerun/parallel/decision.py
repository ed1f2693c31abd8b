"""The one decision which assignments are dropped: made before anything is sent, the same in every transport.

Every shard tells every other how many assignments it has for each expert. From these counts alone each receiver's room is given
out by water-filling: all its (sender, expert) cells get the same number of slots, cells that want fewer leave theirs to the others,
and what is left after whole levels goes to cells in turn, beginning at another one every step. Within a cell the survivors are the
first in hashed order (`order.py`), which turns every step too. So no sender, expert or position is favoured, no room is left empty
while somebody waits for it, and a dropped row is never sent.
"""

# T tokens, K top_k, S shards, E experts, R receivers, N = S E / R cells of a receiver

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from forerun.parallel import two_stage
from forerun.parallel.config import LARGEST_COUNT, TransportConfig, rows_within
from forerun.parallel.order import ExpertOrder, sort_by_expert
from forerun.parallel.shards import Axes, gathered, largest, num_shards, own_shard


class Admission(NamedTuple):
    """What may travel. The admitted of expert e are `order.assignment[order.start[e] : order.start[e] + admitted[own, e]]`."""

    order: ExpertOrder
    admitted: Int[Array, "S E"]
    """Of every sender for every expert of the model, the same on all shards of a group."""
    starts: Int[Array, "S E"]
    """Every sender's `order.start`."""
    kept: Bool[Array, "T K"]
    """This shard's assignments that are neither padding nor dropped."""
    load: Int[Array, "E"]
    """This shard's assignments per expert, before drops."""
    own: Int[Array, ""]
    """This shard's place among the senders."""


def admit(
    expert_index: Int[Array, "T K"],
    valid: Bool[Array, "T"],
    num_experts: int,
    config: TransportConfig,
    axes: Axes,
    step: Int[Array, ""] | int,
) -> Admission:
    """Decide, given this shard's assignments; a collective over the expert axis."""
    shards, own = num_shards(axes), own_shard(axes)
    assert shards * expert_index.size < LARGEST_COUNT, "a group's assignments per layer must fit 31 bits: use more, smaller microbatches"
    counts = valid[:, None]
    if config.drop_rule == "sender_receiver":
        load = jnp.bincount(jnp.where(counts, expert_index, num_experts).reshape(-1), length=num_experts)
        counts = two_stage.keep(expert_index, valid, num_experts, config, axes)
        order = sort_by_expert(expert_index, counts, num_experts)
        kept = counts
        admitted = gathered(order.load, axes)
    else:
        order = sort_by_expert(expert_index, counts, num_experts, step if config.capacity_factor else 0)
        load = order.load
        admitted = gathered(load, axes)
        if config.capacity_factor:
            num_receivers = num_experts if config.receiver == "expert" else shards
            limit = two_stage.room(admitted.sum(), config.capacity_factor, num_receivers, shards * expert_index.size)
            admitted = water_fill(admitted, num_receivers, limit, step)
            kept = counts & (order.rank < admitted[own][expert_index])
        else:
            kept = jnp.broadcast_to(counts, expert_index.shape)
    starts = gathered(order.start, axes)
    return Admission(order=order, admitted=admitted, starts=starts, kept=kept, load=load, own=own)


def buffer_rows(num_tokens: int, top_k: int, own_experts: int, shards: int, config: TransportConfig) -> int:
    """Rows of a receiver's buffer: with a capacity, all that can be admitted to its experts together; dropless, those of one round."""
    wanted = shards * num_tokens * min(top_k, own_experts)
    num_assignments = shards * num_tokens * top_k
    if not config.capacity_factor:
        return min(wanted, rows_within(num_assignments, config.sender_factor, shards))
    if config.drop_rule == "sender_receiver":
        per_wave = rows_within(num_assignments, config.capacity_factor, own_experts * shards * config.num_waves)
        return min(wanted, own_experts * config.num_waves * per_wave)
    if config.receiver == "shard":
        return min(wanted, rows_within(num_assignments, config.capacity_factor, shards))
    return min(wanted, own_experts * rows_within(num_assignments, config.capacity_factor, own_experts * shards))


def num_rounds(admission: Admission, rows: int, config: TransportConfig, axes: Axes) -> Int[Array, ""] | int:
    """Rounds of `rows` rows that the fullest receiver of the mesh needs: one under a capacity, whose buffer holds them all."""
    if config.capacity_factor:
        return 1
    of_receiver = admission.admitted.sum(0).reshape(admission.admitted.shape[0], -1).sum(1)
    return largest(-(-of_receiver.max() // rows), axes)


def water_fill(wanted: Int[Array, "S E"], num_receivers: int, limit: Int[Array, ""], step: Int[Array, ""] | int) -> Int[Array, "S E"]:
    """Give each receiver's `limit` slots to its cells: equal levels first, the remainder in turn from cell `step` on.

    Receiver r serves experts r E/R to (r + 1) E/R; its cells are numbered sender by sender.
    """
    shards, num_experts = wanted.shape
    cells = wanted.reshape(shards, num_receivers, -1).swapaxes(0, 1).reshape(num_receivers, -1)
    level = _highest_level(cells, limit)[:, None]
    given = jnp.minimum(cells, level)
    left = limit - given.sum(-1, keepdims=True)
    turn = jnp.asarray(step, jnp.int32) % cells.shape[1]
    waiting = jnp.roll(cells > level, -turn, axis=1)
    served = jnp.roll(waiting & (jnp.cumsum(waiting, 1) <= left), turn, axis=1)
    given = given + served
    return given.reshape(num_receivers, shards, -1).swapaxes(0, 1).reshape(shards, num_experts)


def _highest_level(cells: Int[Array, "R N"], limit: Int[Array, ""]) -> Int[Array, "R"]:
    """The largest level that all cells, each up to what it wants, can be filled to within the limit; by bisection."""

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low + 1) // 2
        fits = jnp.minimum(cells, middle[:, None]).sum(-1) <= limit
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle - 1)

    highest = cells.max(-1)
    low, _ = jax.lax.fori_loop(0, 31, halve, (jnp.zeros_like(highest), highest))
    return low
