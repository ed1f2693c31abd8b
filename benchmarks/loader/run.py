"""The loader against grain on the same tokens: sequences a second and the time to start at a far step.

usage: python benchmarks/loader/run.py [--tokens 50000000] [--seq-len 256] [--batch-size 8] [--peers DIR]

Both sides give shuffled batches of the same shape from the same token file, in one process, CPU-seconds, rounds alternating,
median of five. grain reads an in-memory array of rows (its fastest source) with its global shuffle and batch; ours also packs
documents, mixes cells and makes targets, segments and positions, which grain's side does not. Seek is the time from a new
loader to the batch of a step nine tenths into the run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

ROUNDS = 5
NUM_BATCHES = 400
BARS = {"throughput": 10.0, "seek_ms": 5.0}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/.peers/loader"))
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    if options.worker:
        print(grain_side(Path(options.worker), options.seq_len, options.batch_size))
        return 0
    python = options.peers / "bin" / "python"
    if not python.exists():
        venv.create(options.peers, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", "grain", "numpy"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.npy"
        lab, digest = store(Path(folder), options.tokens, tokens)
        ours, theirs, seeks = [], [], []
        for _ in range(ROUNDS):
            rate, seek = our_side(lab, digest, options.seq_len, options.batch_size, options.tokens)
            ours.append(rate)
            seeks.append(seek * 1e3)
            arguments = ["--worker", str(tokens), "--seq-len", str(options.seq_len), "--batch-size", str(options.batch_size)]
            theirs.append(float(subprocess.run([str(python), __file__, *arguments], capture_output=True, text=True, check=True).stdout))
    ratio, seek = statistics.median(ours) / statistics.median(theirs), statistics.median(seeks)
    print(
        f"ours {statistics.median(ours):.0f}, grain {statistics.median(theirs):.0f} sequences per cpu-s: {ratio:.1f}x (bar {BARS['throughput']:.0f}x)"
    )
    print(f"seek {seek:.2f} ms (bar {BARS['seek_ms']:.0f} ms)")
    return int(ratio < BARS["throughput"] or seek > BARS["seek_ms"])


def store(folder: Path, num_tokens: int, tokens: Path):
    """A store of random documents in ten cells, and the same number of tokens as rows for grain."""
    import pyarrow as pa

    from forerun.base.lab import Lab
    from forerun.curate.store import StoreSpec, StoreWriter
    from forerun.loader.manifest import Source

    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 2000, num_tokens // 1050)
    ids = rng.integers(1, 4096, int(lengths.sum()), dtype=np.int32)
    np.save(tokens, ids.astype(np.uint16))
    count = len(lengths)
    table = pa.table(
        {
            "id": [f"{value:032x}" for value in rng.permutation(count)],
            "source": ["made"] * count,
            "source_id": [""] * count,
            "domain": [("stars", "cooking")[index % 2] for index in range(count)],
            "quality": pa.array(rng.integers(0, 5, count), pa.int8()),
            "held_out": pa.array(np.zeros(count, bool)),
            "num_bytes": pa.array(lengths),
            "tokens": pa.LargeListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(lengths)])), pa.array(ids)),
        }
    )
    spec = StoreSpec(
        name="bench",
        tokenizer_json="{}",
        vocab_size=4096,
        end_of_document=0,
        sources=(Source(name="made", licence="CC0", revision="1", num_documents_in=0, num_documents=0, num_tokens=0),),
    )
    lab = Lab(folder)
    writer = StoreWriter(lab, spec, lab.store / ".work")
    writer.add(0, table)
    return lab, writer.finish().digest


def our_side(lab, digest: str, seq_len: int, batch_size: int, num_tokens: int) -> tuple[float, float]:
    from forerun.loader.batches import Batches
    from forerun.loader.config import DataConfig
    from forerun.loader.store import open_store

    num_steps = num_tokens // (seq_len * batch_size)
    data = DataConfig(manifest=digest)
    started = time.perf_counter()
    batches = Batches(open_store(lab, digest), data, num_steps=num_steps, batch_size=batch_size, seq_len=seq_len)
    batches.batch(num_steps * 9 // 10)
    seek = time.perf_counter() - started
    begin = time.process_time()
    for step in range(NUM_BATCHES):
        batches.batch(step)
    return NUM_BATCHES * batch_size / (time.process_time() - begin), seek


def grain_side(tokens: Path, seq_len: int, batch_size: int) -> float:
    import grain

    ids = np.load(tokens, mmap_mode="r")
    rows = len(ids) // (seq_len + 1)

    class Rows:
        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: int) -> np.ndarray:
            return np.asarray(ids[index * (seq_len + 1) : (index + 1) * (seq_len + 1)], np.int32)

    dataset = grain.MapDataset.source(Rows()).shuffle(seed=0).map(lambda row: {"tokens": row[:-1], "targets": row[1:]}).batch(batch_size)
    dataset[0]
    begin = time.process_time()
    for index in range(NUM_BATCHES):
        dataset[index]
    return NUM_BATCHES * batch_size / (time.process_time() - begin)


if __name__ == "__main__":
    sys.exit(main())
