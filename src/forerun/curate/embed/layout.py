"""What the folder of a sentence encoder says about its use: where the ONNX file lies, how tokens become one vector, how long texts may be.

Folders come from sentence-transformers (`modules.json`, `1_Pooling/`, `onnx/model.onnx`) or from an exporter of transformers models
(`model.onnx` beside `tokenizer.json` and `config.json`), which says nothing of pooling: then the mean is taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.base.errors import ConfigError

MODEL_PLACES = ("model.onnx", "onnx/model.onnx")  # source: optimum's and sentence-transformers' exporters
LEGACY_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # source: sentence-transformers' Pooling before its sixth major version, in the order it joins them
POOLINGS = tuple(LEGACY_POOLING.values())
ACTIVATIONS = ("Identity", "Tanh")
DOCUMENT_PROMPTS = ("document", "passage", "corpus")  # source: sentence-transformers' encode_document
MAX_TOKENS = 512  # source: position table of BERT-sized sentence encoders
WEIGHTLESS = {".md", ".py", ".png", ".h5", ".msgpack", ".ot", ".safetensors"}  # files beside an ONNX model that it does not read


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one model folder is used."""

    model: Path
    tokenizer: Path
    pooling: tuple[str, ...]
    """Joined in this order; one of `POOLINGS` each."""
    dense: tuple[Path, ...]
    """Folders of linear layers after the pooling."""
    max_tokens: int
    lower_case: bool
    prompt: str
    """Set before every text, as the model's makers do with documents."""
    pad_token: str
    left_padding: bool


def read_layout(folder: Path) -> Layout:
    """The layout of a folder. Raises: ConfigError when files are missing or it wants what is not done here, naming it."""
    model = next((folder / place for place in MODEL_PLACES if (folder / place).is_file()), folder / MODEL_PLACES[0])
    home = folder if (folder / "tokenizer.json").exists() else model.parent
    for path in (model, home / "tokenizer.json"):
        if not path.exists():
            raise ConfigError(f"embed.model folder {folder} has no {path.name}", hint="export the model to ONNX beside its tokenizer.json")
    pooling, dense = _modules(folder)
    bert, settings, config = (
        _read(folder / "sentence_bert_config.json"),
        _read(home / "tokenizer_config.json"),
        _read(folder / "config.json"),
    )
    lengths = [config.get("max_position_embeddings"), settings.get("model_max_length")]
    known = [int(length) for length in lengths if isinstance(length, int | float) and 0 < length < 1e7]  # transformers writes 1e30 for none
    pad = settings.get("pad_token") or _read(home / "special_tokens_map.json").get("pad_token") or ""
    return Layout(
        model=model,
        tokenizer=home / "tokenizer.json",
        pooling=pooling,
        dense=dense,
        max_tokens=bert.get("max_seq_length") or min(known, default=MAX_TOKENS),
        lower_case=bool(bert.get("do_lower_case")),
        prompt=_prompt(_read(folder / "config_sentence_transformers.json")),
        pad_token=pad.get("content", "") if isinstance(pad, dict) else pad,
        left_padding=settings.get("padding_side") == "left",
    )


def model_files(folder: Path) -> list[Path]:
    """Files whose bytes decide the vectors, also those with weights outside the ONNX file."""
    model = next((folder / place for place in MODEL_PLACES if (folder / place).is_file()), folder / MODEL_PLACES[0])
    beside = [path for path in model.parent.glob("*") if path.suffix not in (*WEIGHTLESS, ".onnx")]
    parts = [path for path in folder.glob("[0-9]*_*/*") if path.suffix != ".md"]
    found = {model, *folder.glob("*.json"), *beside, *parts}
    return sorted(path for path in found if path.is_file()) or [model]


def _modules(folder: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Poolings and linear layers of a sentence-transformers model."""
    path = folder / "modules.json"
    if not path.exists():
        pooling = _read(folder / "1_Pooling" / "config.json")
        return _pooling(pooling, folder) if pooling else ("mean",), ()
    pooling, dense = ("mean",), []
    for module in _read(path):
        kind, place = module["type"].rsplit(".", 1)[-1], folder / module["path"]
        if kind == "Pooling":
            pooling = _pooling(_read(place / "config.json"), folder)
        elif kind == "Dense":
            activation = _read(place / "config.json").get("activation_function", "").rsplit(".", 1)[-1]
            if activation not in ACTIVATIONS:
                raise ConfigError(f"embed.model {place} has activation {activation!r}", hint=f"known are {', '.join(ACTIVATIONS)}")
            dense.append(place)
        elif kind not in ("Transformer", "Normalize"):
            raise ConfigError(f"embed.model {folder} has a module {kind}, which cannot be run here", hint="serve it as an endpoint")
    return pooling, tuple(dense)


def _pooling(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    mode = config.get("pooling_mode") or tuple(name for key, name in LEGACY_POOLING.items() if config.get(key)) or "mean"
    modes = (mode,) if isinstance(mode, str) else tuple(mode)
    unknown = [name for name in modes if name not in POOLINGS]
    if unknown:
        raise ConfigError(f"embed.model {folder} pools by {unknown[0]!r}", hint=f"known are {', '.join(POOLINGS)}")
    if config.get("include_prompt") is False:
        raise ConfigError(f"embed.model {folder} leaves its prompt out of the pooling", hint="serve it as an endpoint")
    return modes


def _prompt(config: dict[str, Any]) -> str:
    prompts = config.get("prompts") or {}
    name = config.get("default_prompt_name") or next((name for name in DOCUMENT_PROMPTS if prompts.get(name)), "")
    return prompts.get(name) or ""


def _read(path: Path) -> Any:
    """A JSON file, or nothing where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise ConfigError(f"embed.model {path} is no JSON", hint="copy the model again") from None
