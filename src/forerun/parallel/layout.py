"""Rows of several experts in one buffer of whole blocks, so that any split of the rows over experts fits the same static shape."""

# G groups (experts, or an expert's rows), N blocks, B rows per block, A assignments, T tokens, K top_k, S slots

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.slots import SlotMap

MAX_BLOCK_ROWS = 128  # measured: 64 and 128 are equally fast on CPUs (design note 0010), larger pads more
MIN_BLOCK_ROWS = 8  # assumed: below this a matrix product is all overhead


class Blocks(NamedTuple):
    """Whole blocks per expert, one expert after the other; blocks past the end are empty."""

    first_slot: Int[Array, "G"]
    """Where each expert's rows begin in the buffer."""
    expert_of_block: Int[Array, "N"]
    expert_of_slot: Int[Array, "S"]
    rank_of_slot: Int[Array, "S"]
    """Place among the expert's rows; meaningless where not filled."""
    filled: Bool[Array, "S"]


def rows_per_block(num_rows: int, num_experts: int) -> int:
    """Block height: a power of two near half the balanced load, so padding stays near a quarter."""
    half_load = max(1, num_rows // (2 * num_experts))
    return min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 1 << (half_load.bit_length() - 1)))


def in_blocks(load: Int[Array, "G"], num_rows: int, block: int) -> Blocks:
    """Lay out `load[g]` rows of each expert, at most `num_rows` together, in blocks of `block` rows."""
    num_experts = load.shape[0]
    num_blocks = num_slots(num_rows, num_experts, block) // block
    blocks_until = jnp.cumsum(-(-load // block))
    expert_of_block = jnp.minimum(
        jnp.searchsorted(blocks_until, jnp.arange(num_blocks), side="right", method="compare_all"), num_experts - 1
    )
    first_slot = (blocks_until - -(-load // block)) * block
    rank = jnp.arange(num_blocks * block).reshape(num_blocks, block) - first_slot[expert_of_block][:, None]
    return Blocks(
        first_slot=first_slot,
        expert_of_block=expert_of_block,
        expert_of_slot=jnp.repeat(expert_of_block, block),
        rank_of_slot=rank.reshape(-1),
        filled=(rank < load[expert_of_block][:, None]).reshape(-1),
    )


def num_slots(num_rows: int, num_experts: int, block: int) -> int:
    """Slots that `in_blocks` lays out."""
    return (-(-num_rows // block) + num_experts) * block


class Window(NamedTuple):
    """The part of each expert's rows that one of several rounds takes, rows of all experts being counted one after the other."""

    skip: Int[Array, "G"]
    """Rows of earlier rounds."""
    count: Int[Array, "G"]


def window(load: Int[Array, "G"], number: Int[Array, ""], size: int) -> Window:
    """Round `number` of `size` rows each."""
    begin = jnp.cumsum(load) - load
    skip = jnp.clip(number * size - begin, 0, load)
    return Window(skip, jnp.clip((number + 1) * size - begin, 0, load) - skip)


def slot_map(
    assignments: Int[Array, "A"],
    source: Int[Array, "S"],
    filled: Bool[Array, "S"],
    slot_of_assignment: Int[Array, "T K"],
    kept: Bool[Array, "T K"],
) -> SlotMap:
    """Both index maps, from the place in a list of assignments that each slot reads; empty slots read any place."""
    assignment = assignments[jnp.clip(source, 0, assignments.shape[0] - 1)]
    return SlotMap(
        token_of_slot=assignment // kept.shape[1],
        assignment_of_slot=assignment,
        filled=filled,
        slot_of_assignment=jnp.where(kept, slot_of_assignment, 0),
        kept=kept,
    )


class Moves(NamedTuple):
    """A one-to-one move of rows between two buffers, known in both directions."""

    source: Int[Array, "S"]
    """The row that each place of the new buffer takes."""
    filled: Bool[Array, "S"]
    """Whether it takes one; the others become zeros."""
    target: Int[Array, "A"]
    """Where each row of the old buffer goes."""
    moved: Bool[Array, "A"]
    """Whether it goes anywhere."""

    def back(self) -> Moves:
        """The opposite move."""
        return Moves(self.target, self.moved, self.source, self.filled)


def moves_to(target: Int[Array, "A"], moved: Bool[Array, "A"], size: int) -> Moves:
    """The move that puts row i at `target[i]`; targets of moved rows differ. Inverted by one scatter of integers."""
    rows = jnp.arange(target.shape[0], dtype=jnp.int32)
    source = jnp.full(size, -1, jnp.int32).at[jnp.where(moved, target, size)].set(rows, mode="drop", unique_indices=True)
    return Moves(jnp.maximum(source, 0), source >= 0, jnp.where(moved, target, 0), moved)


@jax.custom_vjp
def moved(rows: Float[Array, "A d"], moves: Moves) -> Float[Array, "S d"]:
    """The new buffer. Its gradient is the opposite gather: no scatter of data in either direction."""
    return jnp.where(moves.filled[:, None], rows[moves.source], 0)


def _moved_forward(rows, moves):
    return moved(rows, moves), moves


def _moved_backward(moves, d_out):
    return moved(d_out, moves.back()), jax.tree.map(lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), moves)


moved.defvjp(_moved_forward, _moved_backward)
