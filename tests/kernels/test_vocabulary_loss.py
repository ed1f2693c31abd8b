"""The streamed cross-entropy against the plain one, and what it never holds."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from forerun.kernels import vocabulary_loss as kernel

Z = 1e-2


def problem(num_tokens=60, d_model=16, vocab_size=5000, seed=0):
    rng = np.random.default_rng(seed)
    hidden = jnp.float32(rng.normal(size=(num_tokens, d_model)))
    head = jnp.float32(rng.normal(size=(d_model, vocab_size)) * 0.5)
    targets = jnp.array(rng.integers(0, vocab_size, num_tokens))
    weight = jnp.float32(rng.random(num_tokens) * (rng.random(num_tokens) > 0.3) / num_tokens)
    return hidden, head, targets, weight


@pytest.mark.parametrize("vocab_size", [5000, 4096, 8192, 100])
def test_sums_equal_the_plain_form_and_a_float64_count(vocab_size):
    hidden, head, targets, weight = problem(vocab_size=vocab_size)
    logits = np.asarray(hidden, np.float64) @ np.asarray(head, np.float64)
    total = np.log(np.exp(logits).sum(-1))
    nats = total - logits[np.arange(len(targets)), np.asarray(targets)]
    by_hand = [(nats * weight).sum() + Z * (total**2 * weight).sum(), (nats * weight).sum(), (total**2 * weight).sum()]
    np.testing.assert_allclose(kernel.vocabulary_loss(hidden, head, targets, weight, Z), by_hand, rtol=1e-5)
    np.testing.assert_allclose(kernel.vocabulary_loss_reference(hidden, head, targets, weight, Z), by_hand, rtol=1e-5)
    np.testing.assert_allclose(kernel.token_nats(hidden, head, targets)[0], nats, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block_bytes", [1 << 30, 20 * 5000 * 4, 4])
def test_gradient_equals_the_plain_form_for_any_block(monkeypatch, block_bytes):
    monkeypatch.setattr(kernel, "LOGIT_BLOCK_BYTES", block_bytes)
    hidden, head, targets, weight = problem()
    fast, plain = (
        jax.jit(jax.value_and_grad(lambda hidden, head, form=form: 3.0 * form(hidden, head, targets, weight, Z)[0], argnums=(0, 1)))(
            hidden, head
        )
        for form in (kernel.vocabulary_loss, kernel.vocabulary_loss_reference)
    )
    np.testing.assert_allclose(fast[0], plain[0], rtol=1e-5)
    for one, other in zip(fast[1], plain[1]):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_the_forward_value_is_the_same_with_and_without_a_gradient():
    hidden, head, targets, weight = problem()
    alone = kernel.vocabulary_loss(hidden, head, targets, weight, Z)[0]
    beside, _ = jax.value_and_grad(lambda hidden: kernel.vocabulary_loss(hidden, head, targets, weight, Z)[0])(hidden)
    np.testing.assert_allclose(alone, beside, rtol=1e-5)


def test_huge_logits_stay_finite():
    hidden, head, targets, weight = problem()
    objective, gradient = jax.value_and_grad(lambda hidden: kernel.vocabulary_loss(1e3 * hidden, head, targets, weight, Z)[0])(hidden)
    assert jnp.isfinite(objective)
    assert jnp.isfinite(gradient).all()


def test_full_logits_never_exist():
    num_tokens, d_model, vocab_size = 4096, 16, 16_384
    full = num_tokens * vocab_size * 4
    shapes = (
        jax.ShapeDtypeStruct((num_tokens, d_model), jnp.float32),
        jax.ShapeDtypeStruct((d_model, vocab_size), jnp.float32),
        jax.ShapeDtypeStruct((num_tokens,), jnp.int32),
        jax.ShapeDtypeStruct((num_tokens,), jnp.float32),
    )

    def work_space(function):
        return jax.jit(function).lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    def trained(form):
        return jax.value_and_grad(lambda hidden, head, targets, weight: form(hidden, head, targets, weight, Z)[0], argnums=(0, 1))

    assert work_space(trained(kernel.vocabulary_loss)) < full / 8
    assert (
        work_space(functools.partial(kernel.vocabulary_loss, z_coefficient=Z)) <= full / 3
    )  # one block of 4096 columns and its exponentials
    assert work_space(trained(kernel.vocabulary_loss_reference)) > full
