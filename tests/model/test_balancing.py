"""Quantile balancing and its alternatives."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_tiny import TINY, TWO_LAYERS, params_of, random_batch

from forerun.model import transformer
from forerun.model.balance import NUM_BINS, auxiliary_loss, exact_quantile, histogram_quantile, next_bias
from forerun.model.router import entropy_nats, mean_distribution, route, router_logits


@pytest.mark.parametrize("seed", range(4))
def test_both_estimators_agree_to_a_bin_and_match_a_sort_by_hand(seed):
    rng = np.random.default_rng(seed)
    margin = rng.normal(size=(3000, 5)) * rng.uniform(0.5, 3, 5) + rng.normal(size=5)
    valid = rng.random(3000) > 0.1
    share = 2 / 5
    exact = np.asarray(exact_quantile(jnp.float32(margin), jnp.array(valid), share))
    histogram = np.asarray(histogram_quantile(jnp.float32(margin), jnp.array(valid), share))
    kept = np.sort(margin[valid], axis=0)[::-1]
    np.testing.assert_allclose(exact, kept[int(np.ceil(valid.sum() * share)) - 1], rtol=1e-6)
    bin_width = (margin[valid].max() - margin[valid].min()) / NUM_BINS
    # the crossing bin holds the wanted order statistic, so the estimate is at most a bin away
    np.testing.assert_allclose(histogram, exact, atol=1.01 * bin_width + 1e-6)


def test_histogram_equals_counting_every_bin():
    rng = np.random.default_rng(0)
    margin = np.float32(rng.normal(size=(500, 3)))
    share = 1 / 3
    low, high = margin.min(), margin.max()
    width = (high - low) / np.float32(NUM_BINS)
    number = np.clip(((margin - low) / width).astype(int), 0, NUM_BINS - 1)
    wanted = 500 * share
    for expert, estimate in enumerate(np.asarray(histogram_quantile(jnp.array(margin), jnp.ones(500, bool), share))):
        counts = np.bincount(number[:, expert], minlength=NUM_BINS)
        from_top = np.cumsum(counts[::-1])
        crossing = NUM_BINS - 1 - int(np.argmax(from_top >= wanted))
        above = from_top[NUM_BINS - 2 - crossing] if crossing < NUM_BINS - 1 else 0
        by_hand = low + width * (crossing + 1 - (wanted - above) / counts[crossing])
        assert estimate == pytest.approx(by_hand, abs=1e-5)


@pytest.mark.parametrize("estimator", ["histogram", "exact"])
def test_one_step_of_quantile_balancing_nearly_equalises_skewed_loads(estimator):
    config = replace(TINY, num_experts=8, top_k=2, quantile_estimator=estimator)
    rng = np.random.default_rng(0)
    logits = jnp.float32(rng.normal(size=(4000, 8)) + np.linspace(-1.5, 1.5, 8))
    valid = jnp.ones(4000, bool)
    bias = jnp.zeros(8)
    imbalance = []
    for _ in range(6):
        routing = route(logits, bias, config)
        load = jnp.bincount(routing.expert_index.reshape(-1), length=8)
        imbalance.append(float(load.max() / load.mean()))
        bias = next_bias(bias, routing.margin, load, valid, config)
    assert imbalance[0] > 2
    assert imbalance[-1] < 1.02
    assert abs(float(bias.mean())) < 1e-6


def test_damping_replaces_only_its_share_of_the_bias():
    rng = np.random.default_rng(0)
    margin, valid, load = jnp.float32(rng.normal(size=(100, 6))), jnp.ones(100, bool), jnp.ones(6, jnp.int32)
    old = jnp.float32(rng.normal(size=6))
    whole = next_bias(old, margin, load, valid, TINY)
    part = next_bias(old, margin, load, valid, replace(TINY, quantile_damping=0.25))
    np.testing.assert_allclose(part, 0.75 * old + 0.25 * whole, rtol=1e-5, atol=1e-6)


def test_margin_is_the_unbiased_score_over_the_first_biased_score_left_out():
    logits = jnp.array([[2.0, 1.0, 0.0, -1.0]])
    bias = jnp.array([-3.0, 0.0, 0.0, 0.5])
    routing = route(logits, bias, replace(TINY, num_experts=4, top_k=2))
    assert routing.expert_index.tolist() == [[1, 2]]  # biased: -1, 1, 0, -0.5
    np.testing.assert_allclose(routing.margin, logits + 0.5)
    gates = 1 / (1 + np.exp(-np.array([1.0, 0.0])))
    np.testing.assert_allclose(routing.weight[0], 2.5 * gates / gates.sum(), rtol=1e-6)


def test_choosing_every_expert_leaves_the_bias_alone():
    config = replace(TINY, num_experts=4, top_k=4)
    routing = route(jnp.ones((3, 4)), jnp.zeros(4), config)
    assert sorted(routing.expert_index[0].tolist()) == [0, 1, 2, 3]
    bias = next_bias(jnp.zeros(4), routing.margin, jnp.full(4, 3), jnp.ones(3, bool), config)
    assert (bias == 0).all()


def test_sigmoid_bias_moves_by_its_step_towards_the_idle_experts():
    config = replace(TINY, num_experts=3, balancing="sigmoid_bias", balance_coefficient=0.01)
    bias = next_bias(jnp.zeros(3), jnp.zeros((4, 3)), jnp.array([6, 2, 4]), jnp.ones(4, bool), config)
    np.testing.assert_allclose(bias, [-0.01, 0.01, 0.0], atol=1e-9)


def test_auxiliary_loss_is_one_when_balanced_and_the_number_of_experts_when_collapsed():
    uniform = jnp.full(4, 0.25)
    assert float(auxiliary_loss(uniform, jnp.array([5, 5, 5, 5]))) == pytest.approx(1.0)
    assert float(auxiliary_loss(jnp.array([1.0, 0, 0, 0]), jnp.array([20, 0, 0, 0]))) == pytest.approx(4.0)


def test_auxiliary_loss_enters_the_objective_with_its_coefficient_and_moves_the_router():
    config = replace(TWO_LAYERS, balancing="auxiliary_loss", balance_coefficient=0.3, z_loss_coefficient=0.0)
    params, state = params_of(config), transformer.init_router_state(config)
    batch = random_batch(config)
    (objective, aux), gradient = jax.jit(jax.value_and_grad(functools.partial(transformer.loss, config=config), has_aux=True))(
        params, state, batch
    )
    assert float(objective) == pytest.approx(float(aux.nats_sum / aux.num_tokens) + 0.3 * float(aux.balance_loss), rel=1e-6)
    without = jax.jit(jax.grad(functools.partial(transformer.loss, config=replace(config, balance_coefficient=0.0)), has_aux=True))
    difference = (
        gradient["layers"][0]["feed_forward"]["w_router"] - without(params, state, batch)[0]["layers"][0]["feed_forward"]["w_router"]
    )
    assert float(jnp.abs(difference).max()) > 1e-6
    assert (aux.router_state.bias == 0).all()


def test_evaluating_a_checkpoint_equals_evaluating_in_the_loop():
    config = TWO_LAYERS
    params = params_of(config)
    loss = jax.jit(functools.partial(transformer.loss, config=config))
    evaluate = jax.jit(functools.partial(transformer.token_losses, config=config))
    state = transformer.init_router_state(config)
    for seed in range(3):
        _, aux = loss(params, state, random_batch(config, seed=seed))
        state = aux.router_state
    batch = random_batch(config, seed=9)
    in_the_loop = loss(params, state, batch)[1]
    restored = transformer.RouterState(bias=np.array(state.bias))
    nats = (np.asarray(evaluate(params, restored, batch)) * batch.loss_mask).sum()
    assert nats == pytest.approx(float(in_the_loop.nats_sum), rel=1e-5)
    stale = (np.asarray(evaluate(params, transformer.init_router_state(config), batch)) * batch.loss_mask).sum()
    assert abs(stale - nats) > 1e-5  # the bias matters, so the equality above says something


def test_router_scores_keep_float32_accuracy_under_bfloat16_rows():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(64, 512)), jnp.bfloat16)
    w_router = jnp.float32(rng.normal(size=(512, 16)) * 0.02)
    exact = np.asarray(rows, np.float64) @ np.asarray(w_router, np.float64)
    error = np.asarray(router_logits(rows, w_router), np.float64) - exact
    assert np.sqrt((error**2).mean()) < 1e-6  # a bfloat16 result would be wrong by 1e-3


def test_entropy_is_largest_for_uniform_scores_and_ignores_padding():
    logits = jnp.array([[0.0, 0, 0, 0], [9.0, 0, 0, 0]])
    uniform = mean_distribution(logits, jnp.array([True, False]))
    assert float(entropy_nats(uniform)) == pytest.approx(np.log(4), rel=1e-6)
    assert float(entropy_nats(mean_distribution(logits, jnp.array([False, True])))) < 0.02
