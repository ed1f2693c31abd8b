"""One compiled body under a scan, one per layer, and rematerialisation: the same numbers, and what each is for."""

from __future__ import annotations

import functools
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_tiny import TINY, params_of, random_batch

from forerun.model import transformer
from forerun.model.params import unstack
from forerun.model.presets import marin
from forerun.parallel.config import TransportConfig
from forerun.parallel.local import run_experts

STATE = transformer.RouterState(bias=0.1 * np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32))


def gradient_of(config, remat="none", **settings):
    return jax.jit(jax.value_and_grad(functools.partial(transformer.loss, config=config, remat=remat, **settings), has_aux=True))


@pytest.fixture(scope="module")
def unrolled():
    (objective, aux), gradient = gradient_of(TINY)(params_of(TINY), STATE, random_batch(TINY))
    return objective, aux, gradient


@pytest.mark.parametrize("remat", ["none", "block", "moe"])
def test_scan_and_remat_give_the_loss_and_gradient_of_unrolled_layers(unrolled, remat):
    objective, aux, gradient = unrolled
    (scanned, scanned_aux), scanned_gradient = gradient_of(TINY, remat)(params_of(TINY, "scan"), STATE, random_batch(TINY))
    np.testing.assert_allclose(objective, scanned, rtol=1e-6)
    np.testing.assert_array_equal(aux.load, scanned_aux.load)
    # the histogram bin of a margin may differ by one where sums were ordered differently
    np.testing.assert_allclose(aux.router_state.bias, scanned_aux.router_state.bias, atol=1e-4)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient))
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-6 * largest + 1e-7),
        gradient,
        unstack(scanned_gradient),
    )


def test_leading_dense_layers_run_under_both_loops():
    config = replace(TINY, num_dense_layers=1, d_dense=40)
    state = transformer.RouterState(bias=STATE.bias[:3])
    loss = jax.jit(functools.partial(transformer.loss, config=config))
    one, one_aux = loss(params_of(config), state, random_batch(config))
    other, _ = loss(params_of(config, "scan"), state, random_batch(config))
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert one_aux.load.shape == (3, 6)


def test_lowering_does_not_grow_with_depth_under_a_scan():
    seconds, sizes = {}, {}
    for num_layers in (2, 48):
        config = marin(6144, num_layers)
        params = jax.eval_shape(functools.partial(transformer.init_params, config, layer_loop="scan"), jax.random.key(0))
        state = jax.eval_shape(lambda: transformer.init_router_state(config))  # noqa: B023
        whole = jax.ShapeDtypeStruct((1, 4096), jnp.int32)
        batch = type(random_batch(TINY))(whole, whole, whole, whole, jax.ShapeDtypeStruct((1, 4096), jnp.float32))
        experts = functools.partial(run_experts, config=TransportConfig(capacity_factor=1.15))
        started = time.process_time()
        lowered = gradient_of(config, "block", experts=experts, compute_dtype="bfloat16").lower(params, state, batch)
        seconds[num_layers], sizes[num_layers] = time.process_time() - started, len(lowered.as_text())
    assert sizes[48] < 1.02 * sizes[2]  # shapes have more digits, nothing else
    assert seconds[48] < 2 * seconds[2] + 1  # the first lowering pays imports, so the second is usually faster


def test_bfloat16_compute_stays_close_to_float32():
    batch = random_batch(TINY)
    exact, _ = jax.jit(functools.partial(transformer.loss, config=TINY))(params_of(TINY), STATE, batch)
    rough, aux = jax.jit(functools.partial(transformer.loss, config=TINY, compute_dtype="bfloat16"))(params_of(TINY), STATE, batch)
    assert rough.dtype == jnp.float32
    assert aux.router_state.bias.dtype == jnp.float32
    np.testing.assert_allclose(exact, rough, rtol=5e-3)  # bfloat16 keeps 8 bits


def test_parts_of_a_batch_add_up_to_the_gradient_of_the_whole():
    batch = random_batch(TINY, num_rows=4)
    whole_count = batch.loss_mask.sum()
    _, whole = gradient_of(TINY)(params_of(TINY), STATE, batch)
    step = jax.jit(jax.grad(lambda params, part: transformer.loss(params, STATE, part, TINY, num_tokens=whole_count)[0]))
    parts = [step(params_of(TINY), type(batch)(*(array[rows] for array in batch))) for rows in (slice(0, 2), slice(2, 4))]
    jax.tree.map(lambda one, a, b: np.testing.assert_allclose(one, a + b, rtol=1e-3, atol=1e-6), whole, *parts)


def test_a_dropped_assignment_costs_loss_only_where_it_was_dropped():
    batch = random_batch(TINY)
    tight = functools.partial(run_experts, config=TransportConfig(capacity_factor=0.5))
    loss = functools.partial(transformer.loss, config=TINY)
    free, free_aux = jax.jit(loss)(params_of(TINY), STATE, batch)
    dropping, aux = jax.jit(functools.partial(loss, experts=tight))(params_of(TINY), STATE, batch)
    assert (free_aux.dropped == 0).all()
    assert (aux.dropped > 0).any()
    assert (aux.dropped <= aux.load).all()
    assert float(free) != float(dropping)
