"""The written-out list of encoders behind one signature: a column of texts in, unit vectors out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError


class Encoder(Protocol):
    """What every encoder offers."""

    num_dimensions: int

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors, float32 `[documents, num_dimensions]`; zero rows for texts without content."""
        ...


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """How documents become vectors."""

    encoder: Literal["wordllama", "tfidf", "static", "onnx", "endpoint"] = "wordllama"
    """`wordllama`: the table in the installed package, offline. `tfidf`: fitted on the corpus, lexical. `static`: folder of
    model2vec or of sentence-transformers' StaticEmbedding. `onnx`: folder of sentence-transformers or an exporter with (onnx/)model.onnx
    and tokenizer.json. `endpoint`: an OpenAI-compatible `/embeddings`."""
    model: str = ""
    """Folder, or the model's name at the endpoint."""
    url: str = ""
    """Base address of the endpoint, such as `http://127.0.0.1:8000/v1`."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; unset sends none."""
    max_chars: int = 0
    """Characters of a text encoded by `onnx` and `endpoint`; 0 means all, but what an endpoint finds too long is halved until it fits."""
    num_dimensions: int = 256
    """Of `tfidf`; the others bring theirs."""

    def __post_init__(self) -> None:
        if self.encoder in ("static", "onnx", "endpoint") and not self.model:
            raise ConfigError(
                f"embed.model must be given for embed.encoder={self.encoder!r}", hint="a folder, or the model's name at the endpoint"
            )
        if self.encoder == "endpoint" and not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"embed.url must begin with http:// or https://, got {self.url!r}", hint="give the endpoint's base address")


def weight_files(config: EmbedConfig) -> list[Path]:
    """Files whose bytes decide the vectors beside the config; part of the build's identity."""
    if config.encoder == "wordllama":
        from forerun.curate.embed.static import wordllama_files

        return list(wordllama_files())
    if config.encoder == "static":
        from forerun.curate.embed.static import static_files

        return list(static_files(Path(config.model)))
    if config.encoder == "onnx":
        from forerun.curate.embed.layout import model_files

        return model_files(Path(config.model))
    return []


def open_encoder(config: EmbedConfig) -> Encoder:
    """The encoder that a config alone says; `tfidf` is fitted to a corpus, `tfidf.fit_tfidf`."""
    assert config.encoder != "tfidf"
    if config.encoder == "wordllama":
        from forerun.curate.embed.static import wordllama_encoder

        return wordllama_encoder()
    if config.encoder == "static":
        from forerun.curate.embed.static import folder_encoder

        return folder_encoder(Path(config.model))
    if config.encoder == "onnx":
        from forerun.curate.embed.onnx import OnnxEncoder

        return OnnxEncoder(Path(config.model), max_chars=config.max_chars)
    from forerun.curate.embed.endpoint import EndpointEncoder

    return EndpointEncoder(config)
