"""Documents packed into one sequence know nothing of each other."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from model_tiny import TINY, TWO_LAYERS, pack, params_of

from forerun.model import transformer
from forerun.model.presets import MIXTRAL_8X7B, reduced

SEQ_LEN = 24
STATE = transformer.RouterState(bias=np.zeros((2, 6), np.float32))


@functools.cache
def logits_of(config):
    params = params_of(config)
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    params = jax.tree.unflatten(structure, [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves])
    return jax.jit(lambda batch: transformer.next_logits(params, STATE, batch, config)), jax.jit(
        lambda batch: transformer.token_losses(params, STATE, batch, config)
    )


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= SEQ_LEN)


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(0, 2**31), st.sampled_from([TWO_LAYERS, replace(TWO_LAYERS, window=0), "mixtral"]))
def test_logits_and_losses_of_a_document_are_the_same_alone_and_packed(sizes, seed, config):
    if config == "mixtral":
        config = reduced(MIXTRAL_8X7B.model, d_model=32, num_layers=2, vocab_size=96, num_experts=6, window=0)
    rng = np.random.default_rng(seed)
    documents = [rng.integers(1, TINY.vocab_size, size).tolist() for size in sizes]
    logits, losses = logits_of(config)
    packed = pack([documents], SEQ_LEN)
    together, together_nats = np.asarray(logits(packed)[0]), np.asarray(losses(packed)[0])
    at = 0
    for document in documents:
        single = pack([[document]], SEQ_LEN)
        here = slice(at, at + len(document))
        # float32; only the order of sums inside products of another shape may differ
        np.testing.assert_allclose(together[here], np.asarray(logits(single)[0])[: len(document)], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            together_nats[here][: len(document) - 1], np.asarray(losses(single)[0])[: len(document) - 1], rtol=1e-4, atol=1e-4
        )
        at += len(document)


def test_a_token_changes_no_logit_before_it():
    logits, _ = logits_of(TWO_LAYERS)
    rng = np.random.default_rng(1)
    document = rng.integers(1, TINY.vocab_size, SEQ_LEN).tolist()
    changed = [*document[:15], (document[15] + 1) % TINY.vocab_size or 1, *document[16:]]
    before, after = (np.asarray(logits(pack([[text]], SEQ_LEN))[0]) for text in (document, changed))
    np.testing.assert_array_equal(before[:15], after[:15])
    assert np.abs(before[15:] - after[15:]).max(-1).min() > 1e-4


def test_padding_takes_no_expert_slot_and_no_part_in_the_loss():
    params = params_of(TWO_LAYERS)
    document = list(range(1, 11))
    short, long = pack([[document]], 12), pack([[document]], 24)
    loss = jax.jit(functools.partial(transformer.loss, config=TWO_LAYERS))
    (few, few_aux), (many, many_aux) = loss(params, STATE, short), loss(params, STATE, long)
    np.testing.assert_allclose(few, many, rtol=1e-6)
    assert few_aux.num_tokens == many_aux.num_tokens == 9
    np.testing.assert_array_equal(few_aux.load, many_aux.load)
    assert few_aux.load.sum() == 2 * 10 * TWO_LAYERS.top_k
    np.testing.assert_allclose(few_aux.router_state.bias, many_aux.router_state.bias, atol=1e-6)
