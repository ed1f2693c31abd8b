"""Parameters and FLOPs of a model, exact, from its config alone. Never imports JAX.

The leaf table repeats `model/params.py` on purpose: a test compares the two leaf by leaf.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from forerun.model.config import ModelConfig

Part = Literal[
    "embedding",
    "head",
    "attention",
    "router",
    "routed",
    "latent",
    "shared",
    "dense",
    "norm",
    "gated_norm",
    "head_gate",
    "conv",
    "router_bias",
]
MATRICES: frozenset[str] = frozenset({"embedding", "head", "attention", "router", "routed", "latent", "shared", "dense"})
MASK_OPS_PER_SCORE = 3  # derived: the published convention charges 3 operations per score and head beside the two products
TRAIN_OVER_FORWARD = 3  # derived: the backward pass multiplies twice for every product of the forward pass


@dataclass(frozen=True)
class Leaf:
    """One array of the parameter tree, or the same array in each of `copies` layers."""

    path: str
    """With `*` for the layer number, as in `layers/*/attention/w_q`."""
    shape: tuple[int, ...]
    part: Part
    copies: int = 1

    @property
    def size(self) -> int:
        """Numbers in all copies together."""
        return math.prod(self.shape) * self.copies


def leaves(config: ModelConfig) -> tuple[Leaf, ...]:
    """Every trained array, the routing bias (which the step sets, not the optimizer) included where it is used."""
    table = [Leaf("embedding", (config.vocab_size, config.d_model), "embedding")]
    if not config.tied_embeddings:
        table.append(Leaf("head", (config.d_model, config.vocab_size), "head"))
    if config.embedding_norm:
        table += _norm("embedding_norm", 1, config)
    table += _norm("final_norm", 1, config)
    num_stacked = config.num_layers - config.num_dense_layers
    table += _layer("layers/*", num_stacked, config) + _routed(num_stacked, config)
    if config.num_dense_layers:
        table += _layer("dense_layers/*", config.num_dense_layers, config)
        table += _swiglu("dense_layers/*/feed_forward/shared/0", config.d_model, config.d_dense, "dense", config.num_dense_layers)
    return tuple(table)


def _norm(path: str, copies: int, config: ModelConfig) -> list[Leaf]:
    table = [Leaf(f"{path}/gain", (config.d_model,), "norm", copies)]
    if config.gated_norm_rank:
        table.append(Leaf(f"{path}/w_down", (config.d_model, config.gated_norm_rank), "gated_norm", copies))
        table.append(Leaf(f"{path}/w_up", (config.gated_norm_rank, config.d_model), "gated_norm", copies))
    return table


def _layer(path: str, copies: int, config: ModelConfig) -> list[Leaf]:
    d_model, d_query, d_kv = config.d_model, config.num_heads * config.d_head, config.num_kv_heads * config.d_head
    attention = f"{path}/attention"
    table = _norm(f"{path}/attention_norm", copies, config) + _norm(f"{path}/feed_forward_norm", copies, config)
    table += [
        Leaf(f"{attention}/w_q", (d_model, d_query), "attention", copies),
        Leaf(f"{attention}/w_k", (d_model, d_kv), "attention", copies),
        Leaf(f"{attention}/w_v", (d_model, d_kv), "attention", copies),
        Leaf(f"{attention}/w_o", (d_query, d_model), "attention", copies),
    ]
    if config.qk_gain != "none":
        widths = (d_query, d_kv) if config.qk_gain == "all_heads" else (config.d_head, config.d_head)
        table += [Leaf(f"{attention}/{name}", (width,), "norm", copies) for name, width in zip(("q_gain", "k_gain"), widths)]
    if config.head_gate:
        table.append(Leaf(f"{attention}/head_gate", (d_model, config.num_heads), "head_gate", copies))
    if config.short_conv_taps:
        table.append(Leaf(f"{attention}/conv_key", (config.short_conv_taps, d_kv), "conv", copies))
        table.append(Leaf(f"{attention}/conv_output", (config.short_conv_taps, d_model), "conv", copies))
        table.append(Leaf(f"{path}/feed_forward/conv_output", (config.short_conv_taps, d_model), "conv", copies))
    return table


def _routed(copies: int, config: ModelConfig) -> list[Leaf]:
    path, table = "layers/*/feed_forward", []
    for shared in range(config.num_shared_experts):
        table += _swiglu(f"{path}/shared/{shared}", config.d_model, config.d_shared, "shared", copies)
    if not config.num_experts:
        return table
    experts, d_latent, d_expert = config.num_experts, config.d_latent, config.d_expert
    table += [
        Leaf(f"{path}/w_router", (config.d_model, experts), "router", copies),
        Leaf(f"{path}/experts/w_gate", (experts, d_latent, d_expert), "routed", copies),
        Leaf(f"{path}/experts/w_up", (experts, d_latent, d_expert), "routed", copies),
        Leaf(f"{path}/experts/w_down", (experts, d_expert, d_latent), "routed", copies),
    ]
    if config.balancing != "auxiliary_loss":
        table.append(Leaf("router_state/bias", (copies, experts), "router_bias"))
    if config.has_latent:
        table.append(Leaf(f"{path}/latent/w_down", (config.d_model, d_latent), "latent", copies))
        table.append(Leaf(f"{path}/latent/w_up", (d_latent, config.d_model), "latent", copies))
        if config.latent_norm:
            table.append(Leaf(f"{path}/latent/gain", (d_latent,), "norm", copies))
    return table


def _swiglu(path: str, d_in: int, d_inner: int, part: Part, copies: int) -> list[Leaf]:
    return [
        Leaf(f"{path}/w_gate", (d_in, d_inner), part, copies),
        Leaf(f"{path}/w_up", (d_in, d_inner), part, copies),
        Leaf(f"{path}/w_down", (d_inner, d_in), part, copies),
    ]


def params_by_part(config: ModelConfig) -> dict[str, int]:
    """Parameters of each part of the model, in the order of the leaf table."""
    sizes: Counter[str] = Counter()
    for leaf in leaves(config):
        sizes[leaf.part] += leaf.size
    return dict(sizes)


def num_params(config: ModelConfig) -> int:
    """Every trained number, routing biases included."""
    return sum(params_by_part(config).values())


def num_params_headline(config: ModelConfig) -> int:
    """Matrices only, embedding and head included."""
    return sum(size for part, size in params_by_part(config).items() if part in MATRICES)


def num_active_params(config: ModelConfig) -> int:
    """Matrices one token is multiplied with, embedding and head left out: top_k of the routed experts, all of the rest."""
    sizes = params_by_part(config)
    active = sum(sizes.get(part, 0) for part in ("attention", "router", "latent", "shared", "dense"))
    return active + (sizes["routed"] // config.num_experts * config.top_k if config.num_experts else 0)


def forward_flops(config: ModelConfig, seq_len: int) -> dict[str, float]:
    """Forward FLOPs per token by term, 2 per multiply-add.

    Convention of the published run: attention is charged for the whole context, or the whole window on local layers, not
    for the causal half; norms, gates and convolutions are left out (under 1% together).
    """
    num_global = sum(config.global_layers)
    num_local = config.num_layers - num_global
    d_model, d_query = config.d_model, config.num_heads * config.d_head
    per_key = config.num_heads * (4 * config.d_head + MASK_OPS_PER_SCORE)
    routed_layers = config.num_routed_layers
    stacked_layers = config.num_layers - config.num_dense_layers
    return {
        "routed": routed_layers * 6.0 * config.d_latent * config.d_expert * config.top_k,
        "shared": stacked_layers * 6.0 * config.num_shared_experts * d_model * config.d_shared,
        "dense": config.num_dense_layers * 6.0 * d_model * config.d_dense,
        "qkv": sum(
            layers * 2.0 * d_model * (d_query + 2 * num_kv * config.d_head)
            for layers, num_kv in ((num_local, config.num_kv_heads), (num_global, config.num_global_kv_heads))
        ),
        "attention_output": config.num_layers * 2.0 * d_query * d_model,
        "latent": routed_layers * 4.0 * d_model * config.d_latent if config.has_latent else 0.0,
        "attention_local": num_local * float(min(seq_len, config.window)) * per_key,
        "attention_global": num_global * float(seq_len) * per_key,
        "head": 2.0 * d_model * config.vocab_size,
        "router": routed_layers * 2.0 * d_model * config.num_experts,
    }


def forward_flops_per_token(config: ModelConfig, seq_len: int) -> float:
    """All terms of `forward_flops`."""
    return sum(forward_flops(config, seq_len).values())


def routed_flops_fraction(config: ModelConfig, seq_len: int) -> float:
    """Share of the forward FLOPs in routed experts: what capacity and drops act on."""
    return forward_flops(config, seq_len)["routed"] / forward_flops_per_token(config, seq_len)


def train_flops(config: ModelConfig, seq_len: int, train_tokens: float) -> float:
    """3 x forward FLOPs x tokens."""
    return TRAIN_OVER_FORWARD * forward_flops_per_token(config, seq_len) * train_tokens


def fit_compute(config: ModelConfig, seq_len: int, train_tokens: float) -> float:
    """`train_flops` without the output head, the compute forecasts are fitted in."""
    without_head = forward_flops_per_token(config, seq_len) - forward_flops(config, seq_len)["head"]
    return TRAIN_OVER_FORWARD * without_head * train_tokens


def mfu_executed(mfu: float, routed_fraction: float, capacity_factor: float) -> float:
    """Utilisation counting every expert slot, filled or not: slots are capacity_factor x the analytic rows."""
    return mfu * (1 + routed_fraction * (capacity_factor - 1))


def mfu_useful(mfu: float, routed_fraction: float, drop_fraction: float) -> float:
    """Utilisation counting only assignments that reached an expert."""
    return mfu * (1 - routed_fraction * drop_fraction)
