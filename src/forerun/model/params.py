"""The parameter tree at the start of training. Paths are stable: optimizer groups, shardings and checkpoints name leaves by them.

    embedding                                     [V, D]
    embedding_norm/, final_norm/                  gain [D], w_down [D, R], w_up [R, D]
    layers/<i>/attention_norm/, feed_forward_norm/    the same three
    layers/<i>/attention/                         w_q [D, H d], w_k, w_v [D, KV d], w_o [H d, D], head_gate [D, H],
                                                  conv_key [J, KV d], conv_output [J, D], q_gain, k_gain [d or heads d]
    layers/<i>/feed_forward/                      w_router [D, E], conv_output [J, D]
    layers/<i>/feed_forward/latent/               w_down [D, L], gain [L], w_up [L, D]
    layers/<i>/feed_forward/experts/              w_gate, w_up [E, L, F], w_down [E, F, L]
    layers/<i>/feed_forward/shared/<j>/           w_gate, w_up [D, F'], w_down [F', D]
    dense_layers/<i>/                             as layers, for the leading dense ones: shared/0 is their SwiGLU
    head                                          [D, V], absent with tied embeddings

Unrolled, `layers` is a list of one tree per layer. For a scan it is one tree whose leaves have a leading layer axis, without `<i>`
in the path. Leaves a switch leaves out are absent. `model/count.py` writes the same table down a second time, without JAX.
"""

# V vocab_size, D d_model, R gated_norm_rank, H heads, KV key-value heads, d d_head, J taps, E experts, L d_latent, F d_expert, F' d_shared

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from forerun.model.config import ModelConfig

LayerLoop = Literal["unrolled", "scan"]
LARGEST_DRAW = 1 << 28  # assumed: 1 GiB of float32 is no burden where the parameters fit; larger trees are drawn leaf by leaf, shardable
TRUNCATION = 3.0  # derived: standard deviations kept by the original's initialiser (reference model-and-training 1.1)


def init_params(config: ModelConfig, key: PRNGKeyArray, layer_loop: LayerLoop = "unrolled") -> dict[str, Any]:
    """Float32 parameters; the same numbers for both layer loops, only stacked or not.

    Matrices are truncated normal with `config.init_std`, gains 1, head gates 0, convolutions the identity.
    """
    keys = [jax.random.fold_in(key, layer) for layer in range(config.num_layers)]
    dense_keys, layer_keys = keys[: config.num_dense_layers], keys[config.num_dense_layers :]
    layer_of = _drawn(config, lambda make: _layer(make, config))
    layers: Any
    if layer_loop == "scan":
        layers = jax.vmap(layer_of)(jnp.stack(layer_keys))
    else:
        layers = [layer_of(layer_key) for layer_key in layer_keys]
    params = {**_drawn(config, lambda make: _ends(make, config))(key), "layers": layers}
    if dense_keys:
        dense_of = _drawn(config, lambda make: _layer(make, config, dense=True))
        params["dense_layers"] = [dense_of(layer_key) for layer_key in dense_keys]
    return params


def unstack(params: dict[str, Any]) -> dict[str, Any]:
    """The unrolled form of a tree made for a scan."""
    num_layers = jax.tree.leaves(params["layers"])[0].shape[0]
    return {**params, "layers": [jax.tree.map(operator.itemgetter(layer), params["layers"]) for layer in range(num_layers)]}


def _drawn(config: ModelConfig, build: Callable[[_Maker], dict[str, Any]]) -> Callable[[PRNGKeyArray], dict[str, Any]]:
    """`build` as a compiled function of a key, whose matrices are cut from one draw: a random operation per leaf compiles for seconds."""
    shape_of = jax.eval_shape(lambda: build(_Maker(config, jnp.zeros(0))))
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shape_of))

    def from_key(key: PRNGKeyArray) -> dict[str, Any]:
        if size > LARGEST_DRAW:
            return build(_Maker(config, key))
        return build(_Maker(config, _truncated_normal(key, (size,))))

    return jax.jit(from_key)


def _truncated_normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return jax.random.truncated_normal(key, -TRUNCATION, TRUNCATION, shape, jnp.float32)


class _Maker:
    """Hands out leaves: cut from one draw, or, for sizes no single draw should have, each from its own key."""

    def __init__(self, config: ModelConfig, source: Array | PRNGKeyArray) -> None:
        self._source, self._std, self._taps, self._next = source, config.init_std, config.short_conv_taps, 0

    def matrix(self, *shape: int) -> Array:
        size, start = math.prod(shape), self._next
        if jnp.issubdtype(self._source.dtype, jax.dtypes.prng_key):
            self._next += 1
            return self._std * _truncated_normal(jax.random.fold_in(self._source, start), shape)
        self._next += size
        if self._source.size == 0:
            return jnp.zeros(shape, jnp.float32)
        return self._std * self._source[start : self._next].reshape(shape)

    def taps(self, num_channels: int) -> Array:
        return jnp.zeros((self._taps, num_channels), jnp.float32).at[0].set(1.0)


def _ends(make: _Maker, config: ModelConfig) -> dict[str, Any]:
    """Everything that is not in a layer."""
    leaves: dict[str, Any] = {"embedding": make.matrix(config.vocab_size, config.d_model), "final_norm": _norm(make, config)}
    if config.embedding_norm:
        leaves["embedding_norm"] = _norm(make, config)
    if not config.tied_embeddings:
        leaves["head"] = make.matrix(config.d_model, config.vocab_size)
    return leaves


def _norm(make: _Maker, config: ModelConfig) -> dict[str, Array]:
    norm = {"gain": jnp.ones(config.d_model, jnp.float32)}
    if config.gated_norm_rank:
        norm["w_down"] = make.matrix(config.d_model, config.gated_norm_rank)
        norm["w_up"] = make.matrix(config.gated_norm_rank, config.d_model)
    return norm


def _layer(make: _Maker, config: ModelConfig, *, dense: bool = False) -> dict[str, Any]:
    return {
        "attention_norm": _norm(make, config),
        "attention": _attention(make, config),
        "feed_forward_norm": _norm(make, config),
        "feed_forward": _dense(make, config) if dense else _feed_forward(make, config),
    }


def _attention(make: _Maker, config: ModelConfig) -> dict[str, Array]:
    d_model, d_query, d_kv = config.d_model, config.num_heads * config.d_head, config.num_kv_heads * config.d_head
    leaves = {
        "w_q": make.matrix(d_model, d_query),
        "w_k": make.matrix(d_model, d_kv),
        "w_v": make.matrix(d_model, d_kv),
        "w_o": make.matrix(d_query, d_model),
    }
    if config.qk_gain != "none":
        widths = (d_query, d_kv) if config.qk_gain == "all_heads" else (config.d_head, config.d_head)
        leaves |= {name: jnp.ones(width, jnp.float32) for name, width in zip(("q_gain", "k_gain"), widths)}
    if config.head_gate:
        leaves["head_gate"] = jnp.zeros((d_model, config.num_heads), jnp.float32)
    if config.short_conv_taps:
        leaves |= {"conv_key": make.taps(d_kv), "conv_output": make.taps(d_model)}
    return leaves


def _dense(make: _Maker, config: ModelConfig) -> dict[str, Any]:
    leaves: dict[str, Any] = {"shared": [_swiglu(make, config.d_model, config.d_dense)]}
    if config.short_conv_taps:
        leaves["conv_output"] = make.taps(config.d_model)
    return leaves


def _feed_forward(make: _Maker, config: ModelConfig) -> dict[str, Any]:
    d_model = config.d_model
    leaves: dict[str, Any] = {"shared": [_swiglu(make, d_model, config.d_shared) for _ in range(config.num_shared_experts)]}
    if config.num_experts:
        d_latent, d_expert, num_experts = config.d_latent, config.d_expert, config.num_experts
        leaves["w_router"] = make.matrix(d_model, num_experts)
        leaves["experts"] = {
            "w_gate": make.matrix(num_experts, d_latent, d_expert),
            "w_up": make.matrix(num_experts, d_latent, d_expert),
            "w_down": make.matrix(num_experts, d_expert, d_latent),
        }
        if config.has_latent:
            leaves["latent"] = {"w_down": make.matrix(d_model, d_latent), "w_up": make.matrix(d_latent, d_model)}
            if config.latent_norm:
                leaves["latent"]["gain"] = jnp.ones(d_latent, jnp.float32)
    if config.short_conv_taps:
        leaves["conv_output"] = make.taps(d_model)
    return leaves


def _swiglu(make: _Maker, d_in: int, d_inner: int) -> dict[str, Array]:
    return {"w_gate": make.matrix(d_in, d_inner), "w_up": make.matrix(d_in, d_inner), "w_down": make.matrix(d_inner, d_in)}
