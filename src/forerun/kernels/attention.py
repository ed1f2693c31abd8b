"""Masked attention whose passes over the score matrix are as few as can be: the plain form first, then the fast one.

The fast form never divides, subtracts or sums a score matrix by itself: the row sum comes out of the product with the values, as
one more column of ones, and the same column brings the row term of the softmax's gradient into the backward product. Every product
reads score matrices in the order they are stored. Queries are taken in blocks, each against only the keys it can reach.
"""

# B sequences, V key-value heads, G query heads per key-value head, S tokens, d d_head, Q queries of a block, K keys they can reach

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from forerun.kernels.blocks import query_blocks

SAFE_SCORE = 40.0  # derived: exp(40) summed over a million keys stays below 1e24, far inside float32 and bfloat16
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
    batch, num_kv, group, num_queries, d_head = query.shape
    rows = query.reshape(batch, num_kv, group * num_queries, d_head)
    scores = jnp.einsum("bvqd,bvkd->bvqk", rows, key, preferred_element_type=jnp.float32)
    scores = scores.reshape(batch, num_kv, group, num_queries, -1)
    if bounded:
        unnormed = jnp.exp(scores) * mask[:, :, None].astype(jnp.float32)
    else:
        scores = jnp.where(mask[:, :, None], scores, MASKED)
        unnormed = jnp.exp(scores - scores.max(-1, keepdims=True))
    unnormed = unnormed.astype(value.dtype).reshape(batch, num_kv, group * num_queries, -1)
    summed = jnp.einsum("bvqk,bvkd->bvqd", unnormed, _with_ones(value), preferred_element_type=jnp.float32)
    total = summed[..., -1:]
    out = (summed[..., :-1] / total).astype(value.dtype)
    return out.reshape(query.shape), (rows, key, value, unnormed, out, total)


def _block_backward(bounded, saved, d_out):
    del bounded
    rows, key, value, unnormed, out, total = saved
    query_shape = d_out.shape
    d_out = d_out.reshape(out.shape).astype(jnp.float32)
    row_term = (d_out * out.astype(jnp.float32)).sum(-1, keepdims=True)
    scaled = (jnp.concatenate([d_out, -row_term], -1) / total).astype(value.dtype)
    d_scores = unnormed * jnp.einsum("bvqd,bvkd->bvqk", scaled, _with_ones(value))
    d_rows = jnp.einsum("bvqk,bvkd->bvqd", d_scores, key)
    d_key = jnp.einsum("bvdq,bvqk->bvdk", rows.swapaxes(2, 3), d_scores).swapaxes(2, 3)
    d_value = jnp.einsum("bvdq,bvqk->bvdk", scaled[..., :-1].swapaxes(2, 3), unnormed).swapaxes(2, 3)
    return d_rows.reshape(query_shape), d_key, d_value, None


_block.defvjp(_block_forward, _block_backward)


def _with_ones(value: Float[Array, "B V K d"]) -> Float[Array, "B V K d+1"]:
    return jnp.concatenate([value, jnp.ones((*value.shape[:-1], 1), value.dtype)], -1)
