"""A sentence encoder exported to ONNX, run as its folder says (`layout`)."""

# N texts of a batch, S tokens, D dimensions

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError
from forerun.curate.embed.layout import Layout, read_layout
from forerun.curate.embed.static import normalized

BATCH = 32  # assumed: padded batches of this size keep a CPU busy at 512 tokens
TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(float)": np.float32}
SENTENCE, TOKENS = "sentence_embedding", ("last_hidden_state", "token_embeddings")
"""Names of outputs: the whole model's vector, or one vector a token."""


class OnnxEncoder:
    """Needs the onnxruntime package, which forerun does not install."""

    def __init__(self, folder: Path, *, max_chars: int = 0) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise ConfigError("embed.encoder 'onnx' needs the onnxruntime package", hint="pip install onnxruntime") from None
        self._layout = read_layout(folder)
        try:
            self._session = onnxruntime.InferenceSession(str(self._layout.model), providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  the package's errors have no base of their own
            raise ConfigError(f"embed.model {self._layout.model} cannot be opened: {_first_line(error)}", hint="export it again") from None
        self._inputs = {entry.name: entry for entry in self._session.get_inputs()}
        self._output = _output([entry.name for entry in self._session.get_outputs()])
        unknown = sorted(set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids", "position_ids"})
        if unknown or any(entry.type not in TYPES for entry in self._inputs.values()):
            raise ConfigError(
                f"embed.model {self._layout.model} wants the input {(unknown or sorted(self._inputs))[0]!r}, which is not known here",
                hint="export it for feature extraction, without a cache",
            )
        self._tokenizer = _tokenizer(self._layout, self._inputs["input_ids"].shape[1])
        self._dense = [_linear(place) for place in self._layout.dense] if self._output != SENTENCE else []
        self._max_chars = max_chars
        self.num_dimensions = self._run(["dimension"]).shape[1]

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors; texts are sorted by length so that batches pad little."""
        column = [(text or "")[: self._max_chars or None] for text in texts.to_pylist()]
        out = np.zeros((len(column), self.num_dimensions), np.float32)
        order = np.argsort([len(text) for text in column], kind="stable")
        for start in range(0, len(column), BATCH):
            chosen = [index for index in order[start : start + BATCH].tolist() if column[index].strip()]
            if chosen:
                out[chosen] = self._run([column[index] for index in chosen])
        return normalized(out)

    def _run(self, texts: list[str]) -> np.ndarray:
        """Vectors of one batch, not yet of unit length, float32 `[N, D]`."""
        prepared = [self._layout.prompt + text for text in texts]
        encoded = self._tokenizer.encode_batch([text.lower() for text in prepared] if self._layout.lower_case else prepared)
        ids, mask = np.array([row.ids for row in encoded]), np.array([row.attention_mask for row in encoded])
        position = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), "position_ids": position}
        feeds = {name: known[name].astype(TYPES[entry.type]) for name, entry in self._inputs.items()}
        try:
            answer = np.asarray(self._session.run([self._output], feeds)[0], np.float32)
        except Exception as error:  # noqa: BLE001  as above
            raise ConfigError(f"embed.model {self._layout.model} fails on a text: {_first_line(error)}", hint="export it again") from None
        vectors = pooled(answer, mask, self._layout.pooling) if answer.ndim == 3 else answer
        for weight, bias, activation in self._dense:
            vectors = activation(vectors @ weight.T + bias)
        return vectors


def _tokenizer(layout: Layout, fixed: Any) -> Any:
    """The folder's tokenizer, cutting and padding as the model wants it.

    Args:
        fixed: tokens of every text where the model was exported for one length, else a name.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(layout.tokenizer))
    saved = tokenizer.padding or {}
    token = layout.pad_token or saved.get("pad_token", "[PAD]")
    pad_id = tokenizer.token_to_id(token)
    length = fixed if isinstance(fixed, int) else None
    tokenizer.enable_truncation(length or layout.max_tokens)
    tokenizer.enable_padding(
        direction="left" if layout.left_padding else "right",
        pad_id=saved.get("pad_id", 0) if pad_id is None else pad_id,  # some models count positions from ids that are no padding
        pad_token=token,
        length=length,
    )
    return tokenizer


def _output(names: list[str]) -> str:
    """The output to take: the whole model's vector where there is one, else the tokens' vectors, else the first."""
    return next((name for name in (SENTENCE, *TOKENS) if name in names), names[0])


def pooled(hidden: np.ndarray, mask: np.ndarray, modes: tuple[str, ...]) -> np.ndarray:
    """One vector a text from those of its tokens, `[N, S, D]`. Source: sentence-transformers' Pooling."""
    weight = mask[..., None].astype(np.float32)
    total, count = (hidden * weight).sum(axis=1), np.maximum(weight.sum(axis=1), 1e-9)
    rows, first = np.arange(len(hidden)), mask.argmax(axis=1)
    place = weight * np.arange(1, hidden.shape[1] + 1, dtype=np.float32)[:, None]
    ways = {
        "cls": lambda: hidden[rows, first],
        "max": lambda: np.where(weight > 0, hidden, -1e9).max(axis=1),
        "mean": lambda: total / count,
        "mean_sqrt_len_tokens": lambda: total / np.sqrt(count),
        "weightedmean": lambda: (hidden * place).sum(axis=1) / np.maximum(place.sum(axis=1), 1e-9),
        "lasttoken": lambda: hidden[rows, mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)],
    }
    return np.concatenate([ways[mode]() for mode in modes], axis=1)


def _linear(folder: Path) -> tuple[np.ndarray, np.ndarray, Any]:
    """Weight, bias and activation of a Dense module."""
    import json

    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    if not path.exists():
        raise ConfigError(f"embed.model {folder} has no {path.name}", hint="save the model again; older formats are not read")
    arrays = load_file(str(path))
    weight = np.asarray(arrays["linear.weight"], np.float32)
    bias = np.asarray(arrays.get("linear.bias", np.zeros(len(weight))), np.float32)
    name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["activation_function"]
    return weight, bias, np.tanh if name.endswith("Tanh") else np.asarray


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
