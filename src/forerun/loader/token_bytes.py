"""How many bytes of text each id stands for, whatever family of tokenizer: the denominator of bits per byte."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

SPACE_MARK = "▁"  # source: SentencePiece writes a space so
BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # source: SentencePiece's byte fallback


def bytes_of_tokens(tokenizer_json: str, vocab_size: int) -> np.ndarray:
    """UTF-8 bytes each id stands for, int32 `[vocab_size]`; 0 for special tokens such as end-of-document.

    Exact where ids spell the text back (byte-level, byte fallback). WordPiece and WordLevel drop the spaces between words: one is
    counted with each token that begins a word.
    """
    spec = json.loads(tokenizer_json)
    vocab = spec["model"]["vocab"]
    names = vocab.items() if isinstance(vocab, dict) else ((name, index) for index, (name, _) in enumerate(vocab))
    lengths = np.zeros(vocab_size, np.int32)
    count = _counting(spec)
    for name, index in names:
        lengths[index] = count(name)
    for token in spec.get("added_tokens") or []:
        lengths[token["id"]] = 0 if token.get("special") else len(token["content"].encode())
    return lengths


def _counting(spec: dict[str, Any]) -> Any:
    """The function from a piece of this family to its bytes."""
    model = spec["model"]
    if model.get("type") in ("WordPiece", "WordLevel"):
        return lambda name: _word_piece(name, model.get("continuing_subword_prefix") or "")
    if '"ByteLevel"' in json.dumps([spec.get("pre_tokenizer"), spec.get("decoder")]):
        return len  # such a vocabulary writes every byte as one character
    ending = model.get("end_of_word_suffix") or ""
    return lambda name: 1 if BYTE_PIECE.fullmatch(name) else len(_spelled(name, ending).encode())


def _spelled(name: str, ending: str) -> str:
    text = name.removesuffix(ending) + " " if ending and name.endswith(ending) else name
    return text.replace(SPACE_MARK, " ")


def _word_piece(name: str, prefix: str) -> int:
    if prefix and name.startswith(prefix):
        return len(name.removeprefix(prefix).encode())
    return len(name.encode()) + name[:1].isalnum()
