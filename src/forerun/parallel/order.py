"""Assignments sorted by expert, within an expert by a hash of their place that turns a little further every step."""

# T tokens, K top_k, A = T K assignments, E experts

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from forerun.parallel.config import sort_key_bits

GOLDEN_FRACTION = 0.6180339887498949  # derived: multiples of it, modulo 1, fill the unit interval evenly (Knuth, TAOCP 3, 6.4)
TURN_FRACTION = 0.41421356237309503  # derived: sqrt(2) - 1, badly approximable and unrelated to the golden section


class ExpertOrder(NamedTuple):
    """All assignments sorted by expert; within an expert in hashed order, those that do not count last."""

    assignment: Int[Array, "A"]
    """Assignments, token * K + choice, in sorted order."""
    start: Int[Array, "E"]
    """Where each expert's assignments begin in that order."""
    load: Int[Array, "E"]
    """How many there are."""
    rank: Int[Array, "T K"]
    """Each assignment's place among those of its expert; meaningless where it does not count."""


def sort_by_expert(
    expert_index: Int[Array, "T K"], counts: Bool[Array, "T K"] | Bool[Array, "T 1"], num_experts: int, step: Int[Array, ""] | int = 0
) -> ExpertOrder:
    """Sort with one single-key sort: key = expert * 2^bits + (place * odd multiplier + step * turn) modulo 2^bits.

    The hash is a bijection on `bits` bits, so the assignment is read back from the key and no second array is sorted. Whoever cuts
    an expert's list short cuts places that are spread evenly over the batch, other ones every step.

    Args:
        counts: False for assignments that are left out: padding, or another device's.
    Raises: AssertionError at trace time when expert and place do not fit 32 bits together.
    """
    num_assignments = expert_index.size
    bits = max(1, (num_assignments - 1).bit_length())
    assert sort_key_bits(num_experts, num_assignments) <= 32, "expert and assignment must fit one 32-bit sort key"
    size = 1 << bits
    multiplier, turn = int(size * GOLDEN_FRACTION) | 1, int(size * TURN_FRACTION) | 1
    mask = jnp.uint32(size - 1)
    turned = jnp.asarray(step).astype(jnp.uint32) * jnp.uint32(turn)
    place = jnp.arange(num_assignments, dtype=jnp.uint32)
    expert = jnp.where(counts, expert_index, num_experts).astype(jnp.uint32).reshape(-1)
    keys = jnp.sort((expert << bits) | ((place * jnp.uint32(multiplier) + turned) & mask))
    assignment = ((((keys & mask) - turned) * jnp.uint32(pow(multiplier, -1, size))) & mask).astype(jnp.int32)
    bounds = jnp.searchsorted(keys, jnp.arange(num_experts + 1, dtype=jnp.uint32) << bits, method="compare_all").astype(jnp.int32)
    position = (
        jnp.zeros(num_assignments, jnp.int32)
        .at[assignment]
        .set(jnp.arange(num_assignments, dtype=jnp.int32), unique_indices=True, mode="promise_in_bounds")
    )
    rank = position.reshape(expert_index.shape) - bounds[expert_index]
    return ExpertOrder(assignment=assignment, start=bounds[:-1], load=jnp.diff(bounds), rank=rank)
