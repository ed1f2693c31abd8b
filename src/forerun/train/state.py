"""What training carries from step to step, as one tree of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from forerun.model.transformer import RouterState, init_params, init_router_state
from forerun.optim.build import OptimState, build
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


def optimizer_of(config: RunConfig) -> optax.GradientTransformation:
    """The run's optimizer."""
    return build(config.optim, config.train.num_steps)


def init_state(config: RunConfig) -> TrainState:
    """The state before the first step, made in one compiled call."""

    def make() -> TrainState:
        params = init_params(config.model, jax.random.key(config.train.seed), config.train.layer_loop)
        zero = jnp.zeros((), jnp.int32)
        return TrainState(zero, params, cast(OptimState, optimizer_of(config).init(params)), init_router_state(config.model), zero)

    return jax.jit(make)()
