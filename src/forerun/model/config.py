"""The shape of a model, as plain data. Defaults are the switches of the 535B-A23B recipe; sizes have no default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from forerun.base.errors import ConfigError

Balancing = Literal["quantile", "auxiliary_loss", "sigmoid_bias"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Every dimension and switch of the block; `num_experts=0` makes a dense model."""

    vocab_size: int
    """Rows of the embedding table and columns of the head."""
    d_model: int
    """Width of the residual stream."""
    num_layers: int
    """Blocks."""
    num_heads: int
    """Query heads."""
    d_head: int
    """Width of one head."""
    num_kv_heads: int
    """Key-value heads stored; local layers use all of them."""
    num_global_kv_heads: int
    """Key-value heads that global layers use: the first ones of `num_kv_heads`."""
    window: int
    """Attention span of local layers in tokens, the own token included; 0 makes every layer global."""
    global_every: int = 4
    """Every n-th layer is global, and so is the last; 1 makes every layer global."""
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies."""
    rope_fraction: float = 0.5
    """Leading share of `d_head` that is rotated."""
    rope_on_global: bool = False
    """Rotate on global layers too (False: no position encoding there)."""
    qk_norm: bool = True
    """RMS-normalise queries and keys, per head unless `qk_gain` says otherwise."""
    qk_gain: Literal["none", "per_head", "all_heads"] = "none"
    """Learnable gain behind that norm: none, one per dim of a head, or one per dim of all heads, which are then normalised together."""
    qk_mult: float = 1.3
    """Factor on the queries after norm and rotation."""
    exclusive_attention: bool = True
    """Take out of each head's output its projection on the token's own value."""
    head_gate: bool = True
    """Per-head gate 2*sigmoid(a A), starting at 1."""
    short_conv_taps: int = 4
    """Taps of the depthwise causal convolutions on keys, attention output and MoE output; 0 leaves them out."""
    gated_norm_rank: int = 128
    """Rank of the gate behind each RMSNorm; 0 leaves it out."""
    embedding_norm: bool = True
    """RMSNorm, and its gate, behind the embedding."""
    tied_embeddings: bool = False
    """Use the embedding table as the head."""

    num_experts: int
    """Routed experts per layer; 0 makes a dense model whose feed-forward are the shared experts."""
    top_k: int
    """Routed experts per token; 0 when dense."""
    d_expert: int
    """Feed-forward width of one routed expert."""
    d_latent: int
    """Width in which routed experts work; equal to `d_model` leaves the latent projections out."""
    latent_norm: bool = True
    """RMSNorm with a learnable gain behind the projection to the latent width."""
    num_shared_experts: int = 2
    """Always-on experts at full width."""
    d_shared: int
    """Feed-forward width of one shared expert."""
    num_dense_layers: int = 0
    """Leading layers without router and experts: one dense SwiGLU of width `d_dense` instead; 0 when every layer is routed."""
    d_dense: int = 0
    """Feed-forward width of the leading dense layers."""
    routed_scale: float = 2.5
    """Sum of a token's combine weights."""
    combine: Literal["sigmoid", "softmax", "softmax_all"] = "sigmoid"
    """How scores become combine weights: normalised sigmoid, softmax over the chosen ones, or softmax over all (rows then sum to less)."""
    balancing: Balancing = "quantile"
    """What keeps the experts equally loaded."""
    balance_coefficient: float = 0.0
    """Weight of the auxiliary loss, or step of the sigmoid bias; unused by quantile balancing."""
    quantile_estimator: Literal["histogram", "exact"] = "histogram"
    """How the margin quantile is found: 10,000 global bins, or a sort."""
    quantile_damping: float = 1.0
    """Share of the bias that is replaced each step; 1 replaces it, as the original does."""

    norm_eps: float = 1e-5
    """Added to the mean square in every RMSNorm."""
    init_scale: float = 0.5
    """Standard deviation of every matrix at the start is init_scale / sqrt(d_model), truncated at 3 sigma."""
    z_loss_coefficient: float = 1e-4
    """Weight of the mean squared logsumexp of the output logits; evaluation omits it."""

    def __post_init__(self) -> None:
        for field in ("vocab_size", "d_model", "num_layers", "num_heads", "d_head", "num_kv_heads", "num_global_kv_heads", "global_every"):
            _require(getattr(self, field) >= 1, f"model.{field} must be at least 1, got {getattr(self, field)}", f"raise model.{field}")
        for field in (
            "num_experts",
            "top_k",
            "d_expert",
            "d_latent",
            "num_shared_experts",
            "d_shared",
            "num_dense_layers",
            "d_dense",
            "window",
            "short_conv_taps",
            "gated_norm_rank",
        ):
            _require(
                getattr(self, field) >= 0,
                f"model.{field} must not be negative, got {getattr(self, field)}",
                f"raise model.{field} to 0 or more",
            )
        self._check_attention()
        self._check_experts()

    def _check_attention(self) -> None:
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"model.num_kv_heads must divide model.num_heads={self.num_heads}, got {self.num_kv_heads}",
            f"take one of {_divisors(self.num_heads)}",
        )
        _require(
            self.num_kv_heads % self.num_global_kv_heads == 0,
            f"model.num_global_kv_heads must divide model.num_kv_heads={self.num_kv_heads}, got {self.num_global_kv_heads}",
            f"take one of {_divisors(self.num_kv_heads)}",
        )
        _require(
            0 <= self.rope_fraction <= 1 and self.num_rotated_dims % 2 == 0,
            f"model.rope_fraction must lie in 0..1 and rotate an even number of model.d_head={self.d_head} dims, got {self.rope_fraction}",
            "use 0, 0.5 or 1 with a d_head that is a multiple of 4",
        )

    def _check_experts(self) -> None:
        if self.num_experts == 0:
            _require(
                self.top_k == 0,
                f"model.top_k must be 0 in a dense model (model.num_experts=0), got {self.top_k}",
                "set model.top_k=0 or raise model.num_experts",
            )
            _require(
                self.num_shared_experts >= 1,
                f"model.num_shared_experts must be at least 1 in a dense model, got {self.num_shared_experts}",
                "set model.num_shared_experts=1",
            )
            _require(
                self.num_dense_layers == 0,
                f"model.num_dense_layers must be 0 in a dense model (model.num_experts=0), got {self.num_dense_layers}",
                "all its layers are dense already: set model.num_dense_layers=0",
            )
            return
        _require(
            self.num_dense_layers < self.num_layers and (self.num_dense_layers == 0) == (self.d_dense == 0),
            f"model.num_dense_layers must be below model.num_layers={self.num_layers} and go with model.d_dense, "
            f"got {self.num_dense_layers} with model.d_dense={self.d_dense}",
            "set both to 0, or give leading dense layers a width",
        )
        _require(
            1 <= self.top_k <= self.num_experts,
            f"model.top_k must be between 1 and model.num_experts={self.num_experts}, got {self.top_k}",
            "lower model.top_k or raise model.num_experts",
        )
        _require(self.d_expert >= 1, f"model.d_expert must be at least 1, got {self.d_expert}", "raise model.d_expert")
        _require(
            1 <= self.d_latent <= self.d_model and self.d_latent % 2 == 0,
            f"model.d_latent must be an even number between 2 and model.d_model={self.d_model}, got {self.d_latent}",
            "set model.d_latent to an even width, or to model.d_model for no latent projections",
        )

    @property
    def num_rotated_dims(self) -> int:
        """Leading dims of a head that carry position."""
        return round(self.d_head * self.rope_fraction)

    @property
    def num_routed_layers(self) -> int:
        """Layers with a router; 0 in a dense model."""
        return self.num_layers - self.num_dense_layers if self.num_experts else 0

    @property
    def has_latent(self) -> bool:
        """Whether routed experts work in a narrower space with projections around it."""
        return self.num_experts > 0 and self.d_latent != self.d_model

    @property
    def global_layers(self) -> tuple[bool, ...]:
        """For each layer, whether it attends to the whole context: every `global_every`-th and the last."""
        if self.window == 0:
            return (True,) * self.num_layers
        return tuple((layer + 1) % self.global_every == 0 or layer == self.num_layers - 1 for layer in range(self.num_layers))

    @property
    def init_std(self) -> float:
        """Standard deviation of every matrix at the start."""
        return self.init_scale / math.sqrt(self.d_model)


def _require(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise ConfigError(message, hint=hint)


def _divisors(number: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)
