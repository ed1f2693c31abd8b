"""Bar 7: text to token ids in a cold process, imports and all, against tokenizers `encode_batch_fast`; ids equal over the whole set.

usage: python benchmarks/data/encode.py CORPUS.parquet [--rounds 3]

Both sides read the corpus from Parquet, load a byte-level BPE of 32,000 entries trained on 12 MB of it, and keep the ids in memory.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from side_by_side import Bar, facts_of, main

PEERS = {"tokenizers": ["tokenizers==0.23.3", "pyarrow", "numpy"]}
BATCH = 500  # assumed: texts of a call of the peer; larger ones are not faster


def prepare(options, out: Path) -> None:
    """Train the tokenizer, once."""
    if (out / "tokenizer.json").exists():
        return
    from forerun.curate.tokenise import TokeniseConfig, train_tokenizer

    texts = pq.read_table(options.corpus, columns=["text"])["text"].to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))
    config = TokeniseConfig(vocab_size=32_000, sample_bytes=12_000_000)
    (out / "tokenizer.json").write_text(train_tokenizer((texts[index] for index in order), config))


def ours(options, out: Path) -> dict:
    from forerun.curate.tokenise import Encoder

    column = pq.read_table(options.corpus, columns=["text"])["text"]
    encoder = Encoder((out / "tokenizer.json").read_text(), column[:128].to_pylist())
    ids = np.asarray(encoder.encode(column).values)
    facts = {"cpu_s": time.process_time(), "num_tokens": len(ids), "engine": encoder.engine}
    np.save(out / "ours.npy", ids)
    return facts


def tokenizers(options, out: Path) -> dict:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    texts, parts = pq.read_table(options.corpus, columns=["text"])["text"].to_pylist(), []
    for start in range(0, len(texts), BATCH):
        parts += [
            np.array(row.ids, np.int32) for row in tokenizer.encode_batch_fast(texts[start : start + BATCH], add_special_tokens=False)
        ]
    ids = np.concatenate(parts)
    facts = {"cpu_s": time.process_time(), "num_tokens": len(ids)}
    np.save(out / "tokenizers.npy", ids)
    return facts


def same_ids(out: Path) -> tuple[bool, str]:
    same = np.array_equal(np.load(out / "ours.npy"), np.load(out / "tokenizers.npy"))
    return same, f"ids identical over {facts_of(out, 'tokenizers')['num_tokens']:,} tokens: {same}"


BARS = [Bar(name="encode", ours="ours", peer="tokenizers", least=20, holds=same_ids)]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, tokenizers)}, PEERS, prepare=prepare))
