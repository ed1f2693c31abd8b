"""Hugging Face safetensors of OLMoE, Mixtral and Qwen3-MoE as our model: a config and a parameter tree with equal logits.

Both expert layouts are read: one matrix per expert, and the fused `gate_up_proj`, `down_proj` of newer files.
"""

# V vocab_size, D d_model, H heads, d d_head, E experts, F d_expert

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from forerun.base.errors import DataError
from forerun.model.config import ModelConfig

QK_GAIN: dict[str, Literal["none", "per_head", "all_heads"]] = {"mixtral": "none", "qwen3_moe": "per_head", "olmoe": "all_heads"}
KINDS = tuple(QK_GAIN)


def import_hf(folder: Path) -> tuple[ModelConfig, dict[str, Any]]:
    """Read `config.json` and `*.safetensors` of a folder.

    Returns: the config, and float32 NumPy parameters shaped as `model/params.py` says.
    Raises: DataError for another kind of model, a switch our block has no equal for, or a missing or leftover tensor.
    """
    settings = _settings(folder)
    config = config_of(settings, where=str(folder / "config.json"))
    tensors = dict(_tensors(folder))
    params = _params(config, tensors, settings["model_type"])
    if tensors:
        raise DataError(
            f"{folder}: {len(tensors)} tensors have no place in the model, first {min(tensors)!r}", hint="only plain checkpoints are read"
        )
    return config, params


def config_of(settings: dict[str, Any], *, where: str) -> ModelConfig:
    """Our config for a Hugging Face one. Raises: DataError for what our block has no equal for."""
    kind = settings.get("model_type", "")
    if kind not in KINDS:
        raise DataError(
            f"{where}: model_type must be one of {', '.join(KINDS)}, got {kind!r}",
            hint="these have the same block as ours with switches off",
        )
    _refuse(settings, where)
    num_heads, d_model = settings["num_attention_heads"], settings["hidden_size"]
    num_kv_heads = settings.get("num_key_value_heads") or num_heads
    normalised = kind == "mixtral" or settings.get("norm_topk_prob", False)
    return ModelConfig(
        vocab_size=settings["vocab_size"],
        d_model=d_model,
        num_layers=settings["num_hidden_layers"],
        num_heads=num_heads,
        d_head=settings.get("head_dim") or d_model // num_heads,
        num_kv_heads=num_kv_heads,
        num_global_kv_heads=num_kv_heads,
        window=0,
        rope_theta=_rope_theta(settings),
        rope_fraction=1.0,
        rope_on_global=True,
        qk_norm=kind != "mixtral",
        qk_gain=QK_GAIN[kind],
        qk_mult=1.0,
        exclusive_attention=False,
        head_gate=False,
        short_conv_taps=0,
        gated_norm_rank=0,
        embedding_norm=False,
        tied_embeddings=settings.get("tie_word_embeddings", False),
        num_experts=settings.get("num_local_experts") or settings["num_experts"],
        top_k=settings["num_experts_per_tok"],
        d_expert=settings.get("moe_intermediate_size") or settings["intermediate_size"],
        d_latent=d_model,
        num_shared_experts=0,
        d_shared=0,
        routed_scale=1.0,
        combine="softmax" if normalised else "softmax_all",
        balancing="auxiliary_loss",
        norm_eps=settings["rms_norm_eps"],
    )


def _refuse(settings: dict[str, Any], where: str) -> None:
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    scaled = rope.get("rope_type", rope.get("type", "default")) not in ("default", None)
    window = (settings.get("sliding_window") or 0) if settings.get("use_sliding_window", True) else 0
    wrong = {
        "rope_scaling": rope if scaled else None,
        "sliding_window": window if 0 < window < settings.get("max_position_embeddings", math.inf) else None,
        "clip_qkv": settings.get("clip_qkv"),
        "attention_bias": settings.get("attention_bias") or None,
        "mlp_only_layers": settings.get("mlp_only_layers") or None,
        "decoder_sparse_step": None if settings.get("decoder_sparse_step", 1) == 1 else settings["decoder_sparse_step"],
    }
    for name, value in wrong.items():
        if value is not None:
            raise DataError(f"{where}: {name}={value!r} has no equal in our block", hint="import a checkpoint without it")


def _rope_theta(settings: dict[str, Any]) -> float:
    return float((settings.get("rope_parameters") or settings).get("rope_theta", 10_000.0))


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", hint="name a folder as `save_pretrained` writes it") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be parsed: {error}", hint="download it again") from None
    needed = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "num_experts_per_tok", "rms_norm_eps")
    missing = [name for name in needed if name not in settings] if settings.get("model_type") in KINDS else []
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}", hint="download it again")
    return settings


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DataError(f"{folder} holds no *.safetensors", hint="convert pickled weights with `save_pretrained(safe_serialization=True)`")
    for path in files:
        try:
            for name, tensor in load_file(path).items():
                yield name, np.asarray(tensor, np.float32)
        except SafetensorError as error:
            raise DataError(f"{path} cannot be read: {error}", hint="download it again") from None


def _params(config: ModelConfig, tensors: dict[str, np.ndarray], kind: str) -> dict[str, Any]:
    def take(name: str) -> np.ndarray:
        if name not in tensors:
            raise DataError(f"tensor {name!r} is missing", hint="the folder holds only a part of the checkpoint")
        return tensors.pop(name)

    def layer(prefix: str) -> dict[str, Any]:
        attention = {f"w_{letter}": take(f"{prefix}.self_attn.{letter}_proj.weight").T for letter in "qkvo"}
        if config.qk_gain != "none":
            attention |= {f"{letter}_gain": take(f"{prefix}.self_attn.{letter}_norm.weight") for letter in "qk"}
        moe = f"{prefix}.block_sparse_moe" if f"{prefix}.block_sparse_moe.gate.weight" in tensors else f"{prefix}.mlp"
        return {
            "attention_norm": {"gain": take(f"{prefix}.input_layernorm.weight")},
            "attention": attention,
            "feed_forward_norm": {"gain": take(f"{prefix}.post_attention_layernorm.weight")},
            "feed_forward": {"shared": [], "w_router": take(f"{moe}.gate.weight").T, "experts": experts(f"{moe}.experts")},
        }

    def experts(prefix: str) -> dict[str, np.ndarray]:
        if f"{prefix}.gate_up_proj" in tensors:
            gate, up = np.split(take(f"{prefix}.gate_up_proj"), 2, axis=1)  # [E, 2 F, D]
            down = take(f"{prefix}.down_proj")  # [E, D, F]
        else:
            names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
            gate, up, down = (np.stack([take(f"{prefix}.{index}.{name}.weight") for index in range(config.num_experts)]) for name in names)
        return {name: np.ascontiguousarray(part.swapaxes(1, 2)) for name, part in (("w_gate", gate), ("w_up", up), ("w_down", down))}

    params = {
        "embedding": take("model.embed_tokens.weight"),
        "layers": [layer(f"model.layers.{index}") for index in range(config.num_layers)],
        "final_norm": {"gain": take("model.norm.weight")},
    }
    if not config.tied_embeddings:
        params["head"] = take("lm_head.weight").T
    tensors.pop("lm_head.weight", None)
    return params
