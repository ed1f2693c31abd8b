"""Vectors from an OpenAI-compatible `/embeddings`: small requests, retried, halved when too large, order kept.

A text that is too long for the server even alone is sent in its first half, again until it fits, rather than end the build.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from forerun.base.errors import SourceError
from forerun.curate.embed.static import normalized
from forerun.curate.patience import headers_of, is_tired, pause_s

if TYPE_CHECKING:
    import httpx

    from forerun.curate.embed.encoders import EmbedConfig

BATCH = 8  # source: Marin's pipeline sends eight documents a request
MAX_RETRIES = 6  # assumed: about 12 s of patience in all, or as much as the server asks for
TIMEOUT_S = 120.0  # assumed
LEAST_CHARS = 200  # assumed: a shorter text is never too long for an encoder
TOO_LONG = (
    "context length",
    "context size",
    "too long",
    "too large",
    "maximum",
    "exceed",
)  # source: words of vLLM, llama.cpp, TEI and OpenAI


class EndpointEncoder:
    """Documents are sent as they are, cut at `max_chars`; empty ones are not sent."""

    def __init__(self, config: EmbedConfig) -> None:
        import httpx

        self._config = config
        self._client = httpx.Client(timeout=TIMEOUT_S)
        self.num_dimensions = 0  # until the first answer
        self.num_dimensions = self._request(["dimension"]).shape[1]

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors. Raises: SourceError when the server stays away or answers with another number of vectors."""
        column = [(text or "")[: self._config.max_chars or None] for text in texts.to_pylist()]
        out = np.zeros((len(column), self.num_dimensions), np.float32)
        filled = [index for index, text in enumerate(column) if text.strip()]
        for start in range(0, len(filled), BATCH):
            chosen = filled[start : start + BATCH]
            out[chosen] = self._request([column[index] for index in chosen])
        return normalized(out)

    def _request(self, texts: list[str]) -> np.ndarray:
        import httpx

        address, reason = f"{self._config.url.rstrip('/')}/embeddings", ""
        body = {"model": self._config.model, "input": texts, "encoding_format": "float"}
        for attempt in range(MAX_RETRIES):
            try:
                response = self._client.post(address, json=body, headers=headers_of(self._config.api_key_variable))
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                reason = type(error).__name__
                time.sleep(pause_s(None, attempt))
                continue
            if _is_too_long(response):
                if len(texts) > 1:
                    half = len(texts) // 2
                    return np.concatenate([self._request(texts[:half]), self._request(texts[half:])])
                if len(texts[0]) > LEAST_CHARS:
                    return self._request([texts[0][: len(texts[0]) // 2]])
            if is_tired(response.status_code):
                reason = f"status {response.status_code}"
                time.sleep(pause_s(response, attempt))
                continue
            if response.status_code != 200:
                raise SourceError(
                    f"{address} answered {response.status_code}: {response.text[:120]}", hint="check embed.model and embed.max_chars"
                )
            try:
                answer = response.json()
            except ValueError:  # cut off on the way, or no server of this kind
                reason = f"answered no embeddings: {response.text[:120]!r}"
                time.sleep(pause_s(None, attempt))
                continue
            return self._vectors(answer, address, len(texts))
        raise SourceError(
            f"{address} failed {MAX_RETRIES} times: {reason}", hint="start the server and run again; finished partitions are kept"
        )

    def _vectors(self, answer: Any, address: str, num_texts: int) -> np.ndarray:
        """The rows of an answer, in the order asked for."""
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([_numbers(row["embedding"]) for row in rows], np.float32).reshape(len(rows), -1)
        except (ValueError, KeyError, TypeError, OverflowError):
            raise SourceError(
                f"{address} answered no embeddings: {str(answer)[:120]!r}", hint="check embed.url: it must be OpenAI-compatible"
            ) from None
        if len(rows) != num_texts:
            raise SourceError(f"{address} gave {len(rows)} vectors for {num_texts} texts", hint="use a server that answers every input")
        if [row["index"] for row in rows] != list(range(num_texts)):
            raise SourceError(
                f"{address} gave vectors for inputs {[row['index'] for row in rows]} of {num_texts}",
                hint="use a server that numbers its answers from 0",
            )
        if not np.isfinite(vectors).all() or not vectors.shape[1] or self.num_dimensions not in (0, vectors.shape[1]):
            raise SourceError(
                f"{address} gave vectors of {vectors.shape[1]} numbers, some not finite or not as many as before",
                hint="use one model that gives finite vectors of one length",
            )
        return vectors


def _is_too_long(response: httpx.Response) -> bool:
    """Whether a server says that it was sent too much: by its status, or as those with a context length do, in words."""
    said = response.text[:2000].lower() if response.status_code in (400, 422) else ""
    return response.status_code == 413 or any(word in said for word in TOO_LONG)


def _numbers(embedding: Any) -> Any:
    """An embedding as numbers; some servers send little-endian float32 in base64 whatever they were asked for."""
    return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4") if isinstance(embedding, str) else embedding
