"""Training measured against what it has to beat, as a table of ratios.

    make bench-train                  installs the peer (torch, transformers) in an environment of its own, measures everything
    python benchmarks/train/run.py --only layer,muonh --peers DIR

CPU seconds of the process and medians of alternating rounds, so that other work on the machine counts little. The newest results are
kept beside this file in `results.json`, with date and commit. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from provenance import provenance

HERE = Path(__file__).parent
PEER_PACKAGES = ("torch==2.13.0", "transformers==5.24.0", "numpy")
ROUNDS, STEPS_PER_ROUND, STEPS_PER_SMALL_ROUND = 5, 2, 10
BARS = {  # name: (bar, whether larger is better)
    "step: tokens/s over HF grouped_mm": (1.1, True),
    "step: tokens/s over HF eager": (1.7, True),
    "step, dropless: tokens/s over HF grouped_mm": (1.1, True),
    "layer: E16 top-2 over no routing": (1.2, False),
    "layer: E64 top-8 over no routing": (1.4, False),
    "step: compiled FLOPs over expected": (1.10, False),
    "save: blocked over np.savez": (0.1, False),
    "restore: checked over plain orbax": (1.3, False),
    "first step: warm cache over cold": (0.25, False),
    "MuonH on 25M, gram form, over fwd + bwd": (0.5, False),
}
PARTS = ("step", "demo_step", "layer", "checkpoint", "cache", "muonh", "demo")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to measure, of {', '.join(PARTS)}")
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/.peers/train"), help="environment with torch and transformers")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _worker(options.worker)
    chosen = options.only.split(",")
    results_path = HERE / "results.json"
    results: dict[str, Any] = json.loads(results_path.read_text())["parts"] if results_path.exists() else {}
    for part in PARTS:
        if part in chosen:
            results[part] = provenance() | _measured(part, options.peers)
            results_path.write_text(json.dumps({"schema": 1, "parts": results}, indent=1) + "\n")
    return _print(results)


def _measured(part: str, peers: Path) -> dict[str, Any]:
    if part == "step":
        return _step(peers)
    if part == "demo_step":
        return _demo_step(peers)
    return _cache() if part == "cache" else _in_process(part)


def _print(results: dict[str, Any]) -> int:
    measured = dict(_named(results))
    missed = 0
    print(f"{'ratio':42} {'measured':>9} {'bar':>8}")
    for name, (bar, larger) in BARS.items():
        value = measured.get(name)
        if value is None:
            continue
        good = value >= bar if larger else value <= bar
        missed += not good
        print(f"{name:42} {value:9.3f} {'>=' if larger else '<='} {bar:<5g} {'' if good else 'MISSED'}")
    for name, row in results.get("demo_step", {}).get("sizes", {}).items():
        print(f"{name + ': tokens/s over HF grouped_mm':42} {row['grouped_mm'] / row['ours']:9.3f}")
    for name, row in results.get("demo", {}).get("sizes", {}).items():
        print(f"{name:42} {row['cpu_ms']:9.0f} ms CPU a step, {row['tokens_per_cpu_second']:,.0f} tokens per CPU second")
    return 1 if missed else 0


def _named(results: dict[str, Any]) -> Any:
    step, layer, muonh = results.get("step", {}), results.get("layer", {}), results.get("muonh", {})
    if step:
        yield "step: tokens/s over HF grouped_mm", step["grouped_mm"] / step["ours"]
        yield "step: tokens/s over HF eager", step["eager"] / step["ours"]
        yield "step, dropless: tokens/s over HF grouped_mm", step["grouped_mm"] / step["ours, dropless"]
        yield "step: compiled FLOPs over expected", step["flops_over_expected"]
    for name in ("E16 top-2", "E64 top-8"):
        if name in layer:
            yield f"layer: {name} over no routing", layer[name]
    if "checkpoint" in results:
        yield "save: blocked over np.savez", results["checkpoint"]["blocked_over_savez"]
        yield "restore: checked over plain orbax", results["checkpoint"]["checked_restore_over_plain"]
    if "cache" in results:
        yield "first step: warm cache over cold", results["cache"]["warm_over_cold"]
    if muonh:
        yield "MuonH on 25M, gram form, over fwd + bwd", min(muonh["gram"], muonh["gram_bfloat16"])


def _step(peers: Path) -> dict[str, Any]:
    """The model that the bars are stated for."""
    from shapes import PEER

    peer_python = str(_peer_environment(peers))
    middle, first = _rounds(
        {
            "ours": [sys.executable, "ours.py", "1.25"],
            "ours, dropless": [sys.executable, "ours.py", "0"],
            "grouped_mm": [peer_python, "peer.py", "grouped_mm"],
            "eager": [peer_python, "peer.py", "eager"],
        },
        json.dumps(PEER),
        STEPS_PER_ROUND,
    )
    return middle | {"flops_over_expected": first["ours"]["flops_over_expected"], "peer": first["eager"]["versions"]}


def _demo_step(peers: Path) -> dict[str, Any]:
    """The same block at the widths of the demo's smallest and largest run, dropless as the demo is."""
    from shapes import demo_size

    peer_python, runs = str(_peer_environment(peers)), _demo_runs()
    commands = {"ours": [sys.executable, "ours.py", "0"], "grouped_mm": [peer_python, "peer.py", "grouped_mm"]}
    sizes = {run.name: _rounds(commands, json.dumps(demo_size(run)), STEPS_PER_SMALL_ROUND)[0] for run in (runs[0], runs[-1])}
    return {"sizes": sizes}


def _rounds(commands: dict[str, list[str]], size: str, num_steps: int) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """CPU seconds a step of every side, from alternating rounds of processes that stay alive; and what each said at the start."""
    sides = {name: _Side([*command, size]) for name, command in commands.items()}
    try:
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, side in sides.items():
                seconds[name].append(side.ask(f"ROUND {num_steps}")["cpu_s"] / num_steps)
    finally:
        for side in sides.values():
            side.close()
    return {name: statistics.median(values) for name, values in seconds.items()}, {name: side.first for name, side in sides.items()}


class _Side:
    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE)
        self.first = self._answer()

    def ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def _peer_environment(place: Path) -> Path:
    python = place / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PEER_PACKAGES)} in {place}", file=sys.stderr)
        venv.create(place, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", *PEER_PACKAGES], check=True)
    return python.absolute()


def _in_process(part: str) -> dict[str, Any]:
    import parts

    if part == "demo":
        return {"sizes": {run.name: parts.small_step(run) for run in _demo_runs()}}
    return {"layer": parts.moe_layer, "checkpoint": parts.checkpoints, "muonh": parts.muonh}[part]()


def _cache() -> dict[str, Any]:
    """First steps of three processes: without a cache, and twice more with what the first one left."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "run.py"), "--worker", folder]
        runs = [float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE).stdout) for _ in range(3)]
    return {"cold_s": runs[0], "warm_s": min(runs[1:]), "warm_over_cold": min(runs[1:]) / runs[0]}


def _worker(cache: str) -> int:
    import jax

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    import parts

    print(parts.first_step(_demo_runs()[0]))
    return 0


def _demo_runs() -> list[Any]:
    from forerun.demo.settings import FULL

    runs = [*FULL.rungs("0" * 64), FULL.big("0" * 64)]
    return list({run.model.d_model: run for run in runs}.values())


if __name__ == "__main__":
    sys.exit(main())
