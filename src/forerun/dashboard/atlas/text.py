"""The text of documents, back from their token ids, and words as the search and the pair pages see them."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import Book

WORD = re.compile(r"\w+", re.UNICODE)


class Reader:
    """Documents of one store as text."""

    def __init__(self, lab: Lab, book: Book) -> None:
        self._folder: Path = lab.store / book.store_digest
        self._dtype = np.dtype(str(book.manifest.get("dtype", "uint16"))).newbyteorder("<")

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self._folder / "tokenizer.json"
        if not path.exists():
            raise DataError(f"{path} does not exist", hint="copy the store again, then run `forerun data verify`")
        return Tokenizer.from_file(str(path))

    def texts(self, shard_path: str, spans: list[tuple[int, int]], most_tokens: int) -> list[tuple[str, bool]]:
        """Text of documents at (first token, tokens with the end), cut to `most_tokens`, and whether it was cut."""
        path = self._folder / shard_path
        try:
            ids = np.memmap(path, self._dtype, "r")
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}", hint="copy the store again, then run `forerun data verify`") from None
        pieces = [ids[start : start + min(length - 1, most_tokens)].astype(np.int64).tolist() for start, length in spans]
        decoded = self._tokenizer.decode_batch(pieces, skip_special_tokens=False)
        return [(text, length - 1 > most_tokens) for text, (_, length) in zip(decoded, spans)]


def words_of(text: str) -> list[str]:
    """Words in lower case, as a browser makes them too."""
    return WORD.findall(text.lower())


def differing(first: str, second: str) -> tuple[list[str], list[str]]:
    """Words each text has and the other has nowhere, in order, each once."""
    one, other = words_of(first), words_of(second)
    mine, theirs = set(one), set(other)
    return [word for word in dict.fromkeys(one) if word not in theirs], [word for word in dict.fromkeys(other) if word not in mine]
