"""Attention on a mesh: every device works through its own sequences."""

from __future__ import annotations

import functools

import jax
from jax.sharding import Mesh, PartitionSpec

from forerun.kernels.attention import Attention, attention
from forerun.parallel.mesh import AXES


def bind(mesh: Mesh | None) -> Attention:
    """`kernels.attention.attention` for sequences cut over all devices; left to the compiler, its loop over tiles would gather them."""
    if mesh is None:
        return attention

    def spread(query, key, value, mask, *, span, score_bound):
        own = functools.partial(attention, span=span, score_bound=score_bound)
        sequences = PartitionSpec(AXES)
        return jax.shard_map(own, mesh=mesh, in_specs=(sequences,) * 4, out_specs=sequences, check_vma=False)(query, key, value, mask)

    return spread
