"""Two sides of a benchmark in turn, each in a process of its own: CPU-seconds of the process tree, median of the rounds.

A bench file names its sides as functions `name(options, out) -> facts` and calls `main`. A side that needs packages of its own
says so in `PEERS`: {side: packages}; they go into an environment made for them alone, under --peers. A side measures the work
after imports, loading and compilation with `timed`. Ratios of less than 2 move with the machine's load and are no findings.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"), "1")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Our side against a peer."""

    name: str
    ours: str
    peer: str
    least: float
    """Ratio to reach."""
    rounds: int | None = None
    """Fewer than asked for when a side takes minutes."""
    holds: Callable[[Path], tuple[bool, str]]
    """What must be true of the outputs in the same run, and a sentence about it."""


def cpu_s() -> float:
    """CPU-seconds of this process and of the children it has waited for."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


@contextmanager
def timed(facts: dict[str, Any]) -> Iterator[None]:
    """Adds the block's CPU-seconds and the process's peak memory to the facts."""
    started, wall = cpu_s(), time.monotonic()
    yield
    facts["cpu_s"], facts["wall_s"] = cpu_s() - started, time.monotonic() - wall
    facts["peak_mib"] = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def main(
    file: str,
    bars: Sequence[Bar],
    sides: Mapping[str, Callable[[argparse.Namespace, Path], dict[str, Any]]],
    peers: Mapping[str, Sequence[str]],
    *,
    prepare: Callable[[argparse.Namespace, Path], None] | None = None,
) -> int:
    """Run the bars asked for, print a table, keep the figures beside the bench; 1 when a bar or a condition fails."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("corpus", type=Path, help="Parquet with the columns text and source")
    parser.add_argument("--bars", default=",".join(bar.name for bar in bars))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--more", action="store_true", help="add the rounds to those kept from earlier runs: a long bench in parts")
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/.peers"))
    parser.add_argument("--out", type=Path, default=None, help="folder for what the sides hand over")
    parser.add_argument("--results", type=Path, default=None, help="JSON file the figures are kept in")
    parser.add_argument("--side", default="")
    options = parser.parse_args()
    name = Path(file).stem
    out = options.out or options.peers / "out" / name
    out.mkdir(parents=True, exist_ok=True)
    if options.side:
        facts = sides[options.side](options, out)
        (out / f"{options.side}.json").write_text(json.dumps(facts))
        return 0
    if prepare is not None:
        prepare(options, out)
    print(f"{'bar':26} {'ours cpu-s':>11} {'peer cpu-s':>11} {'ratio':>8} {'bar':>6}  holds")
    results = options.results or Path(file).with_suffix(".results.json")
    known = {row["bar"]: row for row in kept(results)} if options.more else {}
    rows, failed = [], False
    for bar in bars:
        if bar.name not in options.bars.split(","):
            continue
        earlier = known.get(bar.name, {"ours_cpu_s": [], "peer_cpu_s": []})
        spent: dict[str, list[float]] = {bar.ours: [*earlier["ours_cpu_s"]], bar.peer: [*earlier["peer_cpu_s"]]}
        for _ in range(min(options.rounds, bar.rounds or options.rounds)):
            for side, times in spent.items():
                python = peer_python(options.peers / side, peers[side]) if side in peers else Path(sys.executable)
                command = [str(python), file, str(options.corpus), "--side", side, "--out", str(out), "--peers", str(options.peers)]
                subprocess.run(command, check=True, env=os.environ | ONE_THREAD)
                times.append(facts_of(out, side)["cpu_s"])
        ours, peer = (statistics.median(spent[side]) for side in (bar.ours, bar.peer))
        holds, said = bar.holds(out)
        print(f"{bar.name:26} {ours:11.2f} {peer:11.2f} {peer / ours:7.1f}x {bar.least:5.0f}x  {said}", flush=True)
        failed |= peer / ours < bar.least or not holds
        rows.append(
            {"bar": bar.name, "ours_cpu_s": spent[bar.ours], "peer_cpu_s": spent[bar.peer], "ratio": peer / ours, "least": bar.least,
             "holds": bool(holds), "said": said, "ours": facts_of(out, bar.ours), "peer": facts_of(out, bar.peer)}
        )  # fmt: skip
    keep(results, rows)
    return int(failed)


def peer_python(folder: Path, packages: Sequence[str]) -> Path:
    """Interpreter of a peer's own environment, made on first use."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--prefer-binary", *packages], check=True)
    return python


def facts_of(out: Path, side: str) -> dict[str, Any]:
    """What a side said about its last run."""
    return json.loads((out / f"{side}.json").read_text())


def keep(path: Path, rows: list[dict[str, Any]]) -> None:
    """Figures with date and commit; bars not run this time keep their earlier ones."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    stamp = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), "commit": commit}
    fresh = {row["bar"] for row in rows}
    path.write_text(json.dumps([row for row in kept(path) if row["bar"] not in fresh] + [row | stamp for row in rows], indent=1) + "\n")


def kept(path: Path) -> list[dict[str, Any]]:
    """Rows kept by earlier runs."""
    return json.loads(path.read_text()) if path.exists() else []
