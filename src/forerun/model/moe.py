"""The feed-forward branch: router, latent projections around the routed experts, shared experts, short convolution."""

# B sequences, S tokens, T = B S rows, D d_model, L d_latent, E experts

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from forerun.kernels.grouped_matmul import gated_product
from forerun.model.balance import auxiliary_loss, next_bias
from forerun.model.config import ModelConfig
from forerun.model.norms import Params, rms_norm
from forerun.model.packing import Packing, short_conv
from forerun.model.router import entropy_nats, mean_distribution, route, router_logits
from forerun.parallel.contract import ExpertParams, RunExperts


class LayerAux(NamedTuple):
    """What one layer's router did; arrays over experts are empty in a dense model."""

    load: Int[Array, "E"]
    """Assignments per expert over valid tokens, before drops."""
    dropped: Int[Array, "E"]
    """Assignments no slot was left for."""
    router_entropy_nats: Float[Array, ""]
    balance_loss: Float[Array, ""]
    """Auxiliary balancing loss before its coefficient; 0 under the other kinds of balancing. The one field with a gradient."""
    next_bias: Float[Array, "E"]
    """Routing bias for the next step."""


def feed_forward(
    params: dict[str, Any],
    x: Float[Array, "B S D"],
    bias: Float[Array, "E"] | None,
    *,
    packing: Packing,
    config: ModelConfig,
    experts: RunExperts,
) -> tuple[Float[Array, "B S D"], LayerAux]:
    """What the feed-forward branch adds to the residual stream, from its normed input.

    Args:
        bias: of the router; not read by a layer whose parameters hold no router.
    """
    rows = x.reshape(-1, x.shape[-1])
    if "w_router" in params:
        out, aux = _routed(params, rows, bias, valid=packing.valid.reshape(-1), config=config, experts=experts)
    else:
        empty = jnp.zeros(0, jnp.int32)
        zero = jnp.zeros((), jnp.float32)
        out, aux = None, LayerAux(load=empty, dropped=empty, router_entropy_nats=zero, balance_loss=zero, next_bias=jnp.zeros(0))
    for shared in params["shared"]:
        extra = _swiglu(shared, rows)
        out = extra if out is None else out + extra
    assert out is not None, "config checks that a dense model has a shared expert"
    out = out.reshape(x.shape)
    return (short_conv(out, params["conv_output"], packing.same_document) if config.short_conv_taps else out), aux


def _routed(params, rows, bias, *, valid, config: ModelConfig, experts: RunExperts) -> tuple[Array, LayerAux]:
    logits = router_logits(rows, params["w_router"])
    routing = route(logits, bias, config)
    working = rows
    if config.has_latent:
        working = rows @ params["latent"]["w_down"].astype(rows.dtype)
        if config.latent_norm:
            working = rms_norm(working, params["latent"]["gain"], config.norm_eps)
    out, traffic = experts(working, routing.expert_index, routing.weight, valid, ExpertParams(**params["experts"]))
    if config.has_latent:
        out = out @ params["latent"]["w_up"].astype(rows.dtype)
    distribution = mean_distribution(logits, valid)
    balance = auxiliary_loss(distribution, traffic.load) if config.balancing == "auxiliary_loss" else jnp.zeros((), jnp.float32)
    return out, LayerAux(
        load=traffic.load,
        dropped=traffic.dropped,
        router_entropy_nats=jax.lax.stop_gradient(entropy_nats(distribution)),
        balance_loss=balance,
        next_bias=next_bias(bias, routing.margin, traffic.load, valid, config),
    )


def _swiglu(params: Params, rows: Float[Array, "T D"]) -> Float[Array, "T D"]:
    dtype = rows.dtype
    inner = gated_product(rows @ params["w_gate"].astype(dtype), rows @ params["w_up"].astype(dtype))
    return inner @ params["w_down"].astype(dtype)
