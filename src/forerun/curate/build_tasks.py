"""The tasks of the second half: a partition's vectors, and its documents made ready for the store.

Each reads its models from files, once a process, and writes files that are whole or absent; the engine sees nothing else.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import decode
from forerun.base.errors import DataError
from forerun.base.files import write_atomic, write_json
from forerun.curate.cluster.domains import DomainModel
from forerun.curate.cluster.files import load_domains
from forerun.curate.embed.encoders import EmbedConfig, open_encoder
from forerun.curate.embed.encoders import Encoder as TextEncoder
from forerun.curate.embed.quantize import from_int8, to_int8
from forerun.curate.embed.tfidf import load_tfidf
from forerun.curate.quality.files import load_quality
from forerun.curate.quality.model import QualityModel
from forerun.curate.spill import spill
from forerun.curate.store import held_out_mask
from forerun.curate.tokenise import Encoder


def embed_part(partition: str, out: str, lost: str, fitted: str, config: dict[str, Any]) -> None:
    """Int8 vectors of a partition in `out`, and in `lost` what int8 cost.

    Args:
        fitted: file of an encoder that was fitted on the corpus; empty when the config alone says which it is.
    """
    encoder = _text_encoder(json.dumps(config, sort_keys=True), fitted)
    documents = pq.read_table(partition, columns=["id", "text"])
    vectors = encoder.encode(documents["text"])
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):  # they would become some other document's direction without a word
        raise DataError(
            f"the encoder gives {len(broken)} documents vectors that are not finite, such as {documents['id'][int(broken[0])]}",
            hint="use a model in float32, or another encoder",
        )
    codes, error = to_int8(vectors)
    write_json(Path(lost), error)
    buffer = io.BytesIO()
    np.save(buffer, codes)
    write_atomic(Path(out), buffer.getvalue())


def store_part(partition: str, vectors: str, run: str, models: str, engine: str, vocab_size: int, held_out_fraction: float) -> None:
    """A partition's documents with tokens, cell and scores, spilled for the store in the folder `run`.

    Args:
        models: folder with `domains.npz`, `quality.npz` and `tokenizer.json`.
        engine: of the tokenizer, as the check before decided.
    """
    domains, quality, encoder = _models(models, engine)
    codes = np.load(vectors)
    spill(Path(run), _ready(pq.read_table(partition), from_int8(codes), domains, quality, encoder, held_out_fraction), vocab_size)


@lru_cache(maxsize=1)
def _text_encoder(config: str, fitted: str) -> TextEncoder:
    if fitted:
        return load_tfidf(Path(fitted))
    return open_encoder(decode(json.loads(config), EmbedConfig, where="task"))


@lru_cache(maxsize=1)
def _models(folder: str, engine: str) -> tuple[DomainModel, QualityModel, Encoder]:
    path = Path(folder)
    encoder = Encoder((path / "tokenizer.json").read_text(encoding="utf-8"), engine=engine)
    return load_domains(path / "domains.npz"), load_quality(path / "quality.npz"), encoder


def _ready(
    documents: pa.Table, vectors: np.ndarray, domains: DomainModel, quality: QualityModel, encoder: Encoder, held_out_fraction: float
) -> pa.Table:
    """The columns a store needs, joined by position; the row counts must agree or the partition changed under us."""
    if documents.num_rows != len(vectors):
        raise DataError(
            f"a partition holds {documents.num_rows} documents but {len(vectors)} vectors",
            hint="its file changed during the build; run again",
        )
    labels, cosine = domains.assign(vectors)
    scores = quality.score(documents["text"], vectors)
    columns = {
        "domain": pa.array(domains.slugs(labels), pa.string()),
        "domain_cosine": pa.array(cosine, pa.float32()),
        "quality": pa.array(scores.bucket, pa.int8()),
        "quality_score": pa.array(scores.score, pa.float32()),
        "content_type": pa.array(scores.type_names, pa.string()),
        "held_out": held_out_mask(documents["id"], held_out_fraction),
        "num_bytes": pc.binary_length(documents["text"].cast(pa.large_binary())),
        "tokens": encoder.encode(documents["text"]),
    }
    table = documents.drop_columns(["text"])
    for column, values in columns.items():
        table = table.append_column(column, values)
    return table
