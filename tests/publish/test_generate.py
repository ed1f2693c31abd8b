"""Generation with a cache says what the whole forward pass says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import MODEL

from forerun.loader.batches import Batch
from forerun.model.config import ModelConfig
from forerun.model.transformer import RouterState, init_params, next_logits
from forerun.publish.generate import empty_cache, generate, next_token_logits

PADDED = 24
CONFIGS = {
    "recipe": replace(MODEL, window=5, num_layers=3, global_every=2, num_heads=4, num_kv_heads=2),
    "dense_first": replace(MODEL, window=5, num_layers=3, num_dense_layers=1, d_dense=48, d_latent=32, tied_embeddings=True),
    "plain": replace(MODEL, window=0, rope_on_global=True, rope_fraction=1.0, short_conv_taps=0, gated_norm_rank=0, head_gate=False,
                     exclusive_attention=False, embedding_norm=False, qk_gain="all_heads", combine="softmax_all", num_shared_experts=0),
}  # fmt: skip


def scrambled(config: ModelConfig, seed: int = 0) -> tuple[dict, jax.Array]:
    """Parameters where every leaf matters, gates and convolutions included, and a routing bias."""
    params = init_params(config, jax.random.key(seed))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    params = jax.tree.unflatten(tree, [leaf + 0.1 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys)])
    return params, 0.1 * jax.random.normal(jax.random.key(seed + 2), (config.num_routed_layers, config.num_experts))


def whole(params: dict, bias: jax.Array, config: ModelConfig, tokens: list[int]) -> np.ndarray:
    """Logits after every token; padded behind, which no token sees, so that one compilation serves all lengths."""
    return np.asarray(padded_logits(params, bias, jnp.array([tokens + [0] * (PADDED - len(tokens))]), config)[0, : len(tokens)])


@partial(jax.jit, static_argnames="config")
def padded_logits(params: dict, bias: jax.Array, ids: jax.Array, config: ModelConfig) -> jax.Array:
    ones = jnp.ones_like(ids)
    batch = Batch(tokens=ids, targets=ids, segment_ids=ones, positions=jnp.arange(PADDED)[None], loss_mask=ones.astype(jnp.float32))  # type: ignore[arg-type]
    return next_logits(params, RouterState(bias=bias), batch, config)


@pytest.mark.parametrize("name", CONFIGS)
def test_cached_logits_equal_the_whole_forward_pass(name):
    config = CONFIGS[name]
    params, bias = scrambled(config)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 17).tolist()
    cache, rows = empty_cache(config, len(tokens)), []
    for place, token in enumerate(tokens):
        logits, cache = next_token_logits(params, bias, cache, token, place, config=config)
        rows.append(logits)
    np.testing.assert_allclose(np.stack(rows), whole(params, bias, config, tokens), atol=1e-4)  # float32 sums in another order


def test_greedy_text_is_the_argmax_of_the_whole_pass_at_every_place():
    config = CONFIGS["recipe"]
    params, bias = scrambled(config, 5)
    text = [3, 1, 4, 1, 5]
    for token in generate(params, bias, config, list(text), num_tokens=6):
        assert token == int(whole(params, bias, config, text)[-1].argmax())
        text.append(token)
    drawn = [list(generate(params, bias, config, [3], num_tokens=8, temperature=1.0, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
