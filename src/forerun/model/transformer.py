"""The whole model as if there were one device: embedding, blocks, norm, head, and the three things asked of it.

`loss` trains, `token_losses` evaluates (dropless unless told otherwise), `next_logits` continues texts.
"""

# B sequences, S tokens, T = B S, D d_model, V vocab_size, N layers with a router (all layers of a dense model), E experts

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from forerun.kernels.attention import Attention, attention
from forerun.kernels.vocabulary_loss import HeadLoss, token_nats, vocabulary_loss
from forerun.model.attention import attend
from forerun.model.config import ModelConfig
from forerun.model.moe import LayerAux, feed_forward
from forerun.model.norms import gated_norm
from forerun.model.packing import PackedBatch, Packing, packing_of
from forerun.model.params import init_params
from forerun.parallel.config import TransportConfig
from forerun.parallel.contract import RunExperts
from forerun.parallel.local import run_experts

__all__ = ["DROPLESS", "Aux", "Remat", "RouterState", "init_params", "init_router_state", "loss", "next_logits", "token_losses"]

Remat = Literal["none", "block", "moe"]
Whole = Callable[[Any], Any]
"""From one layer's parameters as they lie to the same as its products want them: on a mesh, whole on every device."""
DROPLESS: RunExperts = functools.partial(run_experts, config=TransportConfig(capacity_factor=0.0))


def as_they_are(params: Any) -> Any:
    """The `Whole` of one device."""
    return params


class RouterState(NamedTuple):
    """The only state of the forward pass besides parameters."""

    bias: Float[Array, "N E"]
    """Effective routing bias per layer: what the next forward pass routes with, in training and in evaluation."""


class Aux(NamedTuple):
    """What one forward pass of `loss` saw; none of it carries gradient."""

    nats_sum: Float[Array, ""]
    """Cross-entropy summed over predicted tokens."""
    z_sum: Float[Array, ""]
    """Squared logsumexp summed over predicted tokens."""
    num_tokens: Float[Array, ""]
    """Predicted tokens."""
    balance_loss: Float[Array, ""]
    """Auxiliary balancing loss before its coefficient, mean over layers."""
    load: Int[Array, "N E"]
    """Assignments per layer and expert over valid tokens, before drops. Sum over layers in 64 bits, on the host."""
    dropped: Int[Array, "N E"]
    """Assignments that found no slot."""
    dropped_by_sequence: Int[Array, "N B"]
    dropped_by_position: Int[Array, "N 8"]
    """In each eighth of the sequences."""
    rows_sent: Float[Array, "N"]
    """Rows that left a device on the way to experts."""
    rows_executed: Float[Array, "N"]
    """Expert rows computed, filled or not."""
    router_entropy_nats: Float[Array, "N"]
    """Entropy of the mean routing distribution of each layer."""
    router_state: RouterState
    """For the next step."""


def init_router_state(config: ModelConfig) -> RouterState:
    """No bias."""
    return RouterState(bias=jnp.zeros((config.num_layers - config.num_dense_layers, config.num_experts), jnp.float32))


def loss(
    params: dict[str, Any],
    router_state: RouterState,
    batch: PackedBatch,
    config: ModelConfig,
    *,
    compute_dtype: Literal["float32", "bfloat16"] = "float32",
    experts: RunExperts = DROPLESS,
    head_loss: HeadLoss = vocabulary_loss,
    attention: Attention = attention,
    remat: Remat = "none",
    whole: Whole = as_they_are,
    num_tokens: Float[Array, ""] | None = None,
) -> tuple[Float[Array, ""], Aux]:
    """The objective to minimise, cross-entropy + z-loss + balancing loss, and what the pass saw.

    Args:
        experts: a transport with its settings bound, `parallel.transports.bind`.
        head_loss: `vocabulary_loss`, or on a mesh the same with every device at its own tokens, `parallel.head.bind`.
        attention: likewise, `parallel.attention.bind`.
        remat: what the backward pass recomputes instead of reading from memory.
        whole: gathers one layer's parameters on a mesh, again in the backward pass when that recomputes the layer.
        num_tokens: denominator of the means; give the whole step's count when this batch is a part of it, so that gradients
            add up. None counts this batch.
    """
    hidden, layers = _hidden(
        params,
        router_state,
        batch,
        config,
        compute_dtype=compute_dtype,
        experts=experts,
        attention=attention,
        remat=remat,
        whole=whole,
    )
    own_tokens = batch.loss_mask.sum()
    denominator = jnp.maximum(own_tokens if num_tokens is None else num_tokens, 1.0)
    weight = (batch.loss_mask / denominator).reshape(-1).astype(jnp.float32)
    objective, nats, z_loss = head_loss(
        hidden.reshape(-1, hidden.shape[-1]),
        _head(params).astype(hidden.dtype),
        batch.targets.reshape(-1),
        weight,
        config.z_loss_coefficient,
    )
    balance = layers.balance_loss.mean()
    if config.balancing == "auxiliary_loss":
        objective = objective + config.balance_coefficient * balance * (own_tokens / denominator)
    aux = Aux(
        nats_sum=nats * denominator,
        z_sum=z_loss * denominator,
        num_tokens=own_tokens,
        balance_loss=balance,
        load=layers.load,
        dropped=layers.dropped,
        dropped_by_sequence=layers.dropped_by_sequence,
        dropped_by_position=layers.dropped_by_position,
        rows_sent=layers.rows_sent,
        rows_executed=layers.rows_executed,
        router_entropy_nats=layers.router_entropy_nats,
        router_state=RouterState(bias=layers.next_bias),
    )
    return objective, jax.lax.stop_gradient(aux)


def token_losses(
    params: dict[str, Any],
    router_state: RouterState,
    batch: PackedBatch,
    config: ModelConfig,
    *,
    compute_dtype: Literal["float32", "bfloat16"] = "float32",
    experts: RunExperts = DROPLESS,
    attention: Attention = attention,
    whole: Whole = as_they_are,
) -> Float[Array, "B S"]:
    """Cross-entropy in nats of every target, unmasked; no z-loss. Multiply by `loss_mask` before summing."""
    hidden, _ = _hidden(params, router_state, batch, config, compute_dtype=compute_dtype, experts=experts, attention=attention, whole=whole)
    nats, _ = token_nats(hidden.reshape(-1, hidden.shape[-1]), _head(params).astype(hidden.dtype), batch.targets.reshape(-1))
    return nats.reshape(batch.targets.shape)


def next_logits(
    params: dict[str, Any],
    router_state: RouterState,
    batch: PackedBatch,
    config: ModelConfig,
    at: Int[Array, "B"] | None = None,
    *,
    compute_dtype: Literal["float32", "bfloat16"] = "float32",
    experts: RunExperts = DROPLESS,
    whole: Whole = as_they_are,
) -> Float[Array, "B ... V"]:
    """Float32 logits of the token after each place, or only after place `at` of each sequence; `targets` are not read."""
    hidden, _ = _hidden(params, router_state, batch, config, compute_dtype=compute_dtype, experts=experts, whole=whole)
    if at is not None:
        hidden = jnp.take_along_axis(hidden, at[:, None, None], axis=1)[:, 0]
    return jnp.dot(hidden, _head(params).astype(hidden.dtype), preferred_element_type=jnp.float32)


def _hidden(
    params,
    router_state,
    batch,
    config,
    *,
    compute_dtype,
    experts,
    attention: Attention = attention,
    remat: Remat = "none",
    whole: Whole = as_they_are,
) -> tuple[Float[Array, "B S D"], LayerAux]:
    """Final hidden states, and every layer's report stacked over layers."""
    packing = packing_of(batch.segment_ids, batch.positions, config)
    x = params["embedding"][batch.tokens].astype(jnp.dtype(compute_dtype))
    if config.embedding_norm:
        x = gated_norm(x, params["embedding_norm"], config.norm_eps)
    block = functools.partial(_block, packing=packing, config=config, experts=experts, attention=attention, remat=remat, whole=whole)
    is_global = config.global_layers
    for layer, layer_params in enumerate(params.get("dense_layers", [])):
        x, _ = block(x, layer_params, None, is_global=is_global[layer])
    is_global = is_global[config.num_dense_layers :]
    if isinstance(params["layers"], list):
        reports = []
        for layer, layer_params in enumerate(params["layers"]):
            one_layer = functools.partial(block, is_global=is_global[layer])
            one_layer = jax.checkpoint(one_layer) if remat == "block" else one_layer
            x, report = one_layer(x, layer_params, router_state.bias[layer])
            reports.append(report)
        layers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *reports)
    else:

        def body(x, scanned):
            layer_params, bias, layer_is_global = scanned
            return block(x, layer_params, bias, is_global=layer_is_global)

        body = jax.checkpoint(body) if remat == "block" else body
        x, layers = jax.lax.scan(body, x, (params["layers"], router_state.bias, np.array(is_global)))
    return gated_norm(x, params["final_norm"], config.norm_eps), layers


def _block(
    x,
    params,
    bias,
    *,
    is_global,
    packing: Packing,
    config: ModelConfig,
    experts: RunExperts,
    attention: Attention,
    remat: Remat,
    whole: Whole,
):
    params = whole(params)
    normed = gated_norm(x, params["attention_norm"], config.norm_eps)
    x = x + attend(params["attention"], normed, packing, config, is_global, attention)
    branch = functools.partial(feed_forward, packing=packing, config=config, experts=experts)
    branch = jax.checkpoint(branch) if remat == "moe" else branch
    out, report = branch(params["feed_forward"], gated_norm(x, params["feed_forward_norm"], config.norm_eps), bias)
    return x + out, report


def _head(params: dict[str, Any]) -> Float[Array, "D V"]:
    return params["head"] if "head" in params else params["embedding"].T
