"""Evaluation texts on disk as fixed rows: Paloma, uncheatable-eval, or any folder of JSON lines.

A suite is a file or a folder. Its domains are the folder's sub-folders (Paloma: `<domain>/val/*.jsonl.gz`) or, when there are none,
its files (uncheatable-eval: `<domain>.json`). A document is the `text` of an object, or a plain string.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from forerun.base.errors import DataError
from forerun.loader.batches import PADDING_SEGMENT, Batch, segments
from forerun.loader.held_out import HeldOut
from forerun.loader.store import TokenStore

ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


def suite_rows(path: Path, store: TokenStore, seq_len: int, num_sequences: int) -> dict[str, HeldOut]:
    """Each domain's first `num_sequences` rows in the store's tokenizer, documents packed in file order.

    Raises: DataError when there is no text, or a line is not what it should be.
    """
    tokenizer = Tokenizer.from_file(str(store.tokenizer_path))
    found = {}
    for domain, files in _domains(path).items():
        ids = _first_ids(files, tokenizer, store.manifest.end_of_document, num_sequences * seq_len + 1)
        if len(ids) > 1:
            found[domain] = _packed(domain, ids, store, seq_len)
    if not found:
        raise DataError(f"evaluation suite {path} holds no text", hint=f"give a file or folder of {', '.join(ENDINGS)} with `text`")
    return found


def _domains(path: Path) -> dict[str, list[Path]]:
    if path.is_file():
        return {_stem(path): [path]}
    folders = sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []
    if folders:
        return {folder.name: _texts_in(folder) for folder in folders}
    return {_stem(file): [file] for file in _texts_in(path)}


def _texts_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.name.endswith(ENDINGS))


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _documents(path: Path) -> Iterator[str]:
    open_text = gzip.open if path.name.endswith(".gz") else open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            if ".jsonl" in path.name:
                entries = (json.loads(line) for line in file if line.strip())
            else:
                entries = iter(json.load(file))
            for entry in entries:
                text = entry.get("text") if isinstance(entry, dict) else entry
                if not isinstance(text, str):
                    raise DataError(f"{path}: a document has no text, got {str(entry)[:60]!r}", hint="each line is an object with `text`")
                yield text
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not JSON text: {error}", hint="fetch the file again") from None


def _first_ids(files: list[Path], tokenizer: Tokenizer, end: int, num_ids: int) -> np.ndarray:
    """Ids of the first documents, each begun by the end-of-document token, the last cut to `num_ids`."""
    ids: list[int] = []
    for file in files:
        for text in _documents(file):
            ids += [end, *tokenizer.encode(text, add_special_tokens=False).ids]
            if len(ids) >= num_ids:
                return np.array(ids[:num_ids], np.int32)
    return np.array(ids, np.int32)


def _packed(domain: str, ids: np.ndarray, store: TokenStore, seq_len: int) -> HeldOut:
    num_scored = len(ids) - 1
    num_rows, end = -(-num_scored // seq_len), store.manifest.end_of_document
    filled = np.full(num_rows * seq_len + 1, end, np.int32)
    filled[: len(ids)] = ids
    shape = (num_rows, seq_len)
    scored = (np.arange(num_rows * seq_len) < num_scored).reshape(shape)
    tokens, targets = filled[:-1].reshape(shape).copy(), filled[1:].reshape(shape).copy()
    starts = tokens == end
    starts[:, :1] = True
    segment_ids, positions = segments(starts)
    segment_ids[~scored], positions[~scored] = PADDING_SEGMENT, 0
    return HeldOut(
        domain=domain,
        batch=Batch(tokens, targets, segment_ids, positions, scored.astype(np.float32)),
        num_bytes=int(store.token_bytes[targets[scored]].sum()),
        num_tokens=num_scored,
    )
