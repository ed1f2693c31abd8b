"""A Hugging Face `config.json` as our model: the same model, or a refusal that names the setting our block has no equal for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from forerun.base.errors import DataError
from forerun.model.config import ModelConfig

QK_GAIN: dict[str, Literal["none", "per_head", "all_heads"]] = {
    "granitemoe": "none",
    "mixtral": "none",
    "olmoe": "all_heads",
    "qwen3_moe": "per_head",
}
KINDS = tuple(QK_GAIN)
EQUALS: dict[str, tuple[Any, ...]] = {
    "kv_lora_rank": (),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "clip_qkv": (),
    "mlp_only_layers": ([],),
    "decoder_sparse_step": (1,),
    "shared_expert_intermediate_size": (),
    "shared_intermediate_size": (),
    "swiglu_limit": (),
    "attn_output_multiplier": (),
    "attn_config": (),
    "text_config": (),
    "quantization_config": (),
}
"""The values our block has an equal for, of settings that change the model; a setting absent or null is always met."""

Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Settings(msgspec.Struct):
    """What is read, under its Hugging Face names; other settings are left alone."""

    model_type: str
    vocab_size: Positive
    hidden_size: Positive
    intermediate_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    num_experts_per_tok: Positive
    rms_norm_eps: float
    num_key_value_heads: Positive | None = None
    head_dim: Positive | None = None
    moe_intermediate_size: Positive | None = None
    num_experts: Positive | None = None
    num_local_experts: Positive | None = None
    norm_topk_prob: bool = False
    tie_word_embeddings: bool = False
    attention_multiplier: float | None = None
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = True
    max_position_embeddings: Positive | None = None


def read_settings(path: Path) -> dict[str, Any]:
    """The settings a `config.json` holds, as they stand. Raises: DataError when it is absent or no JSON object."""
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", hint="name a folder as `save_pretrained` writes it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="download it again") from None
    if not isinstance(settings, dict):
        raise DataError(f"{path} must hold one JSON object, got {type(settings).__name__}", hint="download it again")
    return settings


def config_of(settings: dict[str, Any], *, where: str) -> ModelConfig:
    """Our config for a Hugging Face one.

    Raises: DataError for another kind of model, a missing or impossible setting, or one that our block has no equal for.
    """
    for name, met in EQUALS.items():
        if settings.get(name) not in (None, *met):
            raise _no_equal(name, settings[name], where)
    if settings.get("model_type") not in KINDS:
        raise DataError(
            f"{where}: model_type must be one of {', '.join(KINDS)}, got {settings.get('model_type')!r}",
            hint="these have the same block as ours with switches off",
        )
    try:
        read = msgspec.convert(settings, _Settings, strict=True)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}", hint="download it again") from None
    if read.use_sliding_window and read.sliding_window and read.sliding_window < (read.max_position_embeddings or math.inf):
        raise _no_equal("sliding_window", read.sliding_window, where)
    num_experts = read.num_local_experts or read.num_experts
    if num_experts is None:
        raise DataError(f"{where} lacks num_experts, or num_local_experts", hint="download it again")
    num_kv_heads = read.num_key_value_heads or read.num_attention_heads
    d_head = read.head_dim or read.hidden_size // read.num_attention_heads
    normalised = read.norm_topk_prob if read.model_type in ("olmoe", "qwen3_moe") else True
    return ModelConfig(
        vocab_size=read.vocab_size,
        d_model=read.hidden_size,
        num_layers=read.num_hidden_layers,
        num_heads=read.num_attention_heads,
        d_head=d_head,
        num_kv_heads=num_kv_heads,
        num_global_kv_heads=num_kv_heads,
        window=0,
        rope_theta=_rope_theta(read, where),
        rope_fraction=1.0,
        rope_on_global=True,
        qk_norm=QK_GAIN[read.model_type] != "none",
        qk_gain=QK_GAIN[read.model_type],
        qk_mult=1.0 if read.attention_multiplier is None else read.attention_multiplier * math.sqrt(d_head),
        exclusive_attention=False,
        head_gate=False,
        short_conv_taps=0,
        gated_norm_rank=0,
        embedding_norm=False,
        tied_embeddings=read.tie_word_embeddings,
        num_experts=num_experts,
        top_k=read.num_experts_per_tok,
        d_expert=read.moe_intermediate_size or read.intermediate_size,
        d_latent=read.hidden_size,
        num_shared_experts=0,
        d_shared=0,
        routed_scale=1.0,
        combine="softmax" if normalised else "softmax_all",
        balancing="auxiliary_loss",
        norm_eps=read.rms_norm_eps,
    )


def _rope_theta(read: _Settings, where: str) -> float:
    rope = read.rope_scaling or read.rope_parameters or {}
    if rope.get("rope_type", rope.get("type")) not in ("default", None):
        raise _no_equal("rope_scaling", rope, where)
    theta = (read.rope_parameters or {}).get("rope_theta", read.rope_theta)
    if not isinstance(theta, int | float) or not theta > 0:
        raise DataError(f"{where}: rope_theta must be a positive number, got {theta!r}", hint="download it again")
    return float(theta)


def _no_equal(name: str, value: Any, where: str) -> DataError:
    shown = f"{{{', '.join(value)}}}" if isinstance(value, dict) and len(value) > 3 else repr(value)
    return DataError(f"{where}: {name}={shown} has no equal in our block", hint="take a model without it")
