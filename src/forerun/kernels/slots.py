"""Move rows into expert slots and back by gathers alone: both directions know both index maps, so no gradient needs a scatter-add."""

# T tokens, K top_k, A = T K assignments, S slots (all experts together), d width

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class SlotMap(NamedTuple):
    """Which assignment fills which slot, both ways. An assignment is token * K + choice."""

    token_of_slot: Int[Array, "S"]
    """Any token for an empty slot."""
    assignment_of_slot: Int[Array, "S"]
    """Any assignment for an empty slot."""
    filled: Bool[Array, "S"]
    """Whether an assignment sits in the slot."""
    slot_of_assignment: Int[Array, "T K"]
    """Any slot for a dropped or padding assignment."""
    kept: Bool[Array, "T K"]
    """Whether the assignment has a slot."""


@jax.custom_vjp
def to_slots(rows: Float[Array, "T d"], slots: SlotMap) -> Float[Array, "S d"]:
    """Copy each token's row into the slots of its assignments; empty slots hold some real row, never zeros or NaN."""
    return rows[slots.token_of_slot]


def _to_slots_forward(rows, slots):
    return to_slots(rows, slots), slots


def _to_slots_backward(slots, d_buffer):
    return _weighted_sum(d_buffer, slots.kept.astype(d_buffer.dtype), slots), _no_gradient(slots)


@jax.custom_vjp
def from_slots(buffer: Float[Array, "S d"], weight: Float[Array, "T K"], slots: SlotMap) -> Float[Array, "T d"]:
    """Sum each token's expert outputs times their weights, in float32; a dropped assignment adds nothing."""
    return _weighted_sum(buffer, (weight * slots.kept).astype(jnp.float32), slots).astype(buffer.dtype)


def _from_slots_forward(buffer, weight, slots):
    return from_slots(buffer, weight, slots), (buffer, weight, slots)


def _from_slots_backward(saved, d_out):
    buffer, weight, slots = saved
    weight_of_slot = (weight.reshape(-1)[slots.assignment_of_slot] * slots.filled).astype(buffer.dtype)
    d_buffer = d_out[slots.token_of_slot] * weight_of_slot[:, None]
    picked = buffer[slots.slot_of_assignment]
    d_weight = jnp.einsum("tkd,td->tk", picked, d_out, preferred_element_type=jnp.float32) * slots.kept
    return d_buffer, d_weight.astype(weight.dtype), _no_gradient(slots)


def _weighted_sum(buffer: Float[Array, "S d"], weight: Float[Array, "T K"], slots: SlotMap) -> Float[Array, "T d"]:
    """Sum of each token's rows times their weights, in the weights' dtype.

    Choice by choice: one gather of [T, K, d] and a sum over its middle takes XLA on CPUs two to four times as long (design note 0024).
    """
    total: Any = 0
    for choice in range(weight.shape[1]):
        total = total + buffer[slots.slot_of_assignment[:, choice]] * weight[:, choice, None]
    return total


def _no_gradient(tree):
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, jax.dtypes.float0), tree)


to_slots.defvjp(_to_slots_forward, _to_slots_backward)
from_slots.defvjp(_from_slots_forward, _from_slots_backward)
