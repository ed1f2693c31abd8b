"""Newton-Schulz: the nearest semi-orthogonal matrix, by products alone, for many matrices of one shape at once.

Two forms of one idea, an odd polynomial that pushes every singular value towards 1, applied again and again: the published one, and
one with half the work for large matrices.
"""

# N matrices, R rows, C columns, R <= C

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

from forerun.kernels.blocks import num_equal_parts

QUINTIC = (3.4445, -4.7750, 2.0315)  # assumed: Muon's published coefficients (kellerjordan.github.io/posts/muon); slope at 0 is the first

# derived: minimax quintics of 1 on 0.01..1, then on what each leaves (tests/optim solves for them again); error 0.27 after all three
MINIMAX = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
TINY = 1e-30  # keeps a zero matrix from dividing by zero

CHUNK_BYTES = 4 << 20  # measured: 2 and 4 MiB are equally fast, 48 MiB at once take 1.1 times as long; see design note 0022

Precision = Literal["float32", "bfloat16"]


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


def orthogonalize_by_gram(matrices: Float[Array, "N R C"], precision: Precision) -> Float[Array, "N R C"]:
    """The same with half the products: three better polynomials, multiplied up on R x R matrices and applied once.

    With G = X X', the step X <- P(G) X turns G into P G P, so only the first product and the last are as wide as X. G is scaled to norm
    1, which bounds the largest singular value far more tightly than the norm of X does.

    Args:
        precision: of the factors; sums are float32. bfloat16 leaves directions below about 3% of the largest to chance.
    Returns: float32; singular values from 1% of G's root norm on end in about 0.7..1.3, smaller ones are raised 80-fold at most.
    """
    dtype = jnp.dtype(precision)

    def times(left: Array, right: Array) -> Array:
        return jnp.matmul(left.astype(dtype), right.astype(dtype), preferred_element_type=jnp.float32)

    largest = jnp.max(jnp.abs(matrices), axis=(-2, -1), keepdims=True)
    x = (matrices / (largest + TINY)).astype(dtype)
    gram = times(x, x.mT if dtype == jnp.float32 else _stored_by_rows(x.mT))
    norm = jnp.sqrt(jnp.sum(jnp.square(gram), axis=(-2, -1), keepdims=True)) + TINY
    gram, identity = gram / norm, jnp.eye(matrices.shape[-2])
    product = None
    for index, (a, b, c) in enumerate(MINIMAX):
        step = a * identity + b * gram + c * times(gram, gram)
        product = step if product is None else times(step, product)
        if index + 1 < len(MINIMAX):
            gram = times(times(step, gram), step)
    assert product is not None
    return times(product * jnp.sqrt(1 / norm), x)


def in_chunks(orthogonalized: Callable[[Array], Array], matrices: Float[Array, "N R C"]) -> Float[Array, "N R C"]:
    """The same a few matrices at a time, so that what lies between two products stays in the cache; for one device."""
    num_chunks = num_equal_parts(matrices.shape[0], matrices.size * 4, CHUNK_BYTES)
    if num_chunks == 1:
        return orthogonalized(matrices)
    chunks = matrices.reshape(num_chunks, -1, *matrices.shape[1:])
    return jax.lax.map(orthogonalized, chunks).reshape(matrices.shape)


def _stored_by_rows(matrices: Float[Array, "N R C"]) -> Float[Array, "N R C"]:
    """A transpose that is made: on CPUs XLA hands products a transposed view instead, which in bfloat16 run at half the speed."""
    if jax.default_backend() != "cpu":
        return matrices
    return with_layout_constraint(matrices, Layout(tuple(range(matrices.ndim))))
