"""Keep experts equally loaded: quantile balancing (no loss, no step size), the sigmoid bias, the auxiliary loss."""

# T tokens, E experts, K top_k

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.model.config import ModelConfig

NUM_BINS = 10_000  # derived: the original's histogram (reference model-and-training 1.3)


def next_bias(
    bias: Float[Array, "E"],
    margin: Float[Array, "T E"],
    load: Int[Array, "E"],
    valid: Bool[Array, "T"],
    config: ModelConfig,
) -> Float[Array, "E"]:
    """The bias the next step routes with, from what this step saw over all its valid tokens.

    Returns: the effective bias, complete: what is stored is what is used, so evaluating a checkpoint needs no update first.
    """
    num_experts = bias.shape[0]
    if config.balancing == "auxiliary_loss" or config.top_k == num_experts:
        return bias
    if config.balancing == "sigmoid_bias":
        return bias + config.balance_coefficient * jnp.sign(load.mean(dtype=jnp.float32) - load)
    share = config.top_k / num_experts
    quantile = histogram_quantile if config.quantile_estimator == "histogram" else exact_quantile
    beta = quantile(jax.lax.stop_gradient(margin), valid, share)
    return (1 - config.quantile_damping) * bias - config.quantile_damping * (beta - beta.mean())


def exact_quantile(margin: Float[Array, "T E"], valid: Bool[Array, "T"], share: float) -> Float[Array, "E"]:
    """Per expert, the margin that the `share` of valid tokens with the largest margins reaches, by sorting."""
    rank = jnp.ceil(valid.sum() * share).astype(jnp.int32)
    ordered = jnp.sort(jnp.where(valid[:, None], margin, -jnp.inf), axis=0, descending=True)
    return jnp.where(rank > 0, ordered[jnp.maximum(rank - 1, 0)], 0.0)


def histogram_quantile(margin: Float[Array, "T E"], valid: Bool[Array, "T"], share: float) -> Float[Array, "E"]:
    """The same from a histogram of `NUM_BINS` bins over the margins of all experts, interpolated inside the crossing bin.

    The crossing bin is found by bisection on the bin number: equal to counting every bin, without the counts, and each round
    costs one sum over tokens, which is what a mesh has to add up.
    """
    wanted = valid.sum() * share
    lowest = jnp.where(valid[:, None], margin, jnp.inf).min()
    highest = jnp.where(valid[:, None], margin, -jnp.inf).max()
    width = jnp.maximum(highest - lowest, jnp.finfo(jnp.float32).tiny) / NUM_BINS
    number = jnp.clip(((margin - lowest) / width).astype(jnp.int32), 0, NUM_BINS - 1)
    number = jnp.where(valid[:, None], number, -1)

    def at_least(bin_number: Int[Array, "E"]) -> Int[Array, "E"]:
        return (number >= bin_number).sum(0, dtype=jnp.int32)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        reached = at_least(middle) >= wanted
        return jnp.where(reached, middle, low), jnp.where(reached, high, middle)

    num_experts = margin.shape[1]
    bounds = (jnp.zeros(num_experts, jnp.int32), jnp.full(num_experts, NUM_BINS, jnp.int32))
    crossing, _ = jax.lax.fori_loop(0, NUM_BINS.bit_length(), halve, bounds)
    above = at_least(crossing + 1)
    inside = jnp.maximum(at_least(crossing) - above, 1)
    beta = lowest + width * (crossing + 1 - (wanted - above) / inside)
    return jnp.where(wanted > 0, beta, 0.0)


def auxiliary_loss(distribution: Float[Array, "E"], load: Int[Array, "E"]) -> Float[Array, ""]:
    """E * sum over experts of load share * mean router probability: 1 when balanced, up to E when collapsed.

    Source: Switch Transformer (arXiv:2101.03961, eq. 4); gradient flows through the probabilities only.
    """
    share = load / jnp.maximum(load.sum(dtype=jnp.float32), 1)  # all assignments of a layer may pass 2^31
    return load.shape[0] * (share * distribution).sum()
