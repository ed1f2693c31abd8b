"""Which experts each token goes to, how much each one counts, and how far each expert was from being chosen."""

# T tokens, D d_model, E experts, K top_k

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.model.config import ModelConfig

WEIGHT_SUM_EPS = 1e-9  # derived: the original's guard against all scores at zero (reference model-and-training 1.2)


class Routing(NamedTuple):
    """One layer's choices."""

    expert_index: Int[Array, "T K"]
    """Chosen experts, best first."""
    weight: Float[Array, "T K"]
    """How much each counts; rows sum to `routed_scale`. Carries the router's gradient."""
    margin: Float[Array, "T E"]
    """Score minus the best biased score that was not chosen, so that a bias of -margin would tie; no gradient."""


def router_logits(rows: Float[Array, "T D"], w_router: Float[Array, "D E"]) -> Float[Array, "T E"]:
    """Scores in float32, accumulated in float32: a bfloat16 product reorders the top 8 for 9% of tokens (reference R1)."""
    return jnp.dot(rows.astype(jnp.float32), w_router.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST)


def route(logits: Float[Array, "T E"], bias: Float[Array, "E"], config: ModelConfig) -> Routing:
    """Choose by biased scores, weigh by unbiased ones.

    Args:
        bias: the effective balancing bias; under quantile balancing and the auxiliary loss it shifts the logits, under the
            sigmoid bias the sigmoids.
    """
    num_experts, top_k = logits.shape[-1], config.top_k
    scores = jax.nn.sigmoid(logits) if config.balancing == "sigmoid_bias" else logits
    scores = jax.lax.stop_gradient(scores)
    best, index = jax.lax.top_k(scores + bias, min(top_k + 1, num_experts))
    expert_index = index[:, :top_k]
    chosen = jnp.take_along_axis(logits, expert_index, -1)
    if config.combine == "sigmoid":
        gates = jax.nn.sigmoid(chosen)
        weight = gates / (gates.sum(-1, keepdims=True) + WEIGHT_SUM_EPS)
    elif config.combine == "softmax_all":
        weight = jnp.take_along_axis(jax.nn.softmax(logits, -1), expert_index, -1)
    else:
        weight = jax.nn.softmax(chosen, -1)
    return Routing(expert_index=expert_index, weight=config.routed_scale * weight, margin=scores - best[:, -1:])


def mean_distribution(logits: Float[Array, "T E"], valid: Bool[Array, "T"]) -> Float[Array, "E"]:
    """Average over valid tokens of the softmax of the unbiased scores."""
    count = jnp.maximum(valid.sum(), 1)
    return (jax.nn.softmax(logits, -1) * valid[:, None]).sum(0) / count


def entropy_nats(distribution: Float[Array, "E"]) -> Float[Array, ""]:
    """Entropy of a distribution; 0 log 0 is 0."""
    return jax.scipy.special.entr(distribution).sum()
