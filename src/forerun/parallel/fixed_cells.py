"""One cell of fixed size per sender and expert: nothing to decode, everything in its place, but an idle cell cannot lend its rows.

What a cell cannot hold travels in a further round; the rounds everyone makes are those the fullest cell of the mesh needs.
"""

# T tokens, d working width, K top_k, E experts, S shards, L = E / S experts per shard, C rows of a cell

from __future__ import annotations

import functools

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import from_slots, to_slots
from forerun.parallel.config import TransportConfig, rows_within
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import admit
from forerun.parallel.layout import slot_map
from forerun.parallel.rounds import sum_over_rounds
from forerun.parallel.shards import Axes, exchanged, largest, num_shards
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
    shards = num_shards(axes)
    num_experts = experts.w_gate.shape[0] * shards
    admission = admit(expert_index, valid, num_experts, config, axes, step)
    cell = rows_within(expert_index.size, config.sender_factor, num_experts)
    num_rounds = largest(-(-admission.admitted.max() // cell), axes)
    if config.renormalize_survivors:
        weight = renormalized(weight, admission.kept)
    one_round = functools.partial(_one_round, cell=cell, axes=axes)
    out = sum_over_rounds(one_round, num_rounds, (rows, weight, experts), (admission, expert_index))
    traffic = traffic_of(
        admission,
        valid,
        axes,
        rows_sent=num_rounds * (cell * (num_experts - num_experts // shards)),
        rows_executed=num_rounds * (cell * num_experts),
    )
    return out.astype(rows.dtype), traffic


def _one_round(number, arrays, indices, *, cell: int, axes: Axes) -> Float[Array, "T d"]:
    """Ranks `number * cell` up to the next multiple of every (sender, expert) cell."""
    rows, weight, experts = arrays
    admission, expert_index = indices
    order, shards = admission.order, num_shards(axes)
    first = number * cell
    rank = first + jnp.arange(cell, dtype=jnp.int32)
    within = order.rank - first
    slots = slot_map(
        order.assignment,
        source=(order.start[:, None] + rank).reshape(-1),
        filled=(rank < admission.admitted[admission.own][:, None]).reshape(-1),
        slot_of_assignment=expert_index * cell + within,
        kept=admission.kept & (within >= 0) & (within < cell),
    )
    payload = to_slots(rows, slots).reshape(shards, -1, rows.shape[-1])
    received = exchanged(payload, axes)
    by_expert = received.reshape(shards, -1, cell, rows.shape[-1]).swapaxes(0, 1)
    out = swiglu(by_expert.reshape(by_expert.shape[0], -1, rows.shape[-1]), *experts)
    back = out.reshape(by_expert.shape).swapaxes(0, 1).reshape(payload.shape)
    returned = exchanged(back, axes).reshape(-1, rows.shape[-1])
    return from_slots(returned.astype(jnp.float32), weight, slots)
