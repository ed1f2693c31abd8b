"""Sums over rounds of a transport: as many as the counts ask for, one round's buffers alive at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

OneRound = Callable[[Int[Array, ""], Any, Any], Array]
"""`one_round(number, arrays, indices)`: what one round adds; linear pieces and gradients in `arrays` only."""


def sum_over_rounds(one_round: OneRound, num_rounds: Int[Array, ""] | int, arrays: Any, indices: Any) -> Array:
    """The sum of all rounds.

    One round is simply done. A fixed number of rounds is unrolled, so that a scheduler may overlap one round's transfer with another's products. A counted
    number runs as a loop. With more than one, the backward pass makes each round again from the arrays and keeps nothing between rounds.
    """
    if isinstance(num_rounds, int) and num_rounds == 1:
        return one_round(jnp.int32(0), arrays, indices)
    if isinstance(num_rounds, int):
        again = jax.checkpoint(one_round)
        return functools.reduce(jnp.add, [again(jnp.int32(number), arrays, indices) for number in range(num_rounds)])
    return _counted(one_round, num_rounds, arrays, indices)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _counted(one_round, num_rounds, arrays, indices):
    shape = jax.eval_shape(one_round, jax.ShapeDtypeStruct((), jnp.int32), arrays, indices)
    zero = jnp.zeros(shape.shape, shape.dtype)
    return jax.lax.fori_loop(0, num_rounds, lambda number, total: total + one_round(number, arrays, indices), zero)


def _forward(one_round, num_rounds, arrays, indices):
    return _counted(one_round, num_rounds, arrays, indices), (num_rounds, arrays, indices)


def _backward(one_round, saved, d_out):
    num_rounds, arrays, indices = saved

    def add(number, gradients):
        _, pull = jax.vjp(lambda arrays: one_round(number, arrays, indices), arrays)
        return jax.tree.map(lambda total, part: total + part.astype(jnp.float32), gradients, pull(d_out)[0])

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), arrays)
    gradients = jax.lax.fori_loop(0, num_rounds, add, zeros)
    d_arrays = jax.tree.map(lambda leaf, gradient: gradient.astype(leaf.dtype), arrays, gradients)
    return _none(num_rounds), d_arrays, jax.tree.map(_none, indices)


def _none(leaf):
    return np.zeros(jnp.shape(leaf), jax.dtypes.float0)


_counted.defvjp(_forward, _backward)
