"""Bar 8: static vectors of whole documents against model2vec's own encode, with one table on both sides.

usage: python benchmarks/data/embed.py CORPUS.parquet [--rounds 3]

The table is wordllama's, which the project embeds with by default. Loading and compiling are not counted.
"""

from __future__ import annotations

import importlib.resources
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from side_by_side import Bar, main, timed

PEERS = {"model2vec": ["model2vec==0.10.0", "pyarrow", "numpy"]}


def prepare(options, out: Path) -> None:
    """Hand the table over as plain files, once."""
    if (out / "table.npy").exists():
        return
    from safetensors.numpy import load_file

    folder = Path(str(importlib.resources.files("wordllama")))
    (out / "tokenizer.json").write_bytes((folder / "tokenizers" / "l2_supercat_tokenizer_config.json").read_bytes())
    (weights,) = (folder / "weights").glob("*256*.safetensors")
    np.save(out / "table.npy", next(iter(load_file(weights).values())).astype(np.float32))


def ours(options, out: Path) -> dict:
    from forerun.curate.embed.static import wordllama_encoder

    column, encoder, facts = pq.read_table(options.corpus, columns=["text"])["text"], wordllama_encoder(), {}
    encoder.encode(pa.array(["compile once"]))
    with timed(facts):
        vectors = encoder.encode(column)
    np.save(out / "ours.npy", vectors)
    return facts


def model2vec(options, out: Path) -> dict:
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    model = StaticModel(np.load(out / "table.npy"), Tokenizer.from_file(str(out / "tokenizer.json")), normalize=True)
    texts, facts = pq.read_table(options.corpus, columns=["text"])["text"].to_pylist(), {}
    with timed(facts):
        vectors = model.encode(texts, max_length=None, use_multiprocessing=False)
    np.save(out / "model2vec.npy", vectors)
    return facts


def same_directions(out: Path) -> tuple[bool, str]:
    mine, theirs = np.load(out / "ours.npy"), np.load(out / "model2vec.npy").astype(np.float32)
    filled = np.linalg.norm(theirs, axis=1) > 0
    cosine = (mine * theirs).sum(axis=1)[filled] / np.linalg.norm(theirs[filled], axis=1)
    return bool(cosine.mean() >= 0.99), f"mean cosine {cosine.mean():.4f}, 1% below {np.quantile(cosine, 0.01):.3f}"


BARS = [Bar(name="embed", ours="ours", peer="model2vec", least=5, holds=same_directions)]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, model2vec)}, PEERS, prepare=prepare))
