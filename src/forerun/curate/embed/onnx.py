"""A sentence-transformers style model exported to ONNX: folder with model.onnx and tokenizer.json, mean pooling over tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError
from forerun.curate.embed.static import normalized

BATCH = 32  # assumed: padded batches of this size keep a CPU busy at 512 tokens
MAX_TOKENS = 512  # source: position table of BERT-sized sentence encoders


class OnnxEncoder:
    """Needs the onnxruntime package, which forerun does not install."""

    def __init__(self, folder: Path, *, max_chars: int = 0) -> None:
        from tokenizers import Tokenizer

        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise ConfigError("embed.encoder 'onnx' needs the onnxruntime package", hint="pip install onnxruntime") from None
        model, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        for path in (model, tokenizer):
            if not path.exists():
                raise ConfigError(
                    f"embed.model folder {folder} has no {path.name}", hint="export the model to ONNX beside its tokenizer.json"
                )
        self._session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._max_chars = max_chars
        self.num_dimensions = int(self._session.get_outputs()[0].shape[-1])

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors; texts are sorted by length so that batches pad little."""
        column = [(text or "")[: self._max_chars or None] for text in texts.to_pylist()]
        out = np.zeros((len(column), self.num_dimensions), np.float32)
        order = np.argsort([len(text) for text in column], kind="stable")
        for start in range(0, len(column), BATCH):
            chosen = order[start : start + BATCH]
            encoded = self._tokenizer.encode_batch([column[index] for index in chosen.tolist()])
            ids = np.array([row.ids for row in encoded], np.int64)
            mask = np.array([row.attention_mask for row in encoded], np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = np.asarray(self._session.run(None, {name: feeds[name] for name in feeds if name in self._inputs})[0])
            if hidden.ndim == 3:
                hidden = (hidden * mask[..., None]).sum(axis=1) / np.maximum(mask.sum(axis=1, keepdims=True), 1)
            out[chosen] = hidden
        return normalized(out)
