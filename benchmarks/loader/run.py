"""The loader against grain on the same tokens: sequences a second and the time to a far step.

usage: python benchmarks/loader/run.py [--tokens 50000000] [--seq-len 1024] [--batch-size 32] [--peers DIR]

Both sides give shuffled batches of one shape from memory-mapped uint16 tokens; CPU-seconds of the process, sides alternating,
median of five. `same work`: grain mixes the same ten cells and makes targets, segments, positions and mask for each row, as its users
write it (MapDataset.mix, map, batch), read through its iterator. `rows only`: grain reads shuffled rows by index and makes
nothing else, while ours still does all its work. Seek is the time from an open store to the batch of a step nine tenths into the run.
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
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/.peers/loader"))
    parser.add_argument("--worker", default="")
    options = parser.parse_args()
    if options.worker:
        work, _, tokens = options.worker.partition(":")
        print(grain_side(work, Path(tokens), options.seq_len, options.batch_size))
        return 0
    python = options.peers / "bin" / "python"
    if not python.exists():
        venv.create(options.peers, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", "grain", "numpy"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.npy"
        lab, digest = store(Path(folder), options.tokens, tokens)
        ours, seeks = [], []
        theirs: dict[str, list[float]] = {"same": [], "rows": []}
        for _ in range(ROUNDS):
            rate, seek = our_side(lab, digest, options.seq_len, options.batch_size, options.tokens)
            ours.append(rate)
            seeks.append(seek * 1e3)
            for work, rates in theirs.items():
                arguments = ["--worker", f"{work}:{tokens}", "--seq-len", str(options.seq_len), "--batch-size", str(options.batch_size)]
                done = subprocess.run([str(python), __file__, *arguments], capture_output=True, text=True, check=True)
                rates.append(float(done.stdout))
    ours_rate, seek = statistics.median(ours), statistics.median(seeks)
    ratios = {work: ours_rate / statistics.median(rates) for work, rates in theirs.items()}
    print(f"sequences of {options.seq_len} per cpu-s: ours {ours_rate:.0f}")
    print(f"  grain, same work  {statistics.median(theirs['same']):8.0f}  {ratios['same']:.1f}x (bar {BARS['throughput']:.0f}x)")
    print(f"  grain, rows only  {statistics.median(theirs['rows']):8.0f}  {ratios['rows']:.1f}x (no bar: it does a fraction of the work)")
    print(f"seek {seek:.2f} ms (bar {BARS['seek_ms']:.0f} ms)")
    return int(ratios["same"] < BARS["throughput"] or seek > BARS["seek_ms"])


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
    opened = open_store(lab, digest)
    started = time.perf_counter()
    batches = Batches(opened, data, num_steps=num_steps, batch_size=batch_size, seq_len=seq_len)
    batches.batch(num_steps * 9 // 10)
    seek = time.perf_counter() - started
    begin = time.process_time()
    for step in range(NUM_BATCHES):
        batches.batch(step)
    return NUM_BATCHES * batch_size / (time.process_time() - begin), seek


def grain_side(work: str, tokens: Path, seq_len: int, batch_size: int) -> float:
    import grain

    ids = np.load(tokens, mmap_mode="r")
    rows = len(ids) // (seq_len + 1)

    class Rows:
        def __init__(self, first: int, last: int) -> None:
            self.first, self.last = first, last

        def __len__(self) -> int:
            return self.last - self.first

        def __getitem__(self, index: int) -> np.ndarray:
            start = (self.first + index) * (seq_len + 1)
            return np.asarray(ids[start : start + seq_len + 1], np.int32)

    def finished(row: np.ndarray) -> dict[str, np.ndarray]:
        starts = row[:-1] == 0
        starts[0] = True
        column = np.arange(seq_len, dtype=np.int32)
        return {
            "tokens": row[:-1],
            "targets": row[1:],
            "segment_ids": np.cumsum(starts, dtype=np.int32),
            "positions": column - np.maximum.accumulate(np.where(starts, column, 0)),
            "loss_mask": np.ones(seq_len, np.float32),
        }

    if work == "rows":
        dataset = grain.MapDataset.source(Rows(0, rows)).shuffle(seed=0).batch(batch_size)
        batches = (dataset[index] for index in range(10**9))
    else:
        cells = [
            grain.MapDataset.source(Rows(rows * cell // 10, rows * (cell + 1) // 10)).shuffle(seed=cell).repeat() for cell in range(10)
        ]
        batches = iter(grain.MapDataset.mix(cells, weights=[0.1] * 10).map(finished).batch(batch_size).to_iter_dataset())
    next(batches)
    begin = time.process_time()
    for _ in range(NUM_BATCHES):
        next(batches)
    return NUM_BATCHES * batch_size / (time.process_time() - begin)


if __name__ == "__main__":
    sys.exit(main())
