"""Bars 12 and 13: what the engine costs over the plain loop, and what an unchanged or a killed run costs.

usage: python benchmarks/data/engine.py CORPUS.parquet [--megabytes 60] [--ray] [--rounds 3]

CORPUS has the columns text and source; its first documents become one JSON-lines file a source. Each run is `forerun curate
decontaminate`, the whole first half, in a process of its own; a first run compiles the kernels and is not counted. `loop` calls the
same functions one after another; `native` spreads them over Daft's workers. CPU-seconds are those of the process tree.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from side_by_side import keep

RUN = "import sys; from forerun.cli.main import main; sys.exit(main())"
MOST_OVERHEAD, MOST_RERUN = 1.5, 0.02  # wall over the loop's; CPU over the first run's
SIDES = {
    "loop": ["--runner", "loop"],
    "native, default": [],
    "native, 1 worker": ["--workers", "1", "--set", "engine.worker_bytes=0"],
    "native, 2 workers": ["--workers", "2", "--set", f"engine.worker_bytes={16 << 20}"],
}


def write_sources(corpus: Path, folder: Path, num_bytes: int) -> None:
    """JSON lines by source, until enough."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for batch in pq.ParquetFile(corpus).iter_batches(batch_size=1024, columns=["text", "source"]):
        for row in batch.to_pylist():
            lines.setdefault(row["source"], []).append(json.dumps(row))
            num_bytes -= len(row["text"].encode())
        if num_bytes <= 0:
            break
    for source, records in lines.items():
        (folder / f"{source}.jsonl").write_text("\n".join(records) + "\n")


def command(folder: Path, lab: Path, *more: str, stage: str = "decontaminate") -> list[str]:
    return [sys.executable, "-c", RUN, "curate", stage, str(folder), "--lab", str(lab), "--json", *more]


def run(arguments: list[str]) -> tuple[dict, float, float, float]:
    """What it printed, CPU-seconds, wall seconds, peak MiB of its largest process."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(out), cpu_s, time.monotonic() - started, after.ru_maxrss / 1024


def kill_in(folder: Path, lab: Path, step: str) -> float:
    """CPU-seconds spent until the first part of a step appeared and the run was killed."""
    process = subprocess.Popen(command(folder, lab, "--runner", "loop"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((lab / "work" / step).rglob("*.parquet")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="also on a local Ray, start of Ray apart")
    parser.add_argument("--work", type=Path, default=Path("benchmarks/.peers/out/engine"))
    options = parser.parse_args()
    folder = options.work / "in"
    shutil.rmtree(options.work, ignore_errors=True)
    write_sources(options.corpus, folder, options.megabytes * 1_000_000)
    sides = SIDES | ({"ray, 2 workers": ["--runner", "ray", "--workers", "2"]} if options.ray else {})
    run(command(folder, options.work / "warm", "--runner", "loop"))
    rows, answers, first_cpu = [], {}, 0.0
    spent: dict[str, list[tuple[float, float, float]]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, more in sides.items():
            lab = options.work / side.replace(" ", "-").replace(",", "")
            shutil.rmtree(lab, ignore_errors=True)
            answers[side], cpu_s, wall_s, peak = run(command(folder, lab, *more))
            spent[side].append((cpu_s, wall_s, peak))
    loop_wall = statistics.median(wall for _, wall, _ in spent["loop"])
    failed = False
    print(f"{'side':20} {'cpu-s':>7} {'wall-s':>7} {'wall/loop':>9} {'peak MiB':>9}  same steps as the loop")
    for side in sides:
        cpu_s, wall_s, peak = (statistics.median(values) for values in zip(*spent[side]))
        same = answers[side]["steps"] == answers["loop"]["steps"]
        print(f"{side:20} {cpu_s:7.1f} {wall_s:7.1f} {wall_s / loop_wall:8.2f}x {peak:9.0f}  {same}", flush=True)
        failed |= not same or ("ray" not in side and wall_s > MOST_OVERHEAD * loop_wall)
        rows.append(
            {"bar": f"engine: {side}", "cpu_s": cpu_s, "wall_s": wall_s, "over_loop": wall_s / loop_wall, "peak_mib": peak, "same": same}
        )
        first_cpu = cpu_s if side == "loop" else first_cpu
    again = statistics.median(run(command(folder, options.work / "loop", "--runner", "loop"))[1] for _ in range(options.rounds))
    print(f"unchanged run: {again:.2f} cpu-s, {again / first_cpu:.2%} of the first")
    rows.append({"bar": "unchanged run", "cpu_s": again, "share": again / first_cpu})
    for step in ("normalize", "band_keys", "decontaminate"):
        lab = options.work / f"killed-{step}"
        lost = kill_in(folder, lab, step)
        answer, cpu_s, _, _ = run(command(folder, lab, "--runner", "loop"))
        same = answer["steps"] == answers["loop"]["steps"]
        print(f"killed in {step}: {lost:.1f} + {cpu_s:.1f} cpu-s, {(lost + cpu_s) / first_cpu:.2f} of an unbroken run; same steps {same}")
        failed |= not same
        rows.append(
            {"bar": f"killed in {step}", "before_cpu_s": lost, "after_cpu_s": cpu_s, "share": (lost + cpu_s) / first_cpu, "same": same}
        )
    keep(Path(__file__).with_suffix(".results.json"), [row | {"megabytes": options.megabytes} for row in rows])
    return int(failed or again > MOST_RERUN * first_cpu)


if __name__ == "__main__":
    sys.exit(main())
