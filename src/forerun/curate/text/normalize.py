"""One spelling per text, and the id that follows from it."""

from __future__ import annotations

import re

import pyarrow as pa
import xxhash

MAX_WHITESPACE_RUN = 128  # derived: longest run the Llama tokenizer folds into one token, so cutting there loses nothing
_RUN = re.compile(rf"(\s)\1{{{MAX_WHITESPACE_RUN},}}|\s{{{MAX_WHITESPACE_RUN + 1},}}")


def normalize(documents: pa.Table) -> tuple[pa.Table, int]:
    """Cut long whitespace runs, drop blank texts, name each document by its content.

    Returns: the table with an `id` column (xxh3-128 of the UTF-8 text, 32 hex digits), and the number of blank documents dropped.
    """
    texts = [_compact(text) for text in documents["text"].to_pylist()]
    kept = [index for index, text in enumerate(texts) if text and not text.isspace()]
    table = documents.take(pa.array(kept, pa.int64())) if len(kept) < len(texts) else documents
    texts = [texts[index] for index in kept]
    ids = [xxhash.xxh3_128_hexdigest(text.encode("utf-8")) for text in texts]
    columns = {
        "id": pa.array(ids, pa.string()),
        "text": pa.array(texts, pa.large_string()),
        "source": table["source"],
        "source_id": table["source_id"],
    }
    return pa.table(columns), documents.num_rows - len(kept)


def _compact(text: str) -> str:
    return _RUN.sub(lambda run: run.group()[:MAX_WHITESPACE_RUN], text)
