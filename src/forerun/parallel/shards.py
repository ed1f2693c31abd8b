"""The few collectives transports are made of, which on one device (no axes) are nothing at all.

Transports run inside `shard_map` over all mesh axes, or on one device by themselves: `axes` is then empty and there is one shard.
"""

# S shards of the expert axis, P rows for each

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from forerun.parallel.mesh import EXPERT_AXIS

Axes = tuple[str, ...]


def num_shards(axes: Axes) -> int:
    """Senders, which are receivers too, in one group of the expert axis."""
    return jax.lax.axis_size(EXPERT_AXIS) if axes else 1


def own_shard(axes: Axes) -> Array:
    """This device's place in its group."""
    return jax.lax.axis_index(EXPERT_AXIS) if axes else jnp.zeros((), jnp.int32)


def gathered(array: Array, axes: Axes) -> Array:
    """Every shard's array of the group, stacked in front."""
    return jax.lax.all_gather(array, EXPERT_AXIS) if axes else array[None]


def exchanged(array: Array, axes: Axes) -> Array:
    """Row block s goes to shard s; what came from shard s stands in block s. `[S, P, ...]` to the same."""
    return jax.lax.all_to_all(array, EXPERT_AXIS, split_axis=0, concat_axis=0) if axes else array


def summed_to_own(array: Array, axes: Axes) -> Array:
    """Sum of all shards' `[S, ...]` arrays over the group, of which each shard gets its own part."""
    return jax.lax.psum_scatter(array, EXPERT_AXIS, scatter_dimension=0) if axes else array[0]


def group_sum(array: Array, axes: Axes) -> Array:
    """Sum over the shards of the group."""
    return jax.lax.psum(array, EXPERT_AXIS) if axes else array


def total(tree: Any, axes: Axes) -> Any:
    """Sum over all devices of the mesh."""
    return jax.lax.psum(tree, axes) if axes else tree


def largest(array: Array, axes: Axes) -> Array:
    """Maximum over all devices of the mesh."""
    return jax.lax.pmax(array, axes) if axes else array
