"""What training carries from step to step, as one tree of arrays."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int

from forerun.model.transformer import RouterState, init_params, init_router_state
from forerun.optim.build import OptimState, build
from forerun.optim.paths import named_leaves
from forerun.optim.spread import layout_of
from forerun.parallel.mesh import replicated
from forerun.parallel.sharding import norm_sharding_of, sharding_of
from forerun.train.config import RunConfig


class TrainState(NamedTuple):
    """Everything a checkpoint holds; the next batch follows from `step` alone."""

    step: Int[Array, ""]
    """Finished steps, skipped ones included."""
    params: Any
    optim: OptimState
    router: RouterState
    """The effective routing bias: evaluation of a checkpoint reads the same one as the loop does."""
    num_skipped: Int[Array, ""]
    """Bad steps so far; under the policy `skip` their update was left out."""


def optimizer_of(config: RunConfig, mesh: Mesh | None = None) -> optax.GradientTransformation:
    """The run's optimizer."""
    return build(config.optim, config.train.num_steps, layout_of(mesh, config.model.num_experts))


def init_state(config: RunConfig, mesh: Mesh | None = None) -> TrainState:
    """The state before the first step, made in one compiled call, on a mesh in its places; the same numbers on every mesh.

    The seed is an argument of that call, so that repeats of a run with other seeds find it compiled.
    """
    make = functools.partial(_made, config, mesh)
    places = None if mesh is None else shardings_of(state_shapes(config), mesh)
    return jax.jit(make, out_shardings=places)(np.uint32(config.train.seed % 2**32))


def state_shapes(config: RunConfig) -> TrainState:
    """Shapes and dtypes of the state, without its numbers."""
    return jax.eval_shape(functools.partial(_made, config, None), np.uint32(0))


def shardings_of(state: TrainState, mesh: Mesh) -> TrainState:
    """Where each array of a state of these shapes lies: moments with their parameters, kept norms with their matrices."""
    whole: Any = replicated(mesh)
    names = list(named_leaves(state.params))
    places = [sharding_of(name, leaf.shape, mesh) for name, leaf in named_leaves(state.params).items()]
    by_name: dict[str, Any] = dict(zip(names, places))
    radii: dict[str, Any] = {name: norm_sharding_of(name, leaf.shape, mesh) for name, leaf in state.optim.radius.items()}
    optim = OptimState(
        count=whole,
        momentum={name: by_name[name] for name in state.optim.momentum},
        second={name: by_name[name] for name in state.optim.second},
        radius=radii,
    )
    params = jax.tree.unflatten(jax.tree.structure(state.params), places)
    return TrainState(whole, params, optim, jax.tree.map(lambda _: whole, state.router), whole)


def _made(config: RunConfig, mesh: Mesh | None, seed: Any) -> TrainState:
    params = init_params(config.model, jax.random.key(seed), config.train.layer_loop)
    zero = jnp.zeros((), jnp.int32)
    optim = cast(OptimState, optimizer_of(config, mesh).init(params))
    return TrainState(zero, params, optim, init_router_state(config.model), zero)
