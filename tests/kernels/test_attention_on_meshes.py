"""Attention on a mesh: the numbers of one device, and nobody sends a query or a key."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from forerun.kernels.attention import attention
from forerun.kernels.blocks import num_attention_tiles
from forerun.parallel import attention as on_mesh
from forerun.parallel.config import MeshConfig
from forerun.parallel.mesh import build_mesh, over_batch

B, V, G, S, D = 16, 2, 2, 256, 8
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute")


@pytest.mark.parametrize("spread", [True, False])
def test_only_attention_left_to_the_compiler_moves_sequences_between_devices(spread):
    mesh = build_mesh(MeshConfig(data=2, expert=2))
    assert num_attention_tiles(B, V * G * 128 * S) > 1, "one tile would hide what is tested"
    rng = np.random.default_rng(0)
    query, key, value = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((B, V, G, S, D), (B, V, S, D), (B, V, S, D)))
    mask = jnp.broadcast_to(jnp.tril(jnp.ones((S, S), bool)), (B, S, S))
    kernel = on_mesh.bind(mesh) if spread else attention

    def objective(query, key, value, kernel=kernel):
        return jnp.square(kernel(query, key, value, mask, span=S, score_bound=jnp.inf)).sum()

    places = (over_batch(mesh),) * 3
    gradient = jax.jit(jax.grad(objective, (0, 1, 2)), in_shardings=places, out_shardings=places).lower(query, key, value).compile()
    program = gradient.as_text() or ""
    moved = [kind for kind in COLLECTIVES if f" {kind}(" in program]
    assert (moved == []) == spread
    alone = jax.grad(functools.partial(objective, kernel=attention), (0, 1, 2))(query, key, value)
    for ours, expected in zip(gradient(query, key, value), alone, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)  # float32, tiles of other sizes
