"""Exact transfers: every expert's admitted rows travel as one piece of exactly their number and land sorted by expert.

The rows lie sorted at the sender, each piece is read in place, and the receiver needs neither ids nor a sort: all offsets follow from
the counts everyone has. `jax.lax.ragged_all_to_all` exists on accelerators; on CPUs `exchange_emulated` gathers all rows and picks,
with the same semantics, and a run's record says so.
Source: reference model-and-training 4.3.
"""

# T tokens, d working width, K top_k, A = T K assignments, E = S L experts, S shards, L experts per shard, U = E pieces, O rows of an output

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import swiglu
from forerun.kernels.slots import SlotMap, from_slots, to_slots
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import ExpertParams, Traffic
from forerun.parallel.decision import Admission, admit, buffer_rows, num_rounds
from forerun.parallel.layout import in_blocks, num_slots, rows_per_block, window
from forerun.parallel.mesh import EXPERT_AXIS
from forerun.parallel.rounds import sum_over_rounds
from forerun.parallel.shards import Axes, gathered, num_shards
from forerun.parallel.weights import renormalized, traffic_of

NATIVE_PLATFORMS = ("gpu", "cuda", "rocm", "tpu")  # where XLA implements the ragged exchange


class Pieces(NamedTuple):
    """The pieces one shard sends and gets, those of one peer together; rows are counted from the start of each array."""

    leave: Int[Array, "U"]
    """Where each piece starts in the own operand."""
    size: Int[Array, "U"]
    land: Int[Array, "U"]
    """Where it starts in the peer's output."""
    come_from: Int[Array, "U"]
    """Where each piece that comes here starts in its sender's operand."""
    come_size: Int[Array, "U"]
    come_to: Int[Array, "U"]
    """Where it starts in the own output."""

    def back(self) -> Pieces:
        """The same pieces the other way."""
        return Pieces(self.come_to, self.come_size, self.come_from, self.land, self.size, self.leave)


def is_emulated() -> bool:
    """Whether this process's default backend has no ragged exchange of its own."""
    return jax.default_backend() not in NATIVE_PLATFORMS


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
    size = buffer_rows(num_tokens, top_k, own_experts, shards, config)
    rounds = num_rounds(admission, size, config, axes)
    block = rows_per_block(size, own_experts)
    if config.renormalize_survivors:
        weight = renormalized(weight, admission.kept)
    one_round = functools.partial(_one_round, size=size, block=block, axes=axes)
    slots = _sorted_slots(admission, expert_index)
    out = sum_over_rounds(one_round, rounds, (rows, weight, experts), (admission, slots))
    to_shard = admission.admitted[admission.own].reshape(shards, -1).sum(1)
    traffic = traffic_of(
        admission,
        valid,
        axes,
        rows_sent=to_shard.sum() - to_shard[admission.own],
        rows_executed=rounds * num_slots(size, own_experts, block),
    )
    return out.astype(rows.dtype), traffic


def _one_round(number, arrays, indices, *, size: int, block: int, axes: Axes) -> Float[Array, "T d"]:
    """What the next `size` rows of every receiver add to the rows of this shard."""
    rows, weight, experts = arrays
    admission, slots = indices
    pieces, own_count = pieces_of(admission, number, size, block)
    blocks = in_blocks(own_count, size, block)
    buffer = exchange(to_slots(rows, slots), pieces, blocks.filled.size, axes)
    in_tiles = buffer.reshape(blocks.expert_of_block.shape[0], block, -1)
    out = swiglu(in_tiles, experts.w_gate, experts.w_up, experts.w_down, blocks.expert_of_block)
    returned = exchange(out.reshape(buffer.shape), pieces.back(), slots.token_of_slot.shape[0], axes)
    return from_slots(returned.astype(jnp.float32), weight, slots)


def pieces_of(admission: Admission, number: Int[Array, ""], size: int, block: int) -> tuple[Pieces, Int[Array, "L"]]:
    """One piece per expert and sender, and how many rows each of this shard's experts gets, in round `number` of `size` rows a shard.

    Experts begin at whole blocks of the receiver, senders follow each other within an expert.
    """
    admitted, own = admission.admitted, admission.own
    shards = admitted.shape[0]
    part = jax.vmap(lambda load: window(load, number, size))(admitted.sum(0).reshape(shards, -1))
    skip = part.skip.reshape(-1)
    before = jnp.cumsum(admitted, 0) - admitted
    first = jnp.clip(skip - before, 0, admitted)
    count = jnp.clip(skip + part.count.reshape(-1) - before, 0, admitted) - first
    padded = -(-part.count // block) * block
    first_slot = (jnp.cumsum(padded, 1) - padded).reshape(-1)
    landing = first_slot + jnp.cumsum(count, 0) - count
    starts = admission.starts + first

    def for_own_experts(table: Int[Array, "S E"]) -> Int[Array, "U"]:
        return table.reshape(shards, shards, -1)[:, own].reshape(-1)

    pieces = Pieces(
        leave=starts[own],
        size=count[own],
        land=landing[own],
        come_from=for_own_experts(starts),
        come_size=for_own_experts(count),
        come_to=for_own_experts(landing),
    )
    return pieces, part.count[own]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def exchange(operand: Float[Array, "A d"], pieces: Pieces, num_rows: int, axes: Axes) -> Float[Array, "O d"]:
    """The output of `num_rows` rows with every piece in its place and zeros elsewhere; the gradient sends the pieces back."""
    if not axes or is_emulated():
        return exchange_emulated(operand, pieces, num_rows, axes)
    # Zeros the compiler cannot know: constant ones are hoisted out of layer loops and copied back once per layer.
    zero = jnp.minimum(pieces.size[0], 0).astype(operand.dtype)
    output = jnp.full((num_rows, operand.shape[1]), zero)
    return jax.lax.ragged_all_to_all(operand, output, pieces.leave, pieces.size, pieces.land, pieces.come_size, axis_name=EXPERT_AXIS)


def exchange_emulated(operand: Float[Array, "A d"], pieces: Pieces, num_rows: int, axes: Axes) -> Float[Array, "O d"]:
    """The same from everyone's whole operand: each output row finds the piece that covers it."""
    everyone = gathered(operand, axes)
    beyond = jnp.int32(num_rows)
    begin = jnp.where(pieces.come_size > 0, pieces.come_to, beyond)
    by_place = jnp.argsort(begin)
    place = jnp.arange(num_rows, dtype=jnp.int32)
    piece = by_place[jnp.maximum(jnp.searchsorted(begin[by_place], place, side="right") - 1, 0)]
    within = place - begin[piece]
    covered = (within >= 0) & (within < pieces.come_size[piece])
    sender = piece // (pieces.size.shape[0] // everyone.shape[0])
    row = jnp.where(covered, pieces.come_from[piece] + within, 0)
    return jnp.where(covered[:, None], everyone[sender, row], 0)


def _exchange_forward(operand, pieces, num_rows, axes):
    return exchange(operand, pieces, num_rows, axes), (pieces, operand.shape[0])


def _exchange_backward(num_rows, axes, saved, d_out):
    del num_rows
    pieces, operand_rows = saved
    d_operand = exchange(d_out, pieces.back(), operand_rows, axes)
    return d_operand, jax.tree.map(lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), pieces)


exchange.defvjp(_exchange_forward, _exchange_backward)


def _sorted_slots(admission: Admission, expert_index: Int[Array, "T K"]) -> SlotMap:
    """Every assignment at its place in sorted order, dropped ones included: what does not travel comes back as zeros."""
    order, kept = admission.order, admission.kept
    filled: Bool[Array, "A"] = kept.reshape(-1)[order.assignment]
    return SlotMap(
        token_of_slot=order.assignment // kept.shape[1],
        assignment_of_slot=order.assignment,
        filled=filled,
        slot_of_assignment=jnp.where(kept, order.start[expert_index] + order.rank, 0),
        kept=kept,
    )
