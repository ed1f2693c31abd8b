"""MuonH and AdamH: steps on the sphere of constant Frobenius norm.

    W' = W - eta * u * |W|/|u|,   then   W <- W' * radius/|W'|

`u` is the orthogonalised Nesterov momentum (MuonH) or Adam's direction (AdamH); the radius is the norm at the start of training,
kept in the optimizer state so that rounding and restores cannot let it drift. Source: reference model-and-training 2.3.
"""

# E experts (or any leading axes), R rows, C columns

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

TINY = 1e-30  # keeps a zero direction from dividing by zero; far below any real norm


def norm_axes(leaf: Array, *, pooled: bool) -> tuple[int, ...]:
    """Axes of one kept norm: the matrix, or with `pooled` all matrices of a layer's expert stack together."""
    return (-3, -2, -1) if pooled and leaf.ndim >= 3 else (-2, -1)


def frobenius(leaf: Float[Array, "... R C"], axes: tuple[int, ...]) -> Float[Array, "..."]:
    """Norm over the given axes in float32, axes kept."""
    return jnp.sqrt(jnp.sum(jnp.square(leaf.astype(jnp.float32)), axis=axes, keepdims=True))


def sphere_step(
    weight: Float[Array, "... R C"],
    direction: Float[Array, "... R C"],
    radius: Float[Array, "..."],
    eta: Float[Array, ""],
    axes: tuple[int, ...],
) -> Float[Array, "... R C"]:
    """The weight after an angular step of `eta` along `-direction`, put back on its sphere."""
    moved = weight - eta * direction * (radius / (frobenius(direction, axes) + TINY))
    return moved * (radius / (frobenius(moved, axes) + TINY))


class Joiner(NamedTuple):
    """How matrices of one shape become one batch, and come apart again."""

    join: Callable[[list[Array]], Array]
    split: Callable[[Array, list[int]], list[Array]]
    """The parts in order, given how many matrices each has."""


def in_one_row(parts: list[Float[Array, "N R C"]]) -> Float[Array, "M R C"]:
    """One after the other."""
    return jnp.concatenate(parts)


def cut_apart(batch: Float[Array, "M R C"], sizes: list[int]) -> list[Float[Array, "N R C"]]:
    """The inverse of `in_one_row`; what is left over behind the last part is padding."""
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return [batch[start : start + size] for start, size in zip(starts, sizes)]


ONE_DEVICE = Joiner(in_one_row, cut_apart)


def orthogonal_directions(
    directions: Sequence[Float[Array, "... R C"]], orthogonalized: Callable[[Array], Array], joiner: Joiner = ONE_DEVICE
) -> list[Array]:
    """Every matrix orthogonalised; matrices of one shape, of all leaves and layers, share one batch of products.

    Args:
        orthogonalized: of a batch of matrices with no more rows than columns; see `optim/orthogonal.py`.
        joiner: on a mesh, one that lays whole matrices on devices, so that no norm and no product is a sum over devices.
    """
    by_shape: dict[tuple[int, int], list[int]] = {}
    flat = []
    for index, leaf in enumerate(directions):
        rows, columns = leaf.shape[-2:]
        wide = leaf.mT if rows > columns else leaf
        flat.append(wide.reshape(-1, *wide.shape[-2:]))
        by_shape.setdefault((min(rows, columns), max(rows, columns)), []).append(index)
    done: list[Array | None] = [None] * len(directions)
    for members in by_shape.values():
        batch = orthogonalized(joiner.join([flat[index] for index in members]))
        parts = joiner.split(batch, [flat[index].shape[0] for index in members])
        for index, part in zip(members, parts):
            leaf = directions[index]
            shaped = part.reshape(*leaf.shape[:-2], *flat[index].shape[-2:])
            done[index] = shaped.mT if leaf.shape[-2] > leaf.shape[-1] else shaped
    return [leaf for leaf in done if leaf is not None]
