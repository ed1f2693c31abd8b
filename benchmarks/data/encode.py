"""Bar 7: text to token ids in a cold process, imports and all, against tokenizers `encode_batch_fast`; ids equal over the whole set.

usage: python benchmarks/data/encode.py CORPUS.parquet [--rounds 3]

Both sides read the corpus from Parquet as a stream, load a byte-level BPE of 32,000 entries trained on 12 MB of it, and keep the ids in
memory.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from side_by_side import Bar, facts_of, main

PEERS = {"tokenizers": ["tokenizers==0.23.3", "pyarrow", "numpy"]}
BATCH, PEER_BATCH = 2048, 500  # measured: texts of a call, ours the same within noise from 512 to 8,192; the peer's are not faster larger


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

    columns = (batch["text"] for batch in pq.ParquetFile(options.corpus).iter_batches(BATCH, columns=["text"]))
    first = next(columns)
    encoder = Encoder((out / "tokenizer.json").read_text(), first[:128].to_pylist())
    parts = [np.asarray(encoder.encode(column).values) for column in itertools.chain([first], columns)]
    facts = {"cpu_s": time.process_time(), "num_tokens": sum(map(len, parts)), "engine": encoder.engine}
    np.save(out / "ours.npy", np.concatenate(parts))
    return facts


def tokenizers(options, out: Path) -> dict:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    parts = []
    for batch in pq.ParquetFile(options.corpus).iter_batches(PEER_BATCH, columns=["text"]):
        rows = tokenizer.encode_batch_fast(batch["text"].to_pylist(), add_special_tokens=False)
        parts += [np.array(row.ids, np.int32) for row in rows]
    facts = {"cpu_s": time.process_time(), "num_tokens": sum(map(len, parts))}
    np.save(out / "tokenizers.npy", np.concatenate(parts))
    return facts


def same_ids(out: Path) -> tuple[bool, str]:
    same = np.array_equal(np.load(out / "ours.npy"), np.load(out / "tokenizers.npy"))
    return same, f"ids identical over {facts_of(out, 'tokenizers')['num_tokens']:,} tokens: {same}"


BARS = [Bar(name="encode", ours="ours", peer="tokenizers", least=20, holds=same_ids)]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, tokenizers)}, PEERS, prepare=prepare))
