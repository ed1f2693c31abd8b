"""Slots, blocks and the local transport against a loop over tokens in float64."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from forerun.kernels.grouped_matmul import grouped_matmul, grouped_matmul_reference
from forerun.parallel.config import TransportConfig, rows_within
from forerun.parallel.contract import ExpertParams
from forerun.parallel.layout import rows_per_block
from forerun.parallel.local import run_experts
from forerun.parallel.order import sort_by_expert

D, F = 8, 12


def problem(num_tokens, num_experts, top_k, seed=0, hot=False):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(num_tokens, D)).astype(np.float32)
    index = np.stack([rng.permutation(num_experts)[:top_k] for _ in range(num_tokens)]).astype(np.int32)
    if hot:
        index[:, 0], index[:, 1:] = 0, np.maximum(index[:, 1:], 1)
    weight = rng.random((num_tokens, top_k)).astype(np.float32)
    valid = rng.random(num_tokens) > 0.2
    shapes = ((num_experts, D, F), (num_experts, D, F), (num_experts, F, D))
    experts = ExpertParams(*(jnp.float32(rng.normal(size=shape) * 0.4) for shape in shapes))
    return rows, index, weight, valid, experts


sorted_order = jax.jit(sort_by_expert, static_argnums=2)
run_compiled = jax.jit(run_experts, static_argnames="config")


def plain(rows, index, weight, valid, experts, kept=None):
    gate, up, down = (np.asarray(matrix, np.float64) for matrix in experts)
    out = np.zeros(rows.shape)
    for t in np.flatnonzero(valid):
        for k, e in enumerate(index[t]):
            if kept is None or kept[t, k]:
                inner = rows[t] @ gate[e]
                out[t] += weight[t, k] * ((inner / (1 + np.exp(-inner)) * (rows[t] @ up[e])) @ down[e])
    return out


@pytest.mark.parametrize("capacity_factor", [0.0, 6.0])
@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "top_k", "hot"), [(50, 7, 3, False), (64, 4, 4, False), (33, 6, 1, True), (1, 3, 2, False)]
)
def test_output_and_gradients_equal_a_loop_over_tokens(num_tokens, num_experts, top_k, hot, capacity_factor):
    rows, index, weight, valid, experts = problem(num_tokens, num_experts, top_k, hot=hot)
    run = functools.partial(
        run_experts, config=TransportConfig(capacity_factor=max(capacity_factor, num_experts if capacity_factor else 0))
    )
    out, traffic = run(rows, index, weight, valid, experts)
    np.testing.assert_allclose(out, plain(rows, index, weight, valid, experts), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(traffic.load, np.bincount(index[valid].reshape(-1), minlength=num_experts))
    assert (traffic.dropped == 0).all()

    def dense(rows, weight, experts):
        inner = jax.nn.silu(jnp.einsum("td,edf->etf", rows, experts.w_gate)) * jnp.einsum("td,edf->etf", rows, experts.w_up)
        counts = (jax.nn.one_hot(index, num_experts) * (weight * valid[:, None])[..., None]).sum(1)
        return jnp.einsum("te,etf,efd->td", counts, inner, experts.w_down)

    cotangent = jnp.float32(np.random.default_rng(1).normal(size=rows.shape))
    ours = jax.jit(jax.grad(lambda rows, weight, experts: (run(rows, index, weight, valid, experts)[0] * cotangent).sum(), (0, 1, 2)))
    theirs = jax.jit(jax.grad(lambda *arguments: (dense(*arguments) * cotangent).sum(), (0, 1, 2)))
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4),
        ours(jnp.array(rows), jnp.array(weight), experts),
        theirs(jnp.array(rows), jnp.array(weight), experts),
    )


@pytest.mark.parametrize(("num_tokens", "num_experts", "top_k"), [(40, 9, 3), (1, 1, 1), (17, 4, 4), (64, 2, 1)])
def test_sorted_order_is_a_permutation_grouped_by_expert_with_ranks(num_tokens, num_experts, top_k):
    rng = np.random.default_rng(num_tokens)
    index = np.stack([rng.permutation(num_experts)[:top_k] for _ in range(num_tokens)]).astype(np.int32)
    valid = rng.random(num_tokens) > 0.3
    order = sorted_order(index, valid[:, None], num_experts)
    assert sorted(np.asarray(order.assignment).tolist()) == list(range(index.size))
    for expert in range(num_experts):
        start, load = int(order.start[expert]), int(order.load[expert])
        mine = np.asarray(order.assignment)[start : start + load]
        assert set(mine.tolist()) == {a for a in range(index.size) if valid[a // top_k] and index[a // top_k, a % top_k] == expert}
        ranks = np.asarray(order.rank).reshape(-1)[mine]
        assert ranks.tolist() == list(range(load))


def test_overflow_drops_exactly_the_excess_and_the_rest_is_exact():
    rows, index, weight, valid, experts = problem(40, 4, 2, hot=True)
    capacity = math.ceil(0.5 * 2 * valid.sum() / 4)
    out, traffic = run_compiled(rows, index, weight, valid, experts, config=TransportConfig(capacity_factor=0.5))
    np.testing.assert_array_equal(traffic.dropped, np.maximum(np.asarray(traffic.load) - capacity, 0))
    rank = np.asarray(sorted_order(index, valid[:, None], 4).rank)
    np.testing.assert_allclose(out, plain(rows, index, weight, valid, experts, kept=rank < capacity), rtol=1e-4, atol=1e-5)


def test_drops_favour_no_part_of_the_batch():
    num_tokens = 4000
    index = np.zeros((num_tokens, 1), np.int32)
    rank = np.asarray(sorted_order(index, np.ones((num_tokens, 1), bool), 2).rank)[:, 0]
    kept = (rank < num_tokens // 2).reshape(8, -1).mean(1)
    np.testing.assert_allclose(kept, 0.5, atol=0.01)  # golden multiples spread each eighth evenly


def test_renormalised_survivors_carry_the_whole_weight_of_their_token():
    rows, index, weight, valid, experts = problem(40, 4, 2, hot=True)
    valid[:] = True
    config = TransportConfig(capacity_factor=0.5, renormalize_survivors=True)
    out, _ = run_compiled(rows, index, weight, valid, experts, config=config)
    rank = np.asarray(sorted_order(index, valid[:, None], 4).rank)
    kept = rank < rows_within(80, 0.5, 4)
    lost_one = kept.sum(1) == 1
    assert lost_one.any()
    scaled = np.where(kept, weight, 0)
    scaled = np.where(kept.any(1, keepdims=True), scaled * weight.sum(1, keepdims=True) / np.maximum(scaled.sum(1, keepdims=True), 1e-9), 0)
    np.testing.assert_allclose(out, plain(rows, index, scaled, valid, experts), rtol=1e-4, atol=1e-5)


def test_empty_slots_cannot_spread_a_nan_from_padding():
    rows, index, weight, valid, experts = problem(20, 4, 2)
    rows[~valid] = 0
    gradient = jax.grad(
        lambda experts: run_compiled(rows, index, weight, valid, experts, config=TransportConfig(capacity_factor=4.0))[0].sum()
    )
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in gradient(experts))


@pytest.mark.parametrize(
    ("num_assignments", "parts", "factor", "slots"),
    [(100, 10, 1.0, 10), (100, 8, 1.25, 16), (64, 8, 1.15, 10), (3, 8, 0.1, 1), (10, 1, 5.0, 10)],
)
def test_buffer_rows_round_up_and_stay_within_the_assignments(num_assignments, parts, factor, slots):
    assert rows_within(num_assignments, factor, parts) == slots


def test_blocks_are_powers_of_two_between_8_and_128():
    assert [rows_per_block(a, 8) for a in (8, 200, 1000, 10**6)] == [8, 8, 32, 128]


def test_grouped_products_equal_the_loop_over_experts():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, D, F)).astype(np.float32)
    rows = rng.normal(size=(6, D)).astype(np.float32)
    by_expert = grouped_matmul_reference(rows, weights, np.array([2, 0, 4]))
    blocks = grouped_matmul(jnp.array(rows.reshape(3, 2, D)), jnp.array(weights), jnp.array([0, 2, 2]))
    np.testing.assert_allclose(np.asarray(blocks).reshape(6, F), by_expert, rtol=1e-5, atol=1e-6)
