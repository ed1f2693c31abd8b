"""Newton-Schulz: the nearest semi-orthogonal matrix, by products alone, for many matrices of one shape at once."""

# N matrices, R rows, C columns, R <= C

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

QUINTIC = (3.4445, -4.7750, 2.0315)  # assumed: Muon's published coefficients (kellerjordan.github.io/posts/muon); slope at 0 is the first


def orthogonalize(matrices: Float[Array, "N R C"], num_steps: int) -> Float[Array, "N R C"]:
    """Each matrix with its singular values pushed towards 1 (into about 0.7..1.2 after 5 steps), its singular vectors kept.

    Works in the matrices' own dtype; rows must not outnumber columns, or the products are larger than they need be.
    """
    a, b, c = QUINTIC
    x = matrices / (jnp.sqrt(jnp.sum(jnp.square(matrices), axis=(-2, -1), keepdims=True)) + 1e-12)
    for _ in range(num_steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x
