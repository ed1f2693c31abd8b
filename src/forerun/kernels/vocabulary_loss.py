"""Cross-entropy and logit z-loss without the full logits: the plain form first, then the streamed ones.

Training streams over blocks of tokens and makes the gradient while each block's logits are at hand, so the head is multiplied
three times and nothing is recomputed. Evaluation streams over blocks of the vocabulary with an online logsumexp.
"""

# T tokens, D d_model, V vocab_size, N token blocks, M tokens per block, W columns per vocabulary block

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from forerun.kernels.blocks import LOGIT_BLOCK_BYTES

HeadLoss = Callable[[Array, Array, Array, Array, float], Any]
"""`vocabulary_loss`'s own shape: hidden, head, targets, weight, z_coefficient to objective, nats, squared logsumexp.
`Any`: what a `custom_vjp` returns is unknown to the types of jax 0.10."""
VOCABULARY_BLOCK = 4096  # derived: the block of the original's streamed head (reference model-and-training 1.4)


def vocabulary_loss_reference(
    hidden: Float[Array, "T D"],
    head: Float[Array, "D V"],
    targets: Int[Array, "T"],
    weight: Float[Array, "T"],
    z_coefficient: float,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """The three sums over tokens, from full logits: weighted objective, weighted nats, weighted squared logsumexp."""
    logits = jnp.dot(hidden, head, preferred_element_type=jnp.float32)
    log_total = jax.nn.logsumexp(logits, -1)
    nats = log_total - jnp.take_along_axis(logits, targets[:, None], -1)[:, 0]
    return _sums(nats, log_total, weight, z_coefficient)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def vocabulary_loss(
    hidden: Float[Array, "T D"],
    head: Float[Array, "D V"],
    targets: Int[Array, "T"],
    weight: Float[Array, "T"],
    z_coefficient: float,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """The same sums, at most `LOGIT_BLOCK_BYTES` of logits at a time.

    Args:
        weight: of each token in the sums, 0 for tokens that are not predicted; divide by the token count here for a mean.
    Returns: objective = nats + z_coefficient * squared logsumexp, then both parts; only the objective carries gradient.
    """
    nats, log_total = token_nats(hidden, head, targets)
    return _sums(nats, log_total, weight, z_coefficient)


def _forward(hidden, head, targets, weight, z_coefficient):
    num_tokens, vocab_size = hidden.shape[0], head.shape[1]
    num_blocks = _num_token_blocks(num_tokens, vocab_size)

    def one_block(d_head, block):
        hidden_block, targets_block, weight_block = block
        logits = jnp.dot(hidden_block, head, preferred_element_type=jnp.float32)
        largest = logits.max(-1, keepdims=True)
        shifted = jnp.exp(logits - largest)
        total = shifted.sum(-1, keepdims=True)
        log_total = jnp.log(total) + largest
        nats = log_total[:, 0] - jnp.take_along_axis(logits, targets_block[:, None], -1)[:, 0]
        slope = (1 + 2 * z_coefficient * log_total) / total * weight_block[:, None]
        is_target = jnp.arange(vocab_size) == targets_block[:, None]
        d_logits = (shifted * slope - jnp.where(is_target, weight_block[:, None], 0)).astype(hidden.dtype)
        d_head = d_head + jnp.dot(hidden_block.T, d_logits, preferred_element_type=jnp.float32)
        return d_head, (nats, log_total[:, 0], jnp.dot(d_logits, head.T))

    blocks = tuple(array.reshape(num_blocks, -1, *array.shape[1:]) for array in (hidden, targets, weight))
    d_head, (nats, log_total, d_hidden) = jax.lax.scan(one_block, jnp.zeros(head.shape, jnp.float32), blocks)
    sums = _sums(nats.reshape(-1), log_total.reshape(-1), weight, z_coefficient)
    return sums, (d_hidden.reshape(hidden.shape), d_head.astype(head.dtype))


def _backward(z_coefficient, gradients, cotangents):
    del z_coefficient
    d_hidden, d_head = gradients
    scale = cotangents[0]
    return (d_hidden * scale).astype(d_hidden.dtype), (d_head * scale).astype(d_head.dtype), None, None


vocabulary_loss.defvjp(_forward, _backward)


def token_nats(
    hidden: Float[Array, "T D"], head: Float[Array, "D V"], targets: Int[Array, "T"]
) -> tuple[Float[Array, "T"], Float[Array, "T"]]:
    """Each token's cross-entropy and logsumexp in float32, streamed over blocks of the vocabulary."""
    vocab_size = head.shape[1]
    largest = jnp.full(targets.shape, -jnp.inf, jnp.float32)
    total = jnp.zeros(targets.shape, jnp.float32)
    target_logit = jnp.zeros(targets.shape, jnp.float32)
    carry = (largest, total, target_logit)
    num_whole = vocab_size // VOCABULARY_BLOCK

    def whole_block(carry, index):
        start = index * VOCABULARY_BLOCK
        columns = jax.lax.dynamic_slice_in_dim(head, start, VOCABULARY_BLOCK, axis=1)
        return _absorb(carry, hidden, columns, targets - start), None

    if num_whole:
        carry, _ = jax.lax.scan(whole_block, carry, jnp.arange(num_whole))
    if vocab_size % VOCABULARY_BLOCK:
        start = num_whole * VOCABULARY_BLOCK
        carry = _absorb(carry, hidden, head[:, start:], targets - start)
    largest, total, target_logit = carry
    log_total = largest + jnp.log(total)
    return log_total - target_logit, log_total


def _absorb(carry, hidden, columns, local_target):
    """Fold one block of vocabulary columns into the running maximum, the sum below it and the target's logit."""
    largest, total, target_logit = carry
    logits = jnp.dot(hidden, columns, preferred_element_type=jnp.float32)
    new_largest = jnp.maximum(largest, logits.max(-1))
    total = total * jnp.exp(largest - new_largest) + jnp.exp(logits - new_largest[:, None]).sum(-1)
    inside = (local_target >= 0) & (local_target < columns.shape[1])
    picked = jnp.take_along_axis(logits, jnp.clip(local_target, 0, columns.shape[1] - 1)[:, None], -1)[:, 0]
    return new_largest, total, jnp.where(inside, picked, target_logit)


def _sums(nats, log_total, weight, z_coefficient):
    nats_sum, z_sum = (nats * weight).sum(), (log_total**2 * weight).sum()
    return nats_sum + z_coefficient * z_sum, nats_sum, z_sum


def _num_token_blocks(num_tokens: int, vocab_size: int) -> int:
    """Fewest equal blocks whose logits stay within the budget; at worst one token a block."""
    for num_blocks in range(1, num_tokens + 1):
        if num_tokens % num_blocks == 0 and num_tokens // num_blocks * vocab_size * 4 <= LOGIT_BLOCK_BYTES:
            return num_blocks
    return num_tokens
