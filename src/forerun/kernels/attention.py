"""Masked attention whose passes over the score matrix are as few as can be: the plain form first, then the fast one.

The fast form never divides, subtracts or sums a score matrix by itself: the row sum comes out of the product with the values, as
one more column of ones, and the same column brings the row term of the softmax's gradient into the backward product. Every product
reads score matrices in the order they are stored. Queries are taken in blocks, each against only the keys it can reach, and a few
sequences at a time, so that their scores stay in the cache; the backward pass makes them again instead of reading them from memory.
"""

# B sequences, V key-value heads, G query heads per key-value head, S tokens, d d_head, Q queries of a block, K keys they can reach
# N tiles of T sequences each, B = T N; R = G Q rows of scores per key-value head

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from forerun.kernels.blocks import num_attention_tiles, query_blocks

SAFE_SCORE = 40.0  # derived: exp(40) summed over a million keys stays below 1e24, far inside float32 and bfloat16
Attention = Callable[..., Array]
"""`attention`'s own shape."""
MASKED = -1e30  # assumed: far below any score, finite so that no row can become NaN


def attention_reference(
    query: Float[Array, "B V G S d"], key: Float[Array, "B V S d"], value: Float[Array, "B V S d"], mask: Bool[Array, "B S S"]
) -> Float[Array, "B V G S d"]:
    """Softmax over visible keys of query . key (scale already in the query), times the values."""
    scores = jnp.einsum("bvgqd,bvkd->bvgqk", query, key, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, MASKED), -1)
    return jnp.einsum("bvgqk,bvkd->bvgqd", weights.astype(value.dtype), value)


def attention(
    query: Float[Array, "B V G S d"],
    key: Float[Array, "B V S d"],
    value: Float[Array, "B V S d"],
    mask: Bool[Array, "B S S"],
    *,
    span: int,
    score_bound: float,
) -> Float[Array, "B V G S d"]:
    """The same, faster.

    Args:
        mask: must hide every key later than its query, and every key `span` or more tokens earlier.
        span: keys a query can reach, its own included; the sequence length when there is no window.
        score_bound: largest absolute score possible, infinity when unknown. At most `SAFE_SCORE` (queries and keys of known
            norm), rows need no shift by their maximum.
    """
    seq_len = query.shape[3]
    outputs = []
    for start, end, first in query_blocks(seq_len, span):
        visible = mask[:, None, start:end, first:end]
        outputs.append(_block(query[:, :, :, start:end], key[:, :, first:end], value[:, :, first:end], visible, score_bound <= SAFE_SCORE))
    return jnp.concatenate(outputs, 3) if len(outputs) > 1 else outputs[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _block(query, key, value, mask, bounded):
    return _block_forward(query, key, value, mask, bounded)[0]


def _block_forward(query, key, value, mask, bounded):
    """The output of a block of queries; kept for the backward pass are its inputs, output and row statistics, no score.

    When the whole batch is one tile, XLA finds that both passes make the same scores and keeps them after all.
    """
    inputs = (query, key, value, mask)
    out, total, largest = _by_tiles(functools.partial(_tile_forward, bounded=bounded), inputs, query, key)
    return out, (inputs, out, total, largest)


def _block_backward(bounded, saved, d_out):
    del bounded
    (query, key, value, mask), out, total, largest = saved
    return (*_by_tiles(_tile_backward, (query, key, value, mask, out, total, largest, d_out), query, key), None)


_block.defvjp(_block_forward, _block_backward)


def _tile_forward(query, key, value, mask, *, bounded):
    scores = _scores(query, key)
    largest = None if bounded else jnp.where(mask[:, :, None], scores, MASKED).max(-1, keepdims=True)
    unnormed = _unnormed(scores, mask, largest).astype(value.dtype)
    summed = jnp.einsum("bvrk,bvkd->bvrd", _rows(unnormed), _with_ones(value), preferred_element_type=jnp.float32)
    total = summed[..., -1:]
    return (summed[..., :-1] / total).astype(value.dtype).reshape(query.shape), total, largest


def _tile_backward(query, key, value, mask, out, total, largest, d_out):
    unnormed = _rows(_unnormed(_scores(query, key), mask, largest).astype(value.dtype))
    rows, d_rows_out = _rows(query), _rows(d_out).astype(jnp.float32)
    row_term = (d_rows_out * _rows(out).astype(jnp.float32)).sum(-1, keepdims=True)
    scaled = (jnp.concatenate([d_rows_out, -row_term], -1) / total).astype(value.dtype)
    d_scores = unnormed * jnp.einsum("bvrd,bvkd->bvrk", scaled, _with_ones(value))
    d_query = jnp.einsum("bvrk,bvkd->bvrd", d_scores, key).reshape(query.shape)
    return d_query, _summed_over_rows(rows, d_scores), _summed_over_rows(scaled[..., :-1], unnormed)


def _scores(query, key):
    batch, num_kv, group, num_queries, _ = query.shape
    scores = jnp.einsum("bvrd,bvkd->bvrk", _rows(query), key, preferred_element_type=jnp.float32)
    return scores.reshape(batch, num_kv, group, num_queries, -1)


def _unnormed(scores, mask, largest):
    """Softmax weights times their row sum."""
    if largest is None:
        return jnp.exp(scores) * mask[:, :, None].astype(jnp.float32)
    return jnp.exp(jnp.where(mask[:, :, None], scores, MASKED) - largest)


def _rows(array: Float[Array, "B V G Q x"]) -> Float[Array, "B V R x"]:
    return array.reshape(*array.shape[:2], -1, array.shape[-1])


def _summed_over_rows(left: Float[Array, "B V R d"], scores: Float[Array, "B V R K"]) -> Float[Array, "B V K d"]:
    """Product over rows that reads the scores as they lie; without the barrier XLA folds the transposes in and takes a slow path."""
    transposed = jnp.einsum("bvdr,bvrk->bvdk", left.swapaxes(2, 3), scores)
    return jax.lax.optimization_barrier(transposed).swapaxes(2, 3)


def _by_tiles(function, arrays, query, key):
    """`function` over a few sequences at a time, results put together again. On a mesh, call it where the sequences are (`shard_map`)."""
    num_tiles = num_attention_tiles(query.shape[0], query.size // query.shape[0] // query.shape[-1] * key.shape[2])
    if num_tiles == 1:
        return function(*arrays)
    tiles = jax.tree.map(lambda array: array.reshape(num_tiles, -1, *array.shape[1:]), arrays)
    results = jax.lax.map(lambda tile: function(*tile), tiles)
    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), results)


def _with_ones(value: Float[Array, "B V K d"]) -> Float[Array, "B V K d+1"]:
    return jnp.concatenate([value, jnp.ones((*value.shape[:-1], 1), value.dtype)], -1)
