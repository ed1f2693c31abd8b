"""Mean-pooled static token vectors through a word cache: each distinct word is tokenised once, whatever its count.

The default table is wordllama's (256 dimensions, MIT), read from the installed package without a network.
"""

# V distinct words, D dimensions, U words of a call

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError
from forerun.curate.embed.words import WordTable
from forerun.curate.tokenizer_file import unknown_id

MOST_WORDS = 1 << 21  # assumed: about 100 MiB of cache; beyond it the cache starts anew
SPACE_MARK = "▁"
LEAST_COSINE = 0.99  # the agreement asked for with model2vec
TEXTS_AT_ONCE = 256  # assumed: bounds the ids in memory when documents are long
PROBES = (
    "The harbour lay quiet under the first stars, and nobody had expected the storm to turn back.",
    "def area(width, height):\n    if width < 0:\n        return None\n    return width * height  # in m2\n\n\n",
    "1. Boil 250 g of flour;\n2. don't stir (it's hot!)\n\n   - see https://example.org/a?b=c",
    "Überraschung für alle Gäste: naïve café, Москва, 東京は日本の首都です。",
)
TABLE = "model.safetensors"
TABLE_NAMES = ("embeddings", "embedding.weight")  # source: model2vec's and sentence-transformers' names


class StaticEncoder:
    """Vectors as the mean of token vectors over the whole text.

    Args:
        vectors: float32 `[vocabulary, D]`.
        tokenizer_json: of the table. One that marks spaces in its normaliser (SentencePiece) is applied to bare words with the
            mark set by hand; any other normalises and splits by its own rules, a byte-level one with the space before a word.
        whole: runs between white space are tokenised at once, as exact as whole texts for most tokenizers; else runs of letters,
            of marks and single digits, which come again more often.
        by_text: every text is tokenised as a whole and no word is remembered: exact for any tokenizer, at its own speed.
    """

    def __init__(self, vectors: np.ndarray, tokenizer_json: str, *, whole: bool = False, by_text: bool = False) -> None:
        from tokenizers import Tokenizer

        self.num_dimensions = vectors.shape[1]
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        spec = json.loads(tokenizer_json) | {"post_processor": None, "truncation": None, "padding": None}
        self._by_text, self._of_texts = by_text, Tokenizer.from_str(json.dumps(spec))
        splits = json.dumps(spec.get("pre_tokenizer"))
        self._whole, self._spaces = whole, '"ByteLevel"' in splits
        self._begins_spaced = not self._spaces or '"add_prefix_space": true' in splits
        if self._spaces:  # spaces are set here, not by the splitter before every piece
            spec["pre_tokenizer"] = json.loads(splits.replace('"add_prefix_space": true', '"add_prefix_space": false'))
        self._marks_spaces = _marks(spec.get("normalizer")) or (not whole and _marks(spec.get("pre_tokenizer")))
        if self._marks_spaces:
            spec |= {"normalizer": _without_marks(spec.get("normalizer")), "pre_tokenizer": None}
        self._tokenizer = Tokenizer.from_str(json.dumps(spec))
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if largest >= len(vectors):  # an id beyond the table must not take another token's row (incident D19)
            raise ConfigError(
                f"embed.model: the tokenizer has ids up to {largest}, the table has {len(vectors)} rows",
                hint="take tokenizer.json and vectors from one model",
            )
        self._forget()

    def encode(self, texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Unit vectors, float32 `[documents, D]`; zero for a text without a word."""
        if self._by_text:
            return self._pooled_texts(texts.to_pylist())
        if self._table.num_words > MOST_WORDS:
            self._forget()
        ids, first, words, spaced = self._table.number(texts)
        self._learn(words, spaced)
        out = np.zeros((len(texts), self.num_dimensions), np.float32)
        _pool(ids, first, self._token_ids[: self._num_ids], self._starts[: self._table.num_words + 1], self._vectors, out)
        return normalized(out)

    def agrees(self) -> bool:
        """Whether words give the vectors that whole texts give, on texts of several kinds."""
        cosine = (self.encode(pa.array(PROBES)) * self._pooled_texts(PROBES)).sum(axis=1)
        return bool(cosine.min() >= LEAST_COSINE)

    def _pooled_texts(self, texts: Sequence[str | None]) -> np.ndarray:
        out = np.zeros((len(texts), self.num_dimensions), np.float32)
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            filled = [text or "" for text in texts[start : start + TEXTS_AT_ONCE]]
            for index, encoding in enumerate(self._of_texts.encode_batch_fast(filled, add_special_tokens=False), start):
                out[index] = self._vectors[encoding.ids].sum(axis=0)
        return normalized(out)

    def _forget(self) -> None:
        self._table = WordTable(whole=self._whole, begins_spaced=self._begins_spaced)
        self._token_ids, self._num_ids = np.empty(1 << 16, np.int32), 0
        self._starts = np.zeros(1 << 16, np.int64)

    def _learn(self, words: list[bytes], spaced: np.ndarray) -> None:
        """Tokenise the new words and append their token ids to the cache."""
        texts = [word.decode("utf-8", "replace") for word in words]
        if self._marks_spaces:
            texts = [
                (SPACE_MARK if after_space else "") + text.replace(" ", SPACE_MARK) for text, after_space in zip(texts, spaced.tolist())
            ]
        elif self._spaces:
            texts = [" " + text if after_space else text for text, after_space in zip(texts, spaced.tolist())]
        elif self._whole:
            texts = [text.strip() for text in texts]
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        flat = np.array([index for ids in encoded for index in ids], np.int32)
        known, total = self._table.num_words - len(words), self._num_ids + len(flat)
        self._token_ids = _with_room(self._token_ids, total)
        self._starts = _with_room(self._starts, self._table.num_words + 1)
        self._token_ids[self._num_ids : total] = flat
        self._starts[known + 1 : self._table.num_words + 1] = self._num_ids + np.cumsum(lengths)
        self._num_ids = total


def wordllama_files() -> tuple[Path, Path]:
    """Table and tokenizer inside the wordllama package. Raises: ConfigError when the package is missing."""
    spec = importlib.util.find_spec("wordllama")  # found, not imported: importing it turns on logging for the whole process
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("embed.encoder 'wordllama' needs the wordllama package", hint="pip install wordllama, or use 'tfidf'")
    folder = Path(spec.submodule_search_locations[0])
    return folder / "weights" / "l2_supercat_256.safetensors", folder / "tokenizers" / "l2_supercat_tokenizer_config.json"


def wordllama_encoder() -> StaticEncoder:
    """The encoder of the wordllama package."""
    from safetensors.numpy import load_file

    table, tokenizer = wordllama_files()
    return StaticEncoder(load_file(str(table))["embedding.weight"].astype(np.float32), tokenizer.read_text(encoding="utf-8"))


def static_files(folder: Path) -> tuple[Path, Path]:
    """Table and tokenizer of a saved static model, as model2vec or sentence-transformers lay it out."""
    inner = folder / "0_StaticEmbedding"
    home = inner if (inner / TABLE).exists() else folder
    return home / TABLE, home / "tokenizer.json"


def folder_encoder(folder: Path) -> StaticEncoder:
    """A static model saved by model2vec or sentence-transformers: a table, and with some a weight a token and a row of the table a token.

    The unknown token has no say, as in model2vec. Raises: ConfigError when a file is missing or is not what it should be.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    table, tokenizer = static_files(folder)
    for path in (table, tokenizer):
        if not path.exists():
            raise ConfigError(
                f"embed.model folder {folder} has no {path.name}", hint="save the static model with model2vec's save_pretrained"
            )
    try:
        arrays = load_file(str(table))
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"embed.model {table} cannot be read: {error}", hint="copy or save the model again") from None
    found = [arrays[name] for name in TABLE_NAMES if name in arrays]
    if not found or found[0].ndim != 2:
        raise ConfigError(
            f"embed.model {table} has no table of vectors under {' or '.join(TABLE_NAMES)}: it holds {', '.join(sorted(arrays)) or 'nothing'}",
            hint="save the static model with model2vec's save_pretrained",
        )
    vectors = np.array(found[0], np.float32)
    if "mapping" in arrays:
        vectors = vectors[arrays["mapping"]]
    if "weights" in arrays:
        vectors = vectors * np.asarray(arrays["weights"], np.float32)[:, None]
    text = tokenizer.read_text(encoding="utf-8")
    unknown = unknown_id(text)
    if unknown is not None and unknown < len(vectors):
        vectors[unknown] = 0
    if not np.isfinite(vectors).all():
        raise ConfigError(f"embed.model {table} holds numbers that are not finite", hint="save the static model again")
    by_word = StaticEncoder(vectors, text, whole=True)
    return by_word if by_word.agrees() else StaticEncoder(vectors, text, by_text=True)


def _without_marks(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a normaliser does beside writing spaces as marks, which the words here carry already."""
    if normalizer is None or normalizer.get("type") == "Sequence":
        parts = [part for part in (normalizer or {}).get("normalizers", []) if _without_marks(part) is not None]
        return {"type": "Sequence", "normalizers": parts} if parts else None
    return None if _marks(normalizer) else normalizer


def _marks(part: dict[str, Any] | None) -> bool:
    return SPACE_MARK in json.dumps(part, ensure_ascii=False)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1; zero rows stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _with_room(array: np.ndarray, length: int) -> np.ndarray:
    if length <= len(array):
        return array
    larger = np.zeros(max(length, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@nb.njit(nogil=True, cache=True, fastmath=True)
def _pool(ids, first, token_ids, starts, vectors, out):
    """Sum of the token vectors of each document, a word's times its count; the mean has the same direction."""
    place = np.full(len(starts) - 1, -1, np.int32)  # of a word among those of the document
    most = np.diff(first).max() if len(first) > 1 else 0
    seen, times = np.empty(most, np.int32), np.empty(most, np.float32)
    for document in range(len(first) - 1):
        row, num_seen = out[document], 0
        for index in range(first[document], first[document + 1]):
            word = ids[index]
            if place[word] < 0:
                place[word], seen[num_seen], times[num_seen] = num_seen, word, 0
                num_seen += 1
            times[place[word]] += 1
        for index in range(num_seen):
            word, weight = seen[index], times[index]
            place[word] = -1
            for position in range(starts[word], starts[word + 1]):
                token = vectors[token_ids[position]]
                for dimension in range(len(row)):
                    row[dimension] += weight * token[dimension]
