"""Parameters as products want them: whole on every device, gathered where they are read and no earlier.

Every device computes its tokens with whole matrices (but its own experts), so that each product runs over the same numbers in the
same order as on one device. What stands before and after the layers is gathered at the start; a layer's matrices when the layer
begins, so that under a scan over layers one layer is whole at a time, and not all of them. With `train.remat = "block"` the backward
pass gathers a layer again; otherwise its whole matrices are kept from the forward pass.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh

from forerun.model.transformer import Whole, as_they_are
from forerun.optim.paths import named_leaves
from forerun.parallel.mesh import replicated
from forerun.parallel.sharding import row_of, sharding_of

LAYERS = ("layers", "dense_layers")


def ends_gathered(params: dict[str, Any], mesh: Mesh | None) -> dict[str, Any]:
    """All parameters, those outside the layers whole; the layers are left to `layer_gathered`."""
    if mesh is None:
        return params
    ends = _whole({name: part for name, part in params.items() if name not in LAYERS}, mesh, experts_too=False)
    return {name: ends.get(name, part) for name, part in params.items()}


def layer_gathered(mesh: Mesh | None, *, experts_too: bool = False) -> Whole:
    """Makes one layer's parameters whole; its experts stay with their devices unless every device computes all rows."""
    if mesh is None:
        return as_they_are
    return lambda params: _whole(params, mesh, experts_too=experts_too)


def _whole(params: dict[str, Any], mesh: Mesh, *, experts_too: bool) -> dict[str, Any]:
    """Named first where they lie, so that gradients go back there summed and cut, and then where they are wanted."""
    leaves = []
    for name, leaf in named_leaves(params).items():
        cut = jax.lax.with_sharding_constraint(leaf, sharding_of(name, leaf.shape, mesh))
        stays = row_of(name).cut == "expert" and not experts_too
        leaves.append(cut if stays else jax.lax.with_sharding_constraint(cut, replicated(mesh)))
    return jax.tree.unflatten(jax.tree.structure(params), leaves)
