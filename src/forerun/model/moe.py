"""The feed-forward branch: router, latent projections around the routed experts, shared experts, short convolution."""

# B sequences, S tokens, T = B S rows, D d_model, L d_latent, E experts, P parts of a sequence

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from forerun.kernels.grouped_matmul import gated_product
from forerun.model.balance import auxiliary_loss, next_bias
from forerun.model.config import ModelConfig
from forerun.model.norms import Params, rms_norm
from forerun.model.packing import Packing, short_conv
from forerun.model.router import entropy_nats, mean_distribution, route, router_logits
from forerun.parallel.contract import ExpertParams, RunExperts

NUM_POSITION_PARTS = 8  # assumed: enough to see whether early or late tokens lose more


class LayerAux(NamedTuple):
    """What one layer's router did; arrays over experts are empty in a dense model."""

    load: Int[Array, "E"]
    """Assignments per expert over valid tokens, before drops."""
    dropped: Int[Array, "E"]
    """Assignments no slot was left for."""
    dropped_by_sequence: Int[Array, "B"]
    dropped_by_position: Int[Array, "P"]
    """In each eighth of the sequences."""
    rows_sent: Float[Array, ""]
    """Rows that left a device on the way to experts."""
    rows_executed: Float[Array, ""]
    """Expert rows computed, filled or not."""
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
        out, aux = _routed(params, rows, bias, valid=packing.valid, config=config, experts=experts)
    else:
        out, aux = None, _nothing_routed(x.shape[0])
    for shared in params["shared"]:
        extra = _swiglu(shared, rows)
        out = extra if out is None else out + extra
    assert out is not None, "config checks that a dense model has a shared expert"
    out = out.reshape(x.shape)
    return (short_conv(out, params["conv_output"], packing.same_document) if config.short_conv_taps else out), aux


def _routed(params, rows, bias, *, valid: Bool[Array, "B S"], config: ModelConfig, experts: RunExperts) -> tuple[Array, LayerAux]:
    logits = router_logits(rows, params["w_router"])
    routing = route(logits, bias, config)
    working = rows
    if config.has_latent:
        working = rows @ params["latent"]["w_down"].astype(rows.dtype)
        if config.latent_norm:
            working = rms_norm(working, params["latent"]["gain"], config.norm_eps)
    of_row = valid.reshape(-1)
    out, traffic = experts(working, routing.expert_index, routing.weight, of_row, ExpertParams(**params["experts"]))
    if config.has_latent:
        out = out @ params["latent"]["w_up"].astype(rows.dtype)
    distribution = mean_distribution(logits, of_row)
    dropped = traffic.dropped_of_row.reshape(valid.shape)
    balance = auxiliary_loss(distribution, traffic.load) if config.balancing == "auxiliary_loss" else jnp.zeros((), jnp.float32)
    return out, LayerAux(
        load=traffic.load,
        dropped=traffic.dropped,
        dropped_by_sequence=dropped.sum(1),
        dropped_by_position=by_position(dropped.sum(0)),
        rows_sent=traffic.rows_sent,
        rows_executed=traffic.rows_executed,
        router_entropy_nats=jax.lax.stop_gradient(entropy_nats(distribution)),
        balance_loss=balance,
        next_bias=next_bias(bias, routing.margin, traffic.load, of_row, config),
    )


def by_position(of_place: Int[Array, "S"]) -> Int[Array, "P"]:
    """Sums over equal parts of the sequence."""
    part = np.arange(of_place.shape[0]) * NUM_POSITION_PARTS // of_place.shape[0]
    return of_place @ (part[:, None] == np.arange(NUM_POSITION_PARTS)).astype(np.int32)


def _nothing_routed(batch: int) -> LayerAux:
    """The report of a layer without a router."""
    empty, zero = jnp.zeros(0, jnp.int32), jnp.zeros((), jnp.float32)
    by_sequence, of_part = jnp.zeros(batch, jnp.int32), jnp.zeros(NUM_POSITION_PARTS, jnp.int32)
    return LayerAux(empty, empty, by_sequence, of_part, zero, zero, router_entropy_nats=zero, balance_loss=zero, next_bias=jnp.zeros(0))


def _swiglu(params: Params, rows: Float[Array, "T D"]) -> Float[Array, "T D"]:
    dtype = rows.dtype
    inner = gated_product(rows @ params["w_gate"].astype(dtype), rows @ params["w_up"].astype(dtype))
    return inner @ params["w_down"].astype(dtype)
