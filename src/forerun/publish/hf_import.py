"""Hugging Face safetensors of OLMoE, Mixtral, Qwen3-MoE and Granite-MoE as our model: a config and a parameter tree with equal logits.

Expert layouts that are read: one matrix per expert, and all experts fused, under the names of older and of newer files.
"""

# V vocab_size, D d_model, H heads, d d_head, E experts, F d_expert

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from forerun.base.errors import DataError
from forerun.model.config import ModelConfig
from forerun.model.count import leaves
from forerun.model.hf_config import config_of, read_settings

DTYPES = ("F64", "F32", "F16", "BF16")
FUSED_EXPERTS = (("experts.gate_up_proj", "experts.down_proj"), ("input_linear.weight", "output_linear.weight"))
ROUTERS = ("gate.weight", "router.layer.weight", "router.weight")


class _Multipliers(msgspec.Struct):
    """Granite's factors on values, which our block has as weights; 1 in the other kinds."""

    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_scaling: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    def fold_into(self, params: dict[str, Any], *, tied: bool) -> None:
        """Scale, in place, the embedding, what each layer adds to the stream, and the gain before the head."""
        params["embedding"] *= self.embedding_multiplier
        params["final_norm"]["gain"] /= self.logits_scaling * (self.embedding_multiplier if tied else 1.0)
        for layer in params["layers"]:
            layer["attention"]["w_o"] *= self.residual_multiplier
            layer["feed_forward"]["experts"]["w_down"] *= self.residual_multiplier


def import_hf(folder: Path) -> tuple[ModelConfig, dict[str, Any]]:
    """Read `config.json` and `*.safetensors` of a folder.

    Returns: the config, and float32 NumPy parameters shaped as `model/params.py` says.
    Raises: DataError for another kind of model, a switch our block has no equal for, or a missing, leftover or misshapen tensor.
    """
    path = folder / "config.json"
    settings = read_settings(path)
    config = config_of(settings, where=str(path))
    multipliers = _multipliers(settings, str(path))
    tensors = dict(_tensors(folder))
    params = _params(config, tensors)
    _check_shapes(params, config, folder)
    multipliers.fold_into(params, tied=config.tied_embeddings)
    if tensors:
        raise DataError(
            f"{folder}: {len(tensors)} tensors have no place in the model, first {min(tensors)!r}", hint="only plain checkpoints are read"
        )
    return config, params


def _multipliers(settings: dict[str, Any], where: str) -> _Multipliers:
    try:
        return msgspec.convert(settings, _Multipliers, strict=True)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}", hint="download it again") from None


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    for path in _files(folder):
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118  not a dict
                    dtype = file.get_slice(name).get_dtype()
                    if dtype not in DTYPES:
                        raise DataError(f"{path}: tensor {name!r} must be of {', '.join(DTYPES)}, got {dtype}", hint="dequantise it first")
                    yield name, np.asarray(file.get_tensor(name), np.float32)
        except SafetensorError as error:
            raise DataError(f"{path} cannot be read: {error}", hint="download it again") from None


def _files(folder: Path) -> list[Path]:
    """What the index names, where there is one: repositories hold the same weights in other forms beside them."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        files = [folder / "model.safetensors"] if (folder / "model.safetensors").exists() else sorted(folder.glob("*.safetensors"))
        if not files:
            raise DataError(
                f"{folder} holds no *.safetensors", hint="convert pickled weights with `save_pretrained(safe_serialization=True)`"
            )
        return files
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index} has no weight_map that can be read: {error}", hint="download it again") from None
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise DataError(f"{folder} lacks {absent[0]}, which its index names, and {len(absent) - 1} more", hint="download the rest")
    return [folder / name for name in names]


def _params(config: ModelConfig, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    def take(name: str) -> np.ndarray:
        if name not in tensors:
            raise DataError(f"tensor {name!r} is missing", hint="the folder holds only a part of the checkpoint")
        return tensors.pop(name)

    def layer(prefix: str) -> dict[str, Any]:
        attention = {f"w_{letter}": take(f"{prefix}.self_attn.{letter}_proj.weight").T for letter in "qkvo"}
        if config.qk_gain != "none":
            attention |= {f"{letter}_gain": take(f"{prefix}.self_attn.{letter}_norm.weight") for letter in "qk"}
        blocks = [f"{prefix}.{block}" for block in ("mlp", "block_sparse_moe")]
        routers = [(block, f"{block}.{router}") for block in blocks for router in ROUTERS if f"{block}.{router}" in tensors]
        block, router = routers[0] if routers else (blocks[0], f"{blocks[0]}.{ROUTERS[0]}")
        return {
            "attention_norm": {"gain": take(f"{prefix}.input_layernorm.weight")},
            "attention": attention,
            "feed_forward_norm": {"gain": take(f"{prefix}.post_attention_layernorm.weight")},
            "feed_forward": {"shared": [], "w_router": take(router).T, "experts": experts(block)},
        }

    def experts(block: str) -> dict[str, np.ndarray]:
        fused = [names for names in FUSED_EXPERTS if f"{block}.{names[0]}" in tensors]
        if fused:
            gate, up = np.split(take(f"{block}.{fused[0][0]}"), 2, axis=1)  # [E, 2 F, D]
            down = take(f"{block}.{fused[0][1]}")  # [E, D, F]
        else:
            mixtral = f"{block}.experts.0.w1.weight" in tensors
            names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
            gate, up, down = (
                np.stack([take(f"{block}.experts.{index}.{name}.weight") for index in range(config.num_experts)]) for name in names
            )
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


def _check_shapes(params: dict[str, Any], config: ModelConfig, folder: Path) -> None:
    """A config of another size beside the weights would go unnoticed until the first product."""
    expected = {leaf.path: leaf.shape for leaf in leaves(config)}
    for path, array in _arrays(params):
        shape = expected[re.sub(r"/[0-9]+/", "/*/", path)]
        if array.shape != shape:
            raise DataError(
                f"{folder}: {path} has shape {array.shape}, config.json asks for {shape}", hint="the weights are of another config"
            )


def _arrays(tree: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if isinstance(tree, np.ndarray):
        yield path, tree
    for name, child in children:
        yield from _arrays(child, f"{path}/{name}" if path else str(name))
