"""Continue a text one token at a time, with every layer's past kept: keys, values and the inputs of the short convolutions.

The same block as `model/transformer.py` for one new token of one sequence. Its logits equal `next_logits` on the whole text.
"""

# P places in the cache, D d_model, H query heads, V key-value heads, d d_head, J taps, N layers

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from forerun.kernels.grouped_matmul import gated_product
from forerun.model.attention import OWN_VALUE_EPS
from forerun.model.config import ModelConfig
from forerun.model.norms import gated_norm, rms_norm
from forerun.model.params import unstack
from forerun.model.router import route, router_logits

Cache = list[dict[str, Array]]


def empty_cache(config: ModelConfig, num_places: int) -> Cache:
    """Room for `num_places` tokens."""
    heads, taps = (num_places, config.num_kv_heads, config.d_head), max(config.short_conv_taps - 1, 0)
    widths = {"conv_key": config.num_kv_heads * config.d_head, "conv_attention": config.d_model, "conv_feed_forward": config.d_model}
    shapes = {"key": heads, "value": heads, **{name: (taps, width) for name, width in widths.items()}}
    return [{name: jnp.zeros(shape) for name, shape in shapes.items()} for _ in range(config.num_layers)]


def generate(
    params: dict[str, Any],
    bias: Float[Array, "N E"],
    config: ModelConfig,
    prompt: list[int],
    *,
    num_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> Iterator[int]:
    """Yield `num_tokens` ids that continue a prompt of at least one token.

    Args:
        bias: effective routing bias of the checkpoint.
        temperature: of the softmax drawn from; 0 takes the likeliest.
    """
    params = params if isinstance(params["layers"], list) else unstack(params)
    cache, rng = empty_cache(config, len(prompt) + num_tokens), np.random.default_rng(seed)
    logits = None
    for place, token in enumerate(prompt):
        logits, cache = next_token_logits(params, bias, cache, token, place, config=config)
    for place in range(len(prompt), len(prompt) + num_tokens):
        token = _chosen(np.asarray(logits, np.float64), temperature, rng)
        yield token
        logits, cache = next_token_logits(params, bias, cache, token, place, config=config)


def _chosen(logits: np.ndarray, temperature: float, rng: np.random.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    weight = np.exp((logits - logits.max()) / temperature)
    return int(rng.choice(len(weight), p=weight / weight.sum()))


@functools.partial(jax.jit, static_argnames="config", donate_argnames="cache")
def next_token_logits(
    params: dict[str, Any], bias: Array, cache: Cache, token: Int[Array, ""] | int, place: Int[Array, ""] | int, *, config: ModelConfig
) -> tuple[Float[Array, "vocab"], Cache]:
    """Float32 logits after one more token at `place`, counted from 0, and the cache with it in."""
    x = params["embedding"][token]
    if config.embedding_norm:
        x = gated_norm(x, params["embedding_norm"], config.norm_eps)
    layers = [*params.get("dense_layers", []), *params["layers"]]
    updated = []
    for index, (layer, before) in enumerate(zip(layers, cache)):
        routed = index - config.num_dense_layers
        normed = gated_norm(x, layer["attention_norm"], config.norm_eps)
        added, past = _attend(layer["attention"], normed, before, place, config, config.global_layers[index])
        x = x + added
        layer_bias = bias[routed] if routed >= 0 else None
        normed = gated_norm(x, layer["feed_forward_norm"], config.norm_eps)
        added, after = _feed_forward(layer["feed_forward"], normed, past, layer_bias, config)
        x = x + added
        updated.append(after)
    x = gated_norm(x, params["final_norm"], config.norm_eps)
    return x @ (params["head"] if "head" in params else params["embedding"].T), updated


def _conv(past: dict[str, Array], name: str, x: Float[Array, "C"], taps: Float[Array, "J C"]) -> tuple[Array, dict[str, Array]]:
    """Tap 0 on the new input, tap j on the one j places earlier; `past` keeps the newest first."""
    window = jnp.concatenate([x[None], past[name]])
    return (window * taps).sum(0), past | {name: window[:-1]}


def _attend(params, x: Float[Array, "D"], past: dict[str, Array], place, config: ModelConfig, is_global: bool) -> tuple[Array, dict]:
    num_kv = config.num_global_kv_heads if is_global else config.num_kv_heads
    query, key, value = (x @ params[name] for name in ("w_q", "w_k", "w_v"))
    if config.short_conv_taps:
        key, past = _conv(past, "conv_key", key, params["conv_key"])
    query, key, value = (heads.reshape(-1, config.d_head) for heads in (query, key, value))
    query, key = (_normed(heads, params.get(gain), config) for heads, gain in ((query, "q_gain"), (key, "k_gain")))
    if not is_global or config.rope_on_global:
        query, key = _rotated(query, place, config), _rotated(key, place, config)
    past = past | {"key": past["key"].at[place].set(key), "value": past["value"].at[place].set(value)}
    places = jnp.arange(past["key"].shape[0])
    seen = places <= place
    if not is_global:
        seen &= place - places < config.window
    grouped = query.reshape(num_kv, -1, config.d_head) * (config.qk_mult / math.sqrt(config.d_head))
    scores = jnp.einsum("vgd,pvd->vgp", grouped, past["key"][:, :num_kv])
    weight = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    out = jnp.einsum("vgp,pvd->vgd", weight, past["value"][:, :num_kv])
    if config.exclusive_attention:
        own = value[:num_kv, None]
        out = out - (out * own).sum(-1, keepdims=True) / ((own * own).sum(-1, keepdims=True) + OWN_VALUE_EPS) * own
    out = out.reshape(config.num_heads, config.d_head)
    if config.head_gate:
        out = out * (2 * jax.nn.sigmoid(x @ params["head_gate"]))[:, None]
    out = out.reshape(-1) @ params["w_o"]
    return _conv(past, "conv_attention", out, params["conv_output"]) if config.short_conv_taps else (out, past)


def _normed(heads: Float[Array, "h d"], gain: Array | None, config: ModelConfig) -> Array:
    if not config.qk_norm:
        return heads
    if config.qk_gain == "all_heads":
        return rms_norm(heads.reshape(-1), gain, config.norm_eps).reshape(heads.shape)
    return rms_norm(heads, gain, config.norm_eps)


def _rotated(heads: Float[Array, "h d"], place, config: ModelConfig) -> Array:
    half = config.num_rotated_dims // 2
    angle = place * config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / max(half, 1))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second, rest = heads[:, :half], heads[:, half : 2 * half], heads[:, 2 * half :]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos, rest], -1)


def _feed_forward(params, x: Float[Array, "D"], past: dict[str, Array], bias, config: ModelConfig) -> tuple[Array, dict]:
    out = jnp.zeros_like(x)
    if "w_router" in params:
        routing = route(router_logits(x[None], params["w_router"]), bias, config)
        working = x
        if config.has_latent:
            working = x @ params["latent"]["w_down"]
            working = rms_norm(working, params["latent"]["gain"], config.norm_eps) if config.latent_norm else working
        chosen = jax.tree.map(lambda matrices: matrices[routing.expert_index[0]], params["experts"])
        inner = gated_product(jnp.einsum("i,kif->kf", working, chosen["w_gate"]), jnp.einsum("i,kif->kf", working, chosen["w_up"]))
        out = jnp.einsum("k,kf,kfi->i", routing.weight[0], inner, chosen["w_down"])
        out = out @ params["latent"]["w_up"] if config.has_latent else out
    for shared in params["shared"]:
        out = out + gated_product(x @ shared["w_gate"], x @ shared["w_up"]) @ shared["w_down"]
    return _conv(past, "conv_feed_forward", out, params["conv_output"]) if config.short_conv_taps else (out, past)
