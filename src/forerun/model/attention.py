"""The attention branch: grouped queries, half rotation, exclusive output, head gate, short convolutions."""

# B sequences, S tokens, D d_model, H query heads, V key-value heads in use, G = H / V queries per key-value head, d d_head

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from forerun.kernels.attention import Attention, attention
from forerun.model.config import ModelConfig
from forerun.model.norms import Params, rms_norm
from forerun.model.packing import Packing, short_conv

OWN_VALUE_EPS = 1e-6  # derived: the original's guard against zero values (reference model-and-training 1.2, step 6)


def attend(
    params: Params,
    x: Float[Array, "B S D"],
    packing: Packing,
    config: ModelConfig,
    is_global: bool | Bool[Array, ""],
    attention: Attention = attention,
) -> Float[Array, "B S D"]:
    """What attention adds to the residual stream, from its normed input.

    Args:
        is_global: a Python bool when each layer is compiled by itself (global layers then project only the key-value heads
            they use), or a traced scalar when one body serves all layers (all are projected, then the first ones repeated).
        attention: the kernel, or on a mesh the same with every device at its own sequences, `parallel.attention.bind`.
    """
    batch, seq_len, _ = x.shape
    num_kv = config.num_global_kv_heads if is_global is True else config.num_kv_heads
    width = num_kv * config.d_head
    query = (x @ params["w_q"].astype(x.dtype)).reshape(batch, seq_len, config.num_heads, config.d_head)
    key = x @ params["w_k"][:, :width].astype(x.dtype)
    if config.short_conv_taps:
        key = short_conv(key, params["conv_key"][:, :width], packing.same_document)
    key = key.reshape(batch, seq_len, num_kv, config.d_head)
    value = (x @ params["w_v"][:, :width].astype(x.dtype)).reshape(batch, seq_len, num_kv, config.d_head)
    if not isinstance(is_global, bool):
        key, value = (_first_heads_repeated(heads, config, is_global) for heads in (key, value))
    if config.qk_norm:
        query, key = (_normed(heads, params.get(gain), config) for heads, gain in ((query, "q_gain"), (key, "k_gain")))
    query, key = (_rotated(heads, packing, config, is_global) for heads in (query, key))
    query = query * (config.qk_mult / math.sqrt(config.d_head))
    query = query.reshape(batch, seq_len, num_kv, -1, config.d_head).transpose(0, 2, 3, 1, 4)
    key, value = key.swapaxes(1, 2), value.swapaxes(1, 2)
    out = attention(
        query,
        key,
        value,
        _mask(packing, is_global),
        span=seq_len if is_global is not False or not config.window else min(config.window, seq_len),
        score_bound=config.qk_mult * math.sqrt(config.d_head) if config.qk_norm and config.qk_gain == "none" else math.inf,
    )
    if config.exclusive_attention:
        out = _without_own_value(out, value[:, :, None])
    out = out.transpose(0, 3, 1, 2, 4).reshape(batch, seq_len, config.num_heads, config.d_head)
    if config.head_gate:
        out = out * (2 * jax.nn.sigmoid(x @ params["head_gate"].astype(x.dtype)))[..., None]
    out = out.reshape(batch, seq_len, -1) @ params["w_o"].astype(x.dtype)
    return short_conv(out, params["conv_output"], packing.same_document) if config.short_conv_taps else out


def _without_own_value(out: Float[Array, "B V G S d"], value: Float[Array, "B V 1 S d"]) -> Float[Array, "B V G S d"]:
    """Take out of each head's output its projection on the token's own value, so attention brings only what is elsewhere."""
    wide, own = out.astype(jnp.float32), value.astype(jnp.float32)
    share = (wide * own).sum(-1, keepdims=True) / ((own * own).sum(-1, keepdims=True) + OWN_VALUE_EPS)
    return (wide - share * own).astype(out.dtype)


def _normed(heads: Float[Array, "B S h d"], gain: Array | None, config: ModelConfig) -> Float[Array, "B S h d"]:
    if config.qk_gain != "all_heads":
        return rms_norm(heads, gain, config.norm_eps)
    assert gain is not None, "init_params makes the gains"
    wide = rms_norm(heads.reshape(*heads.shape[:2], -1), gain[: heads.shape[2] * heads.shape[3]], config.norm_eps)
    return wide.reshape(heads.shape)


def _rotated(heads: Float[Array, "B S h d"], packing: Packing, config: ModelConfig, is_global: bool | Bool[Array, ""]) -> Array:
    """Rotate the leading dims, first half against second half of them; global layers stay as they are unless configured."""
    half = config.num_rotated_dims // 2
    if half == 0 or (is_global is True and not config.rope_on_global):
        return heads
    cos, sin = packing.cos[:, :, None], packing.sin[:, :, None]
    if not isinstance(is_global, bool) and not config.rope_on_global:
        cos, sin = jnp.where(is_global, 1.0, cos), jnp.where(is_global, 0.0, sin)
    cos, sin = cos.astype(heads.dtype), sin.astype(heads.dtype)
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos, rest], -1)


def _mask(packing: Packing, is_global: bool | Bool[Array, ""]) -> Bool[Array, "B S S"]:
    if isinstance(is_global, bool):
        return packing.visible if is_global else packing.visible_in_window
    return jnp.where(is_global, packing.visible, packing.visible_in_window)


def _first_heads_repeated(heads: Float[Array, "B S V d"], config: ModelConfig, is_global: Bool[Array, ""]) -> Float[Array, "B S V d"]:
    """In a global layer, the first `num_global_kv_heads` repeated to the stored number, so one body serves both kinds."""
    repeats = config.num_kv_heads // config.num_global_kv_heads
    if repeats == 1:
        return heads
    own = jnp.arange(config.num_kv_heads)
    return jnp.take(heads, jnp.where(is_global, own // repeats, own), axis=2)
