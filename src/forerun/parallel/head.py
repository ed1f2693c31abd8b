"""The output loss on a mesh: every device streams over its own tokens with the whole head, and the sums are added up."""

from __future__ import annotations

import jax
from jax.sharding import Mesh, PartitionSpec

from forerun.kernels.vocabulary_loss import HeadLoss, vocabulary_loss
from forerun.parallel.mesh import AXES


def bind(mesh: Mesh | None) -> HeadLoss:
    """`vocabulary_loss` for tokens cut over all devices; left to the compiler, its loop over token blocks would gather them all."""
    if mesh is None:
        return vocabulary_loss

    def spread(hidden, head, targets, weight, z_coefficient):
        def own_tokens(hidden, head, targets, weight):
            return jax.lax.psum(vocabulary_loss(hidden, head, targets, weight, z_coefficient), AXES)

        tokens, whole = PartitionSpec(AXES), PartitionSpec()
        return jax.shard_map(
            own_tokens, mesh=mesh, in_specs=(tokens, whole, tokens, tokens), out_specs=(whole, whole, whole), check_vma=False
        )(hidden, head, targets, weight)

    return spread
