"""The whole model against a second one in NumPy float64 that loops over tokens and heads, written from the recipe's text."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from model_tiny import TINY, params_of, random_batch

from forerun.model import transformer
from forerun.model.presets import SIBLINGS, reduced


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, eps, gain=1.0):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def gated_norm(x, p, eps):
    u = rms(x, eps, p["gain"])
    return u * sigmoid(silu(u @ p["w_down"]) @ p["w_up"]) if "w_down" in p else u


def conv(x, taps, segments):
    out = np.zeros_like(x)
    for t in range(len(x)):
        for j in range(len(taps)):
            if t - j >= 0 and segments[t - j] == segments[t]:
                out[t] += taps[j] * x[t - j]
    return out


def rotate(vector, position, config):
    half = config.num_rotated_dims // 2
    out = vector.copy()
    for i in range(half):
        angle = position * config.rope_theta ** (-i / half)
        a, b = vector[i], vector[half + i]
        out[i], out[half + i] = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
    return out


def normed_heads(heads, gain, config):
    if config.qk_gain == "all_heads":
        return rms(heads.reshape(len(heads), -1), config.norm_eps, gain).reshape(heads.shape)
    return rms(heads, config.norm_eps, 1.0 if gain is None else gain)


def attention(a, p, segments, positions, config, is_global):
    length, d = len(a), config.d_head
    num_kv = config.num_global_kv_heads if is_global else config.num_kv_heads
    k_flat = a @ p["w_k"]
    if config.short_conv_taps:
        k_flat = conv(k_flat, p["conv_key"], segments)
    q = (a @ p["w_q"]).reshape(length, config.num_heads, d)
    k = k_flat.reshape(length, config.num_kv_heads, d)
    v = (a @ p["w_v"]).reshape(length, config.num_kv_heads, d)
    if config.qk_norm:
        q, k = (normed_heads(heads, p.get(gain), config) for heads, gain in ((q, "q_gain"), (k, "k_gain")))
    out = np.zeros((length, config.num_heads, d))
    for h in range(config.num_heads):
        kv = h // (config.num_heads // num_kv)
        for t in range(length):
            scores, sources = [], []
            for s in range(t + 1):
                if segments[s] != segments[t] or (not is_global and t - s >= config.window):
                    continue
                query, key = q[t, h], k[s, kv]
                if not is_global or config.rope_on_global:
                    query, key = rotate(query, positions[t], config), rotate(key, positions[s], config)
                scores.append(config.qk_mult * query @ key / math.sqrt(d))
                sources.append(s)
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            y = sum(w * v[s, kv] for w, s in zip(weights, sources))
            if config.exclusive_attention:
                own = v[t, kv]
                y = y - (y @ own) / (own @ own + 1e-6) * own
            if config.head_gate:
                y = y * 2 * sigmoid(a[t] @ p["head_gate"])[h]
            out[t, h] = y
    out = out.reshape(length, -1) @ p["w_o"]
    return conv(out, p["conv_output"], segments) if config.short_conv_taps else out


def swiglu(x, p):
    return (silu(x @ p["w_gate"]) * (x @ p["w_up"])) @ p["w_down"]


def feed_forward(m, p, bias, segments, config):
    out = np.zeros_like(m)
    for shared in p["shared"]:
        out += swiglu(m, shared)
    if "w_router" in p:
        z = m
        if "latent" in p:
            z = rms(m @ p["latent"]["w_down"], config.norm_eps, p["latent"]["gain"])
        routed = np.zeros_like(z)
        for t in range(len(m)):
            if segments[t] == 0:
                continue
            s = m[t] @ p["w_router"]
            biased = (sigmoid(s) if config.balancing == "sigmoid_bias" else s) + bias
            chosen = np.argsort(-biased, kind="stable")[: config.top_k]
            raw = sigmoid(s) if config.combine == "sigmoid" else np.exp(s)
            total = raw.sum() if config.combine == "softmax_all" else raw[chosen].sum()
            for e, w in zip(chosen, config.routed_scale * raw[chosen] / total):
                routed[t] += w * swiglu(z[t], {name: leaf[e] for name, leaf in p["experts"].items()})
        out += routed @ p["latent"]["w_up"] if "latent" in p else routed
    return conv(out, p["conv_output"], segments) if config.short_conv_taps else out


def plain_logits(params, bias, batch, config):
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    head = params.get("head", params["embedding"].T)
    rows = []
    for tokens, segments, positions in zip(batch.tokens, batch.segment_ids, batch.positions):
        x = params["embedding"][tokens]
        if config.embedding_norm:
            x = gated_norm(x, params["embedding_norm"], config.norm_eps)
        blocks = params.get("dense_layers", []) + params["layers"]
        for layer, p in enumerate(blocks):
            a = gated_norm(x, p["attention_norm"], config.norm_eps)
            x = x + attention(a, p["attention"], segments, positions, config, config.global_layers[layer])
            m = gated_norm(x, p["feed_forward_norm"], config.norm_eps)
            own_bias = bias[layer - config.num_dense_layers] if layer >= config.num_dense_layers else None
            x = x + feed_forward(m, p["feed_forward"], own_bias, segments, config)
        rows.append(gated_norm(x, params["final_norm"], config.norm_eps) @ head)
    return np.stack(rows)


def shaken(params, seed=1):
    """Every leaf moved away from its start, so that gates, gains and taps count."""
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(structure, [np.asarray(leaf + 0.2 * rng.normal(size=leaf.shape), np.float32) for leaf in leaves])


def configs():
    yield "recipe", TINY
    yield "tied, exact heads, damped", replace(TINY, tied_embeddings=True, num_global_kv_heads=2, rope_on_global=True)
    yield (
        "all additions off",
        replace(TINY, short_conv_taps=0, gated_norm_rank=0, head_gate=False, exclusive_attention=False, qk_norm=False),
    )
    yield "no latent, softmax, full rotation", replace(TINY, d_latent=32, combine="softmax", rope_fraction=1.0, num_shared_experts=0)
    for name, sibling in SIBLINGS.items():
        yield name, reduced(sibling.model, d_model=32, num_layers=2, vocab_size=96, num_experts=6, window=6)


@pytest.mark.parametrize(("name", "config"), list(configs()), ids=lambda value: value if isinstance(value, str) else "")
def test_logits_equal_a_model_that_loops_over_tokens_and_heads(name, config):
    params = shaken(params_of(config))
    rng = np.random.default_rng(2)
    bias = 0.3 * rng.normal(size=(config.num_layers - config.num_dense_layers, config.num_experts)).astype(np.float32)
    batch = random_batch(config, seq_len=14)
    ours = jax.jit(functools.partial(transformer.next_logits, config=config))(params, transformer.RouterState(bias=bias), batch)
    plain = plain_logits(params, bias, batch, config)
    seen = batch.segment_ids > 0
    # float32 against float64 through a few layers of O(1) activations; logits themselves are O(10)
    np.testing.assert_allclose(np.asarray(ours)[seen], plain[seen], rtol=2e-3, atol=2e-3)
