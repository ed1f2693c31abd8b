"""How fast a journal takes rows, how small they end, and how fast one metric comes back as buckets.

Run: python benchmarks/record/journal.py [STEPS] [DIR]      prints one JSON line; needs about 200 MB for 1M steps
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from forerun.record.buckets import read_buckets
from forerun.record.journal import SEAL_ROWS, Journal
from forerun.record.reader import open_run
from forerun.record.run import start_run

NUM_METRICS = 50


def main(num_steps: int, folder: Path) -> None:
    """Write, count bytes, read back."""
    run_dir = folder / "bench-run"
    shutil.rmtree(run_dir, ignore_errors=True)
    start_run(run_dir, num_steps=num_steps)
    names = [f"train/m{index}" for index in range(NUM_METRICS)]
    spent = spent_cpu = 0.0
    journal = Journal(run_dir)
    for begin in range(0, num_steps, SEAL_ROWS):
        size = min(SEAL_ROWS, num_steps - begin)
        rng = np.random.default_rng(begin)
        noise = (3 + rng.normal(0, 0.1, (size, NUM_METRICS)) + np.exp(-(begin + np.arange(size))[:, None] / 5000)).astype(np.float32)
        rows = [dict(zip(names, row)) for row in noise.astype(float).tolist()]
        wall, cpu = time.perf_counter(), time.process_time()
        for offset, row in enumerate(rows):
            journal.log(begin + offset, row)
        spent, spent_cpu = spent + time.perf_counter() - wall, spent_cpu + time.process_time() - cpu
    wall, cpu = time.perf_counter(), time.process_time()
    journal.close()
    spent, spent_cpu = spent + time.perf_counter() - wall, spent_cpu + time.process_time() - cpu
    values = num_steps * NUM_METRICS
    sizes = {
        kind: sum(path.stat().st_size for path in run_dir.rglob(pattern))
        for kind, pattern in (("segments", "seg-????????????.parquet"), ("pyramids", "*.pyramid.parquet"))
    }
    answer = {
        "steps": num_steps,
        "values_per_s": round(values / spent),
        "values_per_cpu_s": round(values / spent_cpu),
        "bytes_per_value": round(sizes["segments"] / values, 2),
        "pyramid_bytes_per_value": round(sizes["pyramids"] / values, 2),
    }
    for name, read in (
        ("open_s", lambda: open_run(run_dir)),
        ("buckets_s", lambda: read_buckets(open_run(run_dir), "train/m3")),
        ("series_s", lambda: open_run(run_dir).series("train/m3")),
    ):
        times = []
        for _ in range(3):
            begin_s = time.perf_counter()
            read()
            times.append(time.perf_counter() - begin_s)
        answer[name] = round(sorted(times)[1], 4)
    print(json.dumps(answer))
    shutil.rmtree(run_dir)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.gettempdir()))
