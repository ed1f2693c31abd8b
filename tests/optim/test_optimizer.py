"""Rules by name, steps on the sphere, Newton-Schulz against a singular value decomposition."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import linprog

from forerun.optim.build import build
from forerun.optim.config import OptimConfig, ScheduleConfig
from forerun.optim.groups import row_of
from forerun.optim.muonh import orthogonal_directions
from forerun.optim.orthogonal import MINIMAX, orthogonalize, orthogonalize_by_gram
from forerun.optim.schedule import schedule

RATES = {"muonh_learning_rate": 0.02, "adam_learning_rate": 0.01}


@pytest.mark.parametrize(
    ("name", "rule", "group"),
    [
        ("embedding", "adam", "embedding"),
        ("head", "adamh", "head"),
        ("layers/11/attention/w_q", "muonh", "attention"),
        ("layers/attention/w_o", "muonh", "attention"),
        ("layers/0/attention/head_gate", "adam", "head_gate"),
        ("layers/0/attention/conv_key", "adam", "short_conv"),
        ("layers/3/attention_norm/w_down", "muonh", "gated_norm"),
        ("layers/3/feed_forward_norm/gain", "adam", "gains"),
        ("layers/3/feed_forward/w_router", "adam", "router"),
        ("layers/3/feed_forward/experts/w_down", "muonh", "routed"),
        ("layers/3/feed_forward/latent/w_down", "muonh", "latent"),
        ("layers/3/feed_forward/latent/gain", "adam", "gains"),
        ("dense_layers/0/feed_forward/shared/0/w_up", "muonh", "shared"),
        ("final_norm/w_up", "muonh", "gated_norm"),
    ],
)
def test_every_kind_of_parameter_has_its_rule(name, rule, group):
    assert (row_of(name).rule, row_of(name).group) == (rule, group)


def test_a_parameter_nobody_listed_is_an_error():
    with pytest.raises(KeyError, match="no row for parameter"):
        row_of("layers/0/feed_forward/mystery")


def test_newton_schulz_keeps_singular_vectors_and_pushes_values_towards_one():
    matrices = np.random.default_rng(0).normal(size=(3, 16, 40)).astype(np.float32)
    result = np.asarray(orthogonalize(jnp.asarray(matrices), 5))
    for before, after in zip(matrices, result):
        left, _, right = np.linalg.svd(before, full_matrices=False)
        values = np.linalg.svd(after, compute_uv=False)
        assert 0.65 < values.min() <= values.max() < 1.25  # the quintic's band after 5 steps for well-conditioned matrices
        core = left.T @ after @ right.T
        assert np.abs(core - np.diag(np.diag(core))).max() < 2e-3  # same singular vectors, to float32 products


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_gram_form_keeps_singular_vectors_and_pushes_values_towards_one(precision):
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(32, 32)))
    right, _ = np.linalg.qr(rng.normal(size=(48, 32)))
    values = np.geomspace(1e-3, 7.0, 32)  # a hundredth of the spread a real gradient has, at a scale of its own
    matrix = 1e-6 * (left * values) @ right.T
    result = np.asarray(orthogonalize_by_gram(jnp.asarray(matrix[None], jnp.float32), precision))[0]
    core = left.T @ result @ right
    reached = np.diag(core)
    root_norm = np.sqrt(np.linalg.norm(np.diag(values**2)))
    large = values > (0.011 if precision == "float32" else 0.1) * root_norm
    assert 0.7 < reached[large].min() <= reached[large].max() < 1.3  # the polynomials' error of 0.27, and rounding
    assert np.abs(reached[~large]).max() < 1.6
    assert np.abs(core - np.diag(reached)).max() < (1e-3 if precision == "float32" else 0.25)  # 8 bits, squared: small directions mix


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_gram_form_of_zero_huge_and_tiny_matrices_is_finite(precision):
    matrix = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    batch = jnp.asarray(np.stack([0 * matrix, 1e18 * matrix, 1e-20 * matrix, matrix]))
    zero, huge, tiny, plain = np.asarray(orthogonalize_by_gram(batch, precision))
    assert not zero.any()
    np.testing.assert_allclose(huge, plain, atol=2e-2)  # the scale is divided out; bfloat16 factors round
    np.testing.assert_allclose(tiny, plain, atol=2e-2)


def test_the_minimax_coefficients_are_the_best_quintics_for_the_interval_each_has_to_serve():
    low, high = 0.01, 1.0
    for coefficients in MINIMAX:
        x = np.concatenate([np.geomspace(low, high, 400), np.linspace(low, high, 400)])
        powers, ones = np.stack([x, x**3, x**5], 1), np.ones((len(x), 1))
        solved = linprog(
            [0, 0, 0, 1],
            A_ub=np.block([[powers, -ones], [-powers, -ones]]),
            b_ub=np.concatenate([ones, -ones])[:, 0],
            bounds=[(None, None)] * 3 + [(0, None)],
        )
        np.testing.assert_allclose(coefficients, solved.x[:3], rtol=2e-3)  # a grid of 800 points
        low, high = 1 - solved.x[3], 1 + solved.x[3]
    assert high - 1 < 0.28


def test_batched_directions_equal_one_matrix_at_a_time_tall_or_wide():
    rng = np.random.default_rng(1)
    leaves = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((8, 20), (20, 8), (3, 8, 20), (5, 5))]
    together = orthogonal_directions(leaves, functools.partial(orthogonalize, num_steps=5))
    for leaf, result in zip(leaves, together):
        wide = leaf.mT if leaf.shape[-2] > leaf.shape[-1] else leaf
        alone = orthogonalize(wide.reshape(-1, *wide.shape[-2:]), 5).reshape(wide.shape)
        np.testing.assert_allclose(
            result, alone.mT if leaf.shape[-2] > leaf.shape[-1] else alone, atol=1e-5
        )  # batched products round differently


@pytest.mark.parametrize("expert_norm", ["per_expert", "pooled"])
def test_kept_norms_are_of_each_expert_or_of_all_together(expert_norm):
    rng = np.random.default_rng(2)
    experts = jnp.asarray(rng.normal(size=(4, 6, 6)) * np.arange(1, 5)[:, None, None], jnp.float32)
    params = {"layers": [{"feed_forward": {"experts": {"w_up": experts}}}]}
    optimizer = build(OptimConfig(**RATES, expert_norm=expert_norm), 10)
    state = optimizer.init(params)
    for step in range(5):
        gradients = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    moved = params["layers"][0]["feed_forward"]["experts"]["w_up"]
    total = [float(jnp.linalg.norm(leaf)) for leaf in (experts, moved)]
    np.testing.assert_allclose(total[1], total[0], rtol=1e-5)  # float32 projection
    each = np.linalg.norm(np.asarray(moved), axis=(1, 2)) / np.linalg.norm(np.asarray(experts), axis=(1, 2))
    assert (np.abs(each - 1).max() < 1e-5) == (expert_norm == "per_expert")


def test_the_adam_group_moves_as_optax_adam_does():
    params = {"embedding": jnp.asarray(np.random.default_rng(3).normal(size=(7, 5)), jnp.float32)}
    config = OptimConfig(**RATES, eps=1e-8, schedule=ScheduleConfig(warmup_fraction=0.1))
    ours, theirs = build(config, 20), optax.adam(lambda step: 0.01 * schedule(config.schedule, 20)(step), b1=0.9, b2=0.95, eps=1e-8)
    a, b = params, params
    state_a, state_b = ours.init(a), theirs.init(b)
    for step in range(6):
        gradients = {"embedding": jnp.sin(a["embedding"] * (step + 1))}
        up_a, state_a = ours.update(gradients, state_a, a)
        up_b, state_b = theirs.update({"embedding": jnp.sin(b["embedding"] * (step + 1))}, state_b, b)
        a, b = optax.apply_updates(a, up_a), optax.apply_updates(b, up_b)
    np.testing.assert_allclose(a["embedding"], b["embedding"], rtol=1e-5)  # float32, operations in another order


def test_schedules_rise_to_the_peak_and_end_at_the_floor():
    linear = [float(schedule(ScheduleConfig(warmup_fraction=0.1), 100)(step)) for step in range(101)]
    assert linear[0] == pytest.approx(0.1) and linear[9] == pytest.approx(1.0) and linear[100] == pytest.approx(0.05)
    assert all(a >= b for a, b in zip(linear[10:], linear[11:]))
    wsd = [float(schedule(ScheduleConfig(kind="wsd", decay_fraction=0.2), 100)(step)) for step in range(101)]
    assert wsd[50] == wsd[79] == 1.0 and wsd[100] == pytest.approx(0.05)
