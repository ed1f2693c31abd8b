"""Bars 12 and 13: what the engine costs over the plain loop; what an unchanged and a killed run cost; how much memory a run takes.

usage: python benchmarks/data/engine.py PART CORPUS [--rounds 3] [--more] [--sides loop,native] [--megabytes 100]

CORPUS is a Parquet file with the columns text and source, of which the first megabytes become one JSON-lines file a source; or a
folder that is a recipe of its own. Every run is a `forerun curate` process in a fresh lab. PART is one of

overhead   the first half, to `decontaminate`: wall of each side over that of the plain loop. The Ray side meets a running cluster.
           Forced workers are started anew by every stage; what that costs is the wall of the same stages over one document a
           source in four partitions, and the ratio is shown with it and apart from it.
identical  the whole recipe on every side, in partitions of 1 MB so that there are many tasks: every byte of the store is compared
rerun      the whole recipe, then again unchanged; CPU-seconds, and the most memory that the process tree held
kills      the whole recipe, killed with -9 in every step once; CPU-seconds lost, and the manifest's digest
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from side_by_side import keep, kept

RUN = "import sys; from forerun.cli.main import main; sys.exit(main())"
MOST_OVERHEAD, MOST_RERUN = 1.5, 0.02  # wall over the loop's; CPU over the first run's
MOST_PEAK_MIB = 4096
SIDES = {
    "loop": ["--runner", "loop"],
    "native": [],
    "native, 1 worker": ["--workers", "1", "--set", "engine.worker_bytes=0"],
    "native, 2 workers": ["--workers", "2", "--set", "engine.worker_bytes=0"],
    "ray, 2 workers": ["--runner", "ray", "--workers", "2"],
}
SMALL_PARTS = ["--set", "text.normalize.partition_bytes=1000000"]
STEPS = {  # what shows that a step is under way, below the lab
    "ingest": "work/ingest/**/raw-*.parquet",
    "normalize": "work/normalize/*/part-00001.parquet",
    "exact_dedup": "work/exact_dedup/*/part-00001.parquet",
    "band_keys": "work/band_keys/*/part-00001.parquet",
    "fuzzy_dedup": "work/fuzzy_dedup/*/decisions/batch-*.parquet",
    "decontaminate": "work/decontaminate/*/hits/part-00001.parquet",
    "passed": "work/passed/*/part-00001.parquet",
    "embed": "store/.build-*/vectors-000001.npy",
    "cluster": "store/.build-*/domains.npz",
    "quality": "store/.build-*/quality.npz",
    "tokenise": "store/.build-*/tokenizer.json",
    "store": "store/.build-*/store/*/*",
}


def write_sources(corpus: Path, folder: Path, num_bytes: int) -> None:
    """JSON lines by source, until enough."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {}
    for batch in pq.ParquetFile(corpus).iter_batches(batch_size=1024, columns=["text", "source"]):
        for row in batch.to_pylist():
            if num_bytes > 0:
                lines.setdefault(row["source"], []).append(json.dumps(row))
                num_bytes -= len(row["text"].encode())
    for source, records in lines.items():
        (folder / f"{source}.jsonl").write_text("\n".join(records) + "\n")


def one_document_each(folder: Path, out: Path) -> Path:
    """The same sources with their first document only."""
    fresh(out).mkdir(parents=True)
    for path in [*folder.glob("*.jsonl"), *folder.glob("*.jsonl.zst")]:
        with pa.input_stream(path, compression="detect") as lines:
            (out / path.name.removesuffix(".zst")).write_bytes(io.TextIOWrapper(lines, encoding="utf-8").readline().encode())
    return out


def in_four(folder: Path) -> list[str]:
    """Settings that cut a small folder in four partitions, so that as many workers are started as over a large one."""
    return ["--set", f"text.normalize.partition_bytes={sum(path.stat().st_size for path in folder.iterdir()) // 4}"]


class Run:
    """One `forerun curate` process, killed when a file appears below its lab: what it printed, and what it cost."""

    def __init__(self, folder: Path, lab: Path, *more: str, stage: str = "run", killed_by: str = "") -> None:
        command = [sys.executable, "-c", RUN, "curate", stage, str(folder), "--lab", str(lab), "--json", *more]
        out = lab.with_suffix(".json")
        out.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with out.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        watch = _MemoryWatch(process.pid)
        watch.start()
        ended = 0
        while killed_by and not ended and not any(lab.glob(killed_by)):
            time.sleep(0.002)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if killed_by and not ended:
            os.kill(process.pid, signal.SIGKILL)
        if not ended:
            _, status, usage = os.wait4(process.pid, 0)
        self.wall_s = time.monotonic() - started
        self.peak_mib = watch.stop()
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.killed = os.WIFSIGNALED(status)
        assert self.killed or status == 0, f"{command} failed"
        self.answer: dict[str, Any] = {} if self.killed else json.loads(out.read_text())


class _MemoryWatch(threading.Thread):
    """The most memory a process tree holds, pages shared between its processes counted once each."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._most, self._ended = pid, 0, threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self._most = max(self._most, sum(_resident(pid) for pid in _tree(self._pid)))

    def stop(self) -> float:
        self._ended.set()
        self.join()
        return self._most / 1024


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _resident(pid: int) -> int:
    """KiB, a shared page by the share of it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print("ready", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def cluster(wanted: bool) -> Iterator[list[str]]:
    """A Ray cluster of two cores on this machine, and how a run is told of it."""
    if not wanted:
        yield []
        return
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    address = next(line.split()[1] for line in process.stdout if line.startswith("ready"))
    try:
        yield ["--set", f"engine.ray_address={address}"]
    finally:
        process.stdin.close()
        process.wait()


def overhead(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    known = {row["bar"]: row for row in kept(options.results)} if options.more else {}
    small = one_document_each(folder, options.work / "few")
    rows = []
    walls = {side: list(known.get(f"engine: {side}", {}).get("wall_s", [])) for side in options.sides}
    starts = {side: list(known.get(f"engine: {side}", {}).get("start_s", [])) for side in options.sides}
    identities, megabytes = {}, 0.0
    with cluster("ray, 2 workers" in options.sides) as address:
        for _ in range(options.rounds):
            for side in options.sides:
                more = SIDES[side] + (address if "ray" in side else [])
                whole = Run(folder, fresh(options.work / "lab"), *more, stage="decontaminate")
                few = Run(small, fresh(options.work / "lab"), *more, *in_four(small), stage="decontaminate")
                walls[side].append(whole.wall_s)
                starts[side].append(few.wall_s)
                identities[side] = [step["identity"] for step in whole.answer["steps"]]
                megabytes = whole.answer["steps"][0]["report"]["num_bytes"] / 1e6
    loop, imports = statistics.median(walls["loop"]), statistics.median(starts["loop"])
    print(f"{'side':20} {'wall-s':>7} {'over loop':>9} {'start-s':>8} {'apart':>7}  same steps")
    for side in options.sides:
        wall, start = statistics.median(walls[side]), statistics.median(starts[side])
        apart = (wall - (start - imports)) / loop
        same = identities[side] == identities["loop"]
        print(f"{side:20} {wall:7.1f} {wall / loop:8.2f}x {start - imports:8.1f} {apart:6.2f}x  {same}", flush=True)
        rows.append(
            {"bar": f"engine: {side}", "wall_s": walls[side], "start_s": starts[side], "over_loop": wall / loop, "apart_over_loop": apart,
             "holds": same and apart <= MOST_OVERHEAD, "megabytes": round(megabytes)}
        )  # fmt: skip
    return rows


def identical(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    digests = {}
    with cluster("ray, 2 workers" in options.sides) as address:
        for side in options.sides:
            lab = fresh(options.work / "lab")
            run = Run(folder, lab, *SMALL_PARTS, *SIDES[side], *(address if "ray" in side else []))
            digests[side] = f"{run.answer['manifest'][:16]} {tree_digest(lab / 'store' / run.answer['manifest'])}"
            print(f"{side:20} manifest and store {digests[side]}", flush=True)
    holds = len(set(digests.values())) == 1
    return [{"bar": "identical store", "sides": digests, "holds": holds, "megabytes": options.megabytes}]


def rerun(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    lab = fresh(options.work / "lab")
    first = Run(folder, lab)
    again = [Run(folder, lab) for _ in range(options.rounds)]
    cpu_s = statistics.median(run.cpu_s for run in again)
    same = all(run.answer["manifest"] == first.answer["manifest"] for run in again)
    text = sum(cell["num_bytes"] for cell in first.answer["cells"]) / 1e6
    print(f"first run {first.cpu_s:.1f} cpu-s, {first.wall_s:.0f} s, peak {first.peak_mib:.0f} MiB; {text:.0f} MB of text in the store")
    print(f"unchanged {cpu_s:.2f} cpu-s, {cpu_s / first.cpu_s:.2%} of it; same manifest {same}")
    rows = [{"bar": f"unchanged run, {options.name}", "first_cpu_s": first.cpu_s, "cpu_s": [run.cpu_s for run in again],
             "share": cpu_s / first.cpu_s, "holds": same and cpu_s <= MOST_RERUN * first.cpu_s}]  # fmt: skip
    rows.append({"bar": f"peak memory, {options.name}", "peak_mib": first.peak_mib, "wall_s": first.wall_s, "stored_mb": text,
                 "holds": first.peak_mib <= MOST_PEAK_MIB})  # fmt: skip
    return rows


def kills(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    first = Run(folder, fresh(options.work / "lab"), *SMALL_PARTS, "--runner", "loop")
    nothing = Run(folder, options.work / "lab", *SMALL_PARTS, "--runner", "loop")  # its imports and hashes: what every start costs
    rows = []
    print(f"unbroken {first.cpu_s:.1f} cpu-s, of which {nothing.cpu_s:.1f} every start costs")
    for step, sign in STEPS.items():
        lab = fresh(options.work / "killed")
        broken = Run(folder, lab, *SMALL_PARTS, "--runner", "loop", killed_by=sign)
        after = Run(folder, lab, *SMALL_PARTS, "--runner", "loop")
        lost = (broken.cpu_s + after.cpu_s - first.cpu_s - nothing.cpu_s) / first.cpu_s
        same = after.answer["manifest"] == first.answer["manifest"]
        print(f"{step:14} {broken.cpu_s:6.1f} + {after.cpu_s:5.1f} cpu-s, lost {lost:6.1%} of the whole; same manifest {same}", flush=True)
        rows.append({"bar": f"killed in {step}", "killed": broken.killed, "before_cpu_s": broken.cpu_s, "after_cpu_s": after.cpu_s,
                     "lost": lost, "holds": same and broken.killed, "megabytes": options.megabytes})  # fmt: skip
    return rows


PARTS = {part.__name__: part for part in (overhead, identical, rerun, kills)}


def fresh(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    return path


def tree_digest(folder: Path) -> str:
    """Names and bytes of all files."""
    sha = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        sha.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--more", action="store_true", help="add the rounds of `overhead` to those kept: a long bench in parts")
    parser.add_argument("--sides", default="loop,native,native-1,native-2,ray", help="of overhead and identical")
    parser.add_argument("--work", type=Path, default=Path("benchmarks/.peers/out/engine"))
    parser.add_argument("--results", type=Path, default=Path(__file__).with_suffix(".results.json"))
    options = parser.parse_args()
    short = dict(zip(("loop", "native", "native-1", "native-2", "ray"), SIDES))
    options.sides = [short[side] for side in options.sides.split(",")]
    options.name = options.corpus.name
    folder = options.corpus
    if not folder.is_dir():
        folder = fresh(options.work / "in")
        write_sources(options.corpus, folder, options.megabytes * 1_000_000)
    Run(one_document_each(folder, options.work / "few"), fresh(options.work / "warm"), stage="decontaminate")  # compiles
    rows = PARTS[options.part](folder, options)
    keep(options.results, rows)
    return int(not all(row["holds"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
