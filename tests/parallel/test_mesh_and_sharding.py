"""Every parameter has its place, and the optimizer keeps norms on every mesh as on one device."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mesh_runs import MODEL

from forerun.base.errors import ConfigError
from forerun.model.params import init_params
from forerun.model.presets import SIBLINGS, marin
from forerun.optim.build import build
from forerun.optim.config import OptimConfig
from forerun.optim.groups import row_of
from forerun.optim.muonh import frobenius, orthogonal_directions
from forerun.optim.orthogonal import orthogonalize
from forerun.optim.paths import named_leaves
from forerun.optim.spread import layout_of
from forerun.parallel.config import MeshConfig
from forerun.parallel.mesh import AXES, build_mesh, placed
from forerun.parallel.sharding import row_of as placement_of
from forerun.parallel.sharding import sharding_of, spec_of

MESHES = {2: MeshConfig(data=2), 4: MeshConfig(data=2, expert=2), 8: MeshConfig(replica=2, expert=4)}


MODELS = {name: sibling.model for name, sibling in SIBLINGS.items()} | {"marin": marin(6144, 48), "tiny": MODEL}


@pytest.mark.parametrize("layer_loop", ["unrolled", "scan"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_leaf_of_every_preset_has_a_place_that_divides_evenly(name, layer_loop):
    config = MODELS[name]
    config = replace(config, num_layers=min(config.num_layers, config.num_dense_layers + 2))
    mesh = build_mesh(MESHES[8])
    for leaf_name, leaf in named_leaves(jax.eval_shape(lambda: init_params(config, jax.random.key(0), layer_loop))).items():
        spec = spec_of(leaf_name, leaf.shape, mesh)
        assert sharding_of(leaf_name, leaf.shape, mesh).shard_shape(leaf.shape)  # raises when it does not divide
        if placement_of(leaf_name).cut == "expert":
            assert spec[len(leaf.shape) - 3] == "expert"


quintic = functools.partial(orthogonalize, num_steps=5)


def test_a_leaf_without_a_row_is_an_error():
    with pytest.raises(KeyError, match="no row for parameter 'layers/0/attention/new'"):
        placement_of("layers/0/attention/new")


def test_axes_are_named_with_their_types_and_too_few_devices_are_refused():
    mesh = build_mesh(MESHES[4])
    assert mesh.axis_names == AXES and {kind.name for kind in mesh.axis_types} == {"Auto"}
    with pytest.raises(ConfigError, match="at most 8 devices here, got 16"):
        build_mesh(MeshConfig(expert=16))


def directions():
    rng = np.random.default_rng(0)
    shapes = {"experts": (8, 6, 4), "square": (8, 8), "tall": (16, 8), "wide": (8, 16)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("num_devices", MESHES)
def test_norms_and_orthogonalised_directions_of_sharded_matrices_equal_those_of_whole_ones(num_devices):
    mesh, whole = build_mesh(MESHES[num_devices]), directions()
    names = {
        "experts": "layers/0/feed_forward/experts/w_up",
        "square": "layers/0/attention/w_q",
        "tall": "layers/0/attention/w_o",
        "wide": "layers/0/attention/w_k",
    }
    cut = {name: placed(leaf, sharding_of(names[name], leaf.shape, mesh)) for name, leaf in whole.items()}
    layout = layout_of(mesh, 8)

    @jax.jit
    def of(leaves):
        others = orthogonal_directions([leaves["square"], leaves["tall"], leaves["wide"]], quintic, layout.others)
        return {name: frobenius(leaf, (-2, -1)) for name, leaf in leaves.items()}, [
            *orthogonal_directions([leaves["experts"]], quintic, layout.experts),
            *others,
        ]

    norms, done = of(cut)
    expected = orthogonal_directions([jnp.asarray(leaf) for leaf in whole.values()], quintic)
    for name, leaf in whole.items():
        np.testing.assert_allclose(norms[name], np.sqrt((leaf.astype(np.float64) ** 2).sum((-2, -1), keepdims=True)), rtol=1e-6)
    for ours, theirs in zip(done, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)  # float32 products of up to 16 terms, five times


SMALL = replace(MODEL, d_model=8, d_head=4)  # matrices of two shapes: those of all shapes are compared above


@pytest.mark.parametrize("num_devices", [4, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 8))])
def test_kept_norms_stay_for_a_thousand_steps(num_devices):
    mesh = build_mesh(MESHES[num_devices]) if num_devices > 1 else None
    optimizer = build(OptimConfig(muonh_learning_rate=0.05, adam_learning_rate=0.01), 1000, layout_of(mesh, SMALL.num_experts))
    params = init_params(SMALL, jax.random.key(0))
    if mesh is not None:
        leaves = [placed(leaf, sharding_of(name, leaf.shape, mesh)) for name, leaf in named_leaves(params).items()]
        params = jax.tree.unflatten(jax.tree.structure(params), leaves)

    ends = list(itertools.accumulate(leaf.size for leaf in jax.tree.leaves(params)))

    @jax.jit
    def thousand(params):
        def one(step, carry):
            params, state = carry
            noise = jax.random.normal(jax.random.fold_in(jax.random.key(1), step), ends[-1:])
            parts = [noise[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(jax.tree.leaves(params), ends, strict=True)]
            updates, state = optimizer.update(jax.tree.unflatten(jax.tree.structure(params), parts), state, params)
            return jax.tree.map(jnp.add, params, updates), state

        return jax.lax.fori_loop(0, 1000, one, (params, optimizer.init(params)))[0]

    after = named_leaves(thousand(params))
    for name, before in named_leaves(params).items():
        if row_of(name).rule in ("muonh", "adamh"):
            norms = [np.linalg.norm(np.asarray(leaf, np.float64), axis=(-2, -1)) for leaf in (before, after[name])]
            np.testing.assert_allclose(norms[1], norms[0], rtol=1e-3)
            assert np.abs(np.asarray(after[name]) - np.asarray(before)).max() > 1e-3
