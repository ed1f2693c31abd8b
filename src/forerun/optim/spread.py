"""Newton-Schulz on a mesh: whole matrices on devices, so no product and no norm is ever a sum over shards.

Expert matrices stay with their experts. All other matrices of one shape are dealt over the devices of a rack; with fewer matrices
than devices, zeros fill up. A zero matrix stays zero. Racks repeat each other's work, as they hold the same parameters.
"""

# E experts, L matrices per expert (layers x kinds), N matrices, R rows, C columns

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from forerun.optim.build import Layout
from forerun.optim.muonh import ONE_DEVICE, Joiner, cut_apart
from forerun.parallel.mesh import EXPERT_AXIS, RACK_AXES


def layout_of(mesh: Mesh | None, num_experts: int) -> Layout:
    """How a run's optimizer lays out what it orthogonalises."""
    if mesh is None:
        return Layout()
    experts = Joiner(functools.partial(_join_experts, mesh, num_experts), functools.partial(_split_experts, num_experts))
    return Layout(experts=experts if num_experts else ONE_DEVICE, others=Joiner(functools.partial(_dealt, mesh), cut_apart))


def _dealt(mesh: Mesh, parts: list[Float[Array, "N R C"]]) -> Float[Array, "M R C"]:
    """One after the other, filled up with zero matrices and cut over the rack: gathered, then each device keeps its own."""
    whole = NamedSharding(mesh, PartitionSpec())
    batch = jnp.concatenate([jax.lax.with_sharding_constraint(part, whole) for part in parts])
    rack = math.prod(mesh.shape[axis] for axis in RACK_AXES)
    batch = jnp.pad(batch, ((0, -batch.shape[0] % rack), (0, 0), (0, 0)))
    return jax.lax.with_sharding_constraint(batch, NamedSharding(mesh, PartitionSpec(RACK_AXES)))


def _join_experts(mesh: Mesh, num_experts: int, parts: list[Float[Array, "L*E R C"]]) -> Float[Array, "E*M R C"]:
    """Expert by expert, so that cutting the batch over the expert axis moves nothing."""
    per_expert = [part.reshape(-1, num_experts, *part.shape[1:]).swapaxes(0, 1) for part in parts]
    batch = jnp.concatenate(per_expert, 1)
    batch = jax.lax.with_sharding_constraint(batch, NamedSharding(mesh, PartitionSpec(EXPERT_AXIS)))
    return batch.reshape(-1, *batch.shape[2:])


def _split_experts(num_experts: int, batch: Float[Array, "E*M R C"], sizes: list[int]) -> list[Float[Array, "L*E R C"]]:
    per_expert = batch.reshape(num_experts, -1, *batch.shape[1:])
    counts = [size // num_experts for size in sizes]
    starts = [sum(counts[:index]) for index in range(len(counts))]
    parts = [per_expert[:, start : start + count] for start, count in zip(starts, counts)]
    return [part.swapaxes(0, 1).reshape(-1, *part.shape[2:]) for part in parts]
