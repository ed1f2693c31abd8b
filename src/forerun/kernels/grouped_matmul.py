"""Products of groups of rows with their expert's matrices, in static shapes. The loop over experts is the reference."""

# G groups, C rows per group, A rows of all groups, d width in, f width out, E experts

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def grouped_matmul(
    rows: Float[Array, "G C d"], weights: Float[Array, "E d f"], expert_of_group: Int[Array, "G"] | None = None
) -> Float[Array, "G C f"]:
    """Multiply every group of rows by the matrix of its expert.

    Args:
        expert_of_group: None when group g belongs to expert g (capacity slots); otherwise each group's matrix is
            gathered first (dropless blocks), which costs G copies of a matrix in memory.
    """
    matrices = weights if expert_of_group is None else weights[expert_of_group]
    return jnp.einsum("gcd,gdf->gcf", rows, matrices.astype(rows.dtype))


@jax.checkpoint
def silu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x * sigmoid(x); the backward pass starts from x again, as keeping sigmoid and product costs more than making them."""
    return x * jax.nn.sigmoid(x)


@jax.checkpoint
def gated_product(gate: Float[Array, "..."], up: Float[Array, "..."]) -> Float[Array, "..."]:
    """silu(gate) * up, keeping only its two inputs for the backward pass."""
    return gate * jax.nn.sigmoid(gate) * up


def swiglu(
    rows: Float[Array, "G C d"],
    w_gate: Float[Array, "E d f"],
    w_up: Float[Array, "E d f"],
    w_down: Float[Array, "E f d"],
    expert_of_group: Int[Array, "G"] | None = None,
) -> Float[Array, "G C d"]:
    """(silu(rows W_gate) * rows W_up) W_down with each group's own matrices."""
    gate = grouped_matmul(rows, w_gate, expert_of_group)
    up = grouped_matmul(rows, w_up, expert_of_group)
    return grouped_matmul(gated_product(gate, up), w_down, expert_of_group)


def grouped_matmul_reference(
    rows: Float[np.ndarray, "A d"], weights: Float[np.ndarray, "E d f"], sizes: Int[np.ndarray, "E"]
) -> Float[np.ndarray, "A f"]:
    """The same in float64 for rows sorted by expert, `sizes` rows each; written for reading."""
    out = np.zeros((rows.shape[0], weights.shape[2]))
    start = 0
    for expert, size in enumerate(sizes):
        out[start : start + size] = rows[start : start + size].astype(np.float64) @ weights[expert].astype(np.float64)
        start += size
    return out
