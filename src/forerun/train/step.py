"""One optimizer step, compiled once: gradient over microbatches, update, and every number the record wants."""

# N layers with a router, E experts

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from forerun.kernels.compiling import compiler_options
from forerun.loader.batches import Batch
from forerun.model.moe import by_position
from forerun.model.transformer import Aux, RouterState, loss
from forerun.optim.build import OptimState
from forerun.optim.groups import row_of
from forerun.optim.paths import named_leaves
from forerun.parallel import attention, head
from forerun.parallel.mesh import over_batch, placed, replicated
from forerun.parallel.transports import bind
from forerun.train.config import RunConfig
from forerun.train.flops import check_flops
from forerun.train.gathering import ends_gathered, layer_gathered
from forerun.train.state import TrainState, optimizer_of, shardings_of, state_shapes


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
    dropped_by_sequence: Int[Array, "N B"]
    """Rows of the batch, of all microbatches together."""
    dropped_by_position: Int[Array, "N 8"]
    valid_by_sequence: Int[Array, "B"]
    """Tokens that are not padding."""
    valid_by_position: Int[Array, "8"]
    rows_sent: Float[Array, "N"]
    rows_executed: Float[Array, "N"]
    router_entropy_nats: Float[Array, "N"]
    bias_max: Float[Array, ""]


Step = Callable[[TrainState, ModelBatch], tuple[TrainState, StepReport]]


def model_batch(batch: Batch, mesh: Mesh | None = None) -> ModelBatch:
    """The arrays of a loader batch, on a mesh each device's sequences on it; every process gives the whole batch."""
    arrays = ModelBatch(batch.tokens, batch.targets, batch.segment_ids, batch.positions, batch.loss_mask)
    return arrays if mesh is None else placed(arrays, over_batch(mesh))


def build_step(config: RunConfig, mesh: Mesh | None = None) -> jax.stages.Wrapped:
    """The step of a run, to be compiled; the old state's memory is given to the new one. `mesh` is None on one device."""
    optimizer = optimizer_of(config, mesh)
    skip, limit = config.spikes.on_nonfinite == "skip", config.spikes.grad_norm_limit or jnp.inf

    def step(state: TrainState, batch: ModelBatch) -> tuple[TrainState, StepReport]:
        gradients, aux = gradient_of(config, mesh, state, batch)
        grad_norm = group_norms(gradients)
        good = jnp.isfinite(grad_norm["total"]) & jnp.isfinite(aux.nats_sum) & (grad_norm["total"] <= limit)
        updates, optim = optimizer.update(gradients, state.optim, state.params)
        params = optax.apply_updates(state.params, updates)
        moved = (params, optim, aux.router_state)
        if skip:
            moved = jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, (state.params, state.optim, state.router))
        new = TrainState(state.step + 1, moved[0], cast(OptimState, moved[1]), moved[2], state.num_skipped + (1 - good.astype(jnp.int32)))
        valid = (batch.segment_ids > 0).astype(jnp.int32)
        report = StepReport(
            nats_sum=aux.nats_sum,
            z_sum=aux.z_sum,
            num_tokens=aux.num_tokens,
            good=good,
            grad_norm=grad_norm,
            param_norm=group_norms(new.params),
            load=aux.load,
            dropped=aux.dropped,
            dropped_by_sequence=aux.dropped_by_sequence,
            dropped_by_position=aux.dropped_by_position,
            valid_by_sequence=valid.reshape(config.train.num_microbatches, -1, valid.shape[1]).sum((0, 2)),
            valid_by_position=by_position(valid.sum(0)),
            rows_sent=aux.rows_sent,
            rows_executed=aux.rows_executed,
            router_entropy_nats=aux.router_entropy_nats,
            bias_max=jnp.max(jnp.abs(new.router.bias), initial=0.0),
        )
        return new, report

    jitted = functools.partial(jax.jit, step, donate_argnums=0, compiler_options=compiler_options())
    if mesh is None:
        return jitted()
    state, whole = shardings_of(state_shapes(config), mesh), replicated(mesh)
    return jitted(in_shardings=(state, over_batch(mesh)), out_shardings=(state, whole))


def compile_step(config: RunConfig, mesh: Mesh | None = None) -> tuple[Step, float]:
    """The step as one executable, which takes the run's shapes and no others, and its products over those the config asks for.

    Raises: CheckFailed when XLA put much more work into it than was asked for; see `train/flops.py`.
    """
    shape = (config.train.batch_size, config.train.seq_len)
    ids, mask = jax.ShapeDtypeStruct(shape, jnp.int32), jax.ShapeDtypeStruct(shape, jnp.float32)
    batch = ModelBatch(tokens=ids, targets=ids, segment_ids=ids, positions=ids, loss_mask=mask)
    compiled = build_step(config, mesh).lower(state_shapes(config), batch).compile()
    program = compiled.as_text()
    assert program, "this backend does not show its optimised program"
    return compiled, check_flops(program, config)


def group_norms(tree: Any) -> dict[str, Float[Array, ""]]:
    """L2 norm in float32 of all leaves (`total`) and of each optimizer group."""
    squares: dict[str, Array] = {}
    for name, leaf in named_leaves(tree).items():
        group = row_of(name).group
        squares[group] = squares.get(group, jnp.zeros((), jnp.float32)) + jnp.sum(jnp.square(leaf.astype(jnp.float32)))
    return {"total": jnp.sqrt(sum(squares.values(), jnp.zeros(()))), **{group: jnp.sqrt(square) for group, square in squares.items()}}


def gradient_of(config: RunConfig, mesh: Mesh | None, state: TrainState, batch: ModelBatch) -> tuple[Any, Aux]:
    """Gradient of the step's mean objective; microbatches are weighted by the tokens they predict.

    The next routing bias of several microbatches is the mean of theirs.
    """
    num_tokens = batch.loss_mask.sum()
    objective = functools.partial(
        loss,
        config=config.model,
        compute_dtype=config.train.compute_dtype,
        experts=bind(config.transport, mesh, state.step),
        head_loss=head.bind(mesh),
        attention=attention.bind(mesh),
        remat=config.train.remat,
        whole=layer_gathered(mesh),
    )

    def gradient(part: ModelBatch) -> tuple[Any, Aux]:
        def of(params: Any) -> tuple[Array, Aux]:
            return objective(ends_gathered(params, mesh), state.router, part, num_tokens=num_tokens)

        return jax.grad(of, has_aux=True)(state.params)

    pieces = config.train.num_microbatches
    if pieces == 1:
        return gradient(batch)
    parts = jax.tree.map(lambda array: array.reshape(pieces, -1, *array.shape[1:]), batch)
    if mesh is not None:
        parts = jax.lax.with_sharding_constraint(parts, over_batch(mesh, dim=1))
    first = gradient(jax.tree.map(lambda array: array[0], parts))

    def add(total: tuple[Any, Aux], part: ModelBatch) -> tuple[tuple[Any, Aux], None]:
        return jax.tree.map(jnp.add, total, gradient(part)), None

    (gradients, aux), _ = jax.lax.scan(add, first, jax.tree.map(lambda array: array[1:], parts))
    return gradients, aux._replace(
        balance_loss=aux.balance_loss / pieces,
        router_entropy_nats=aux.router_entropy_nats / pieces,
        router_state=RouterState(bias=aux.router_state.bias / pieces),
    )
