"""One optimizer step, compiled once: gradient over microbatches, update, and every number the record wants."""

# N layers with a router, E experts

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from forerun.loader.batches import Batch
from forerun.model.transformer import Aux, RouterState, loss
from forerun.optim.build import OptimState
from forerun.optim.groups import row_of
from forerun.optim.paths import named_leaves
from forerun.parallel.local import run_experts
from forerun.train.config import RunConfig
from forerun.train.state import TrainState, optimizer_of


class ModelBatch(NamedTuple):
    """A loader batch as a tree of arrays, all `[B, S]`."""

    tokens: Any
    targets: Any
    segment_ids: Any
    positions: Any
    loss_mask: Any


class StepReport(NamedTuple):
    """Numbers of one step, on the device until someone reads them."""

    nats_sum: Float[Array, ""]
    z_sum: Float[Array, ""]
    num_tokens: Float[Array, ""]
    good: Array
    """Loss and gradient are finite and within `spikes.grad_norm_limit`."""
    grad_norm: dict[str, Array]
    """Per group, and `total`."""
    param_norm: dict[str, Array]
    load: Int[Array, "N E"]
    dropped: Int[Array, "N E"]
    router_entropy_nats: Float[Array, "N"]
    bias_max: Float[Array, ""]


Step = Callable[[TrainState, ModelBatch], tuple[TrainState, StepReport]]


def model_batch(batch: Batch) -> ModelBatch:
    """The arrays of a loader batch."""
    return ModelBatch(batch.tokens, batch.targets, batch.segment_ids, batch.positions, batch.loss_mask)


def build_step(config: RunConfig) -> Step:
    """The compiled step of a run; the old state's memory is given to the new one."""
    optimizer = optimizer_of(config)
    skip, limit = config.spikes.on_nonfinite == "skip", config.spikes.grad_norm_limit or jnp.inf

    def step(state: TrainState, batch: ModelBatch) -> tuple[TrainState, StepReport]:
        gradients, aux = _gradients(config, state, batch)
        grad_norm = group_norms(gradients)
        good = jnp.isfinite(grad_norm["total"]) & jnp.isfinite(aux.nats_sum) & (grad_norm["total"] <= limit)
        updates, optim = optimizer.update(gradients, state.optim, state.params)
        params = optax.apply_updates(state.params, updates)
        moved = (params, optim, aux.router_state)
        if skip:
            moved = jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, (state.params, state.optim, state.router))
        new = TrainState(state.step + 1, moved[0], cast(OptimState, moved[1]), moved[2], state.num_skipped + (1 - good.astype(jnp.int32)))
        report = StepReport(
            nats_sum=aux.nats_sum,
            z_sum=aux.z_sum,
            num_tokens=aux.num_tokens,
            good=good,
            grad_norm=grad_norm,
            param_norm=group_norms(new.params),
            load=aux.load,
            dropped=aux.dropped,
            router_entropy_nats=aux.router_entropy_nats,
            bias_max=jnp.max(jnp.abs(new.router.bias), initial=0.0),
        )
        return new, report

    return jax.jit(step, donate_argnums=0)


def group_norms(tree: Any) -> dict[str, Float[Array, ""]]:
    """L2 norm in float32 of all leaves (`total`) and of each optimizer group."""
    squares: dict[str, Array] = {}
    for name, leaf in named_leaves(tree).items():
        group = row_of(name).group
        squares[group] = squares.get(group, jnp.zeros((), jnp.float32)) + jnp.sum(jnp.square(leaf.astype(jnp.float32)))
    return {"total": jnp.sqrt(sum(squares.values(), jnp.zeros(()))), **{group: jnp.sqrt(square) for group, square in squares.items()}}


def _gradients(config: RunConfig, state: TrainState, batch: ModelBatch) -> tuple[Any, Aux]:
    """Gradient of the step's mean objective; microbatches are weighted by the tokens they predict.

    The next routing bias of several microbatches is the mean of theirs.
    """
    num_tokens = batch.loss_mask.sum()
    objective = functools.partial(
        loss,
        config=config.model,
        compute_dtype=config.train.compute_dtype,
        experts=functools.partial(run_experts, config=config.transport),
        remat=config.train.remat,
    )

    def gradient(part: ModelBatch) -> tuple[Any, Aux]:
        return jax.grad(lambda params: objective(params, state.router, part, num_tokens=num_tokens), has_aux=True)(state.params)

    pieces = config.train.num_microbatches
    if pieces == 1:
        return gradient(batch)
    parts = jax.tree.map(lambda array: array.reshape(pieces, -1, *array.shape[1:]), batch)
    first = gradient(jax.tree.map(lambda array: array[0], parts))

    def add(total: tuple[Any, Aux], part: ModelBatch) -> tuple[tuple[Any, Aux], None]:
        return jax.tree.map(jnp.add, total, gradient(part)), None

    (gradients, aux), _ = jax.lax.scan(add, first, jax.tree.map(lambda array: array[1:], parts))
    return gradients, aux._replace(
        balance_loss=aux.balance_loss / pieces,
        router_entropy_nats=aux.router_entropy_nats / pieces,
        router_state=RouterState(bias=aux.router_state.bias / pieces),
    )
