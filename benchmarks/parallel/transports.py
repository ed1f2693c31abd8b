"""Every transport at the same routing on 8 virtual CPU devices: bytes, rows, drops, time; and what a GB200 rack would see by the plan.

Run from the repository root: python benchmarks/parallel/transports.py [--write] [--setting NAME ...]

Times are of one forward and backward pass of one expert layer, wall clock, all transports of a setting taking turns, median of the
rounds' ratios to `local`. Virtual devices share the machine's cores, so the ratios speak of work, not of wires; on CPUs `ragged` gathers
everyone's rows. The rack's table is the planner's: the 535B recipe on 64 GPUs. Executables are kept in `benchmarks/.peers/compiled`, so that a
second run measures at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import jax.numpy as jnp
import numpy as np

from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.parallel.contract import ExpertParams
from forerun.parallel.mesh import build_mesh
from forerun.parallel.transports import TRANSPORTS, bind
from forerun.plan.ask import Question, run_of
from forerun.plan.cost import plan
from forerun.plan.devices import device_named

NUM_EXPERTS, TOP_K, WIDTH, D_EXPERT, TOKENS = 32, 4, 64, 64, 512
DOCUMENTS = 4  # per device: as few as long contexts leave
MESH = MeshConfig(expert=8)
NUM_ROUNDS = 30
HERE = Path(__file__).parent
SETTINGS = {
    "dropless": TransportConfig(),
    "capacity 1.15 per expert": TransportConfig(capacity_factor=1.15),
    "capacity 1.15 per shard": TransportConfig(capacity_factor=1.15, receiver="shard"),
    "capacity 1.15 per expert, survivors renormalised": TransportConfig(capacity_factor=1.15, renormalize_survivors=True),
    "the original's two stages": TransportConfig(capacity_factor=1.15, drop_rule="sender_receiver"),
}


def routing() -> tuple[np.ndarray, ...]:
    """Tokens whose documents want the same experts: an even wish, plus one of each document's own."""
    rng = np.random.default_rng(0)
    num_tokens = TOKENS * MESH.num_devices
    document = np.repeat(np.arange(DOCUMENTS * MESH.num_devices), TOKENS // DOCUMENTS)
    logits = rng.gumbel(size=(num_tokens, NUM_EXPERTS)) + rng.normal(size=(document.max() + 1, NUM_EXPERTS))[document]
    index = np.argsort(-logits, 1)[:, :TOP_K].astype(np.int32)
    rows = rng.normal(size=(num_tokens, WIDTH)).astype(np.float32)
    weight = rng.random((num_tokens, TOP_K)).astype(np.float32)
    return rows, index, weight / weight.sum(1, keepdims=True), np.ones(num_tokens, bool)


def prepared(config: TransportConfig) -> tuple[Callable[[], object], dict[str, float]]:
    """One transport under one setting: a call of its compiled layer, and what it counted."""
    mesh, (rows, index, weight, valid) = build_mesh(MESH), routing()
    rng = np.random.default_rng(1)
    shapes = ((NUM_EXPERTS, WIDTH, D_EXPERT), (NUM_EXPERTS, WIDTH, D_EXPERT), (NUM_EXPERTS, D_EXPERT, WIDTH))
    experts = ExpertParams(*(jnp.float32(rng.normal(size=shape) / WIDTH**0.5) for shape in shapes))

    @jax.jit
    def both(rows, weight, experts):
        def scalar(rows, weight, experts):
            out, traffic = bind(config, mesh, 1)(rows, jnp.asarray(index), weight, jnp.asarray(valid), experts)
            return (out * out).sum(), traffic

        return jax.grad(scalar, (0, 1, 2), has_aux=True)(rows, weight, experts)

    def call() -> object:
        return jax.block_until_ready(both(rows, weight, experts))

    _, traffic = both(rows, weight, experts)
    load, dropped = np.asarray(traffic.load, np.int64), np.asarray(traffic.dropped, np.int64)
    return call, {
        "drop_fraction": float(dropped.sum() / load.sum()),
        "bytes_per_assignment": float(traffic.rows_sent) * WIDTH * 4 * 2 / float(load.sum()),
        "rows_executed_over_useful": float(traffic.rows_executed) / int(load.sum() - dropped.sum()),
    }


def compared(setting: str) -> list[dict[str, object]]:
    """All transports under one setting, taking turns."""
    layers = {kind: prepared(replace(SETTINGS[setting], kind=kind)) for kind in TRANSPORTS}
    seconds: dict[str, list[float]] = {kind: [] for kind in layers}
    for number in range(1 + NUM_ROUNDS):
        for kind, (call, _) in layers.items():
            began = time.perf_counter()
            call()
            if number:
                seconds[kind].append(time.perf_counter() - began)
    ratios = {kind: np.array(times) / np.array(seconds["local"]) for kind, times in seconds.items()}
    return [
        {
            "setting": setting,
            "transport": kind,
            **counted,
            "layer_s": float(np.median(seconds[kind])),
            "time_over_local": float(np.median(ratios[kind])),
            "quartiles": np.quantile(ratios[kind], (0.25, 0.75)).tolist(),
        }
        for kind, (_, counted) in layers.items()
    ]


def rack() -> list[dict[str, object]]:
    """What one GB200 of a 64-GPU rack would see per step of the 535B recipe, by the planner."""
    device, rows = device_named("gb200"), []
    for kind in TRANSPORTS:
        if kind != "local":  # 384 experts of 48 layers fit no GPU
            eleven = run_of(Question(preset="marin-hero", transport=kind))
            told = plan(replace(eleven, mesh=MeshConfig(expert=64), batch_size=eleven.batch_size // 11), device)
            rows.append(
                {
                    "transport": kind,
                    "gb_sent": (told.expert_traffic.inner + told.expert_traffic.outer) / 1e9,
                    "wire_s": told.expert_traffic.inner / device.inner_bandwidth,
                    "compute_bound_s": told.bounds.compute,
                    "step_time_s": told.step_time_s,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the transports on 8 virtual devices.")
    parser.add_argument("--write", action="store_true", help="keep the result beside this file")
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(HERE.parent / ".peers" / "compiled"))
    results = []
    for setting in arguments.setting or SETTINGS:
        print(f"\n{setting}\n{'transport':12} {'drop':>8} {'bytes/assignment':>17} {'executed/useful':>16} {'time/local':>11}  quartiles")
        for row in compared(setting):
            results.append(row)
            low, high = row["quartiles"]  # pyright: ignore[reportGeneralTypeIssues]  a list of two
            print(
                f"{row['transport']:12} {row['drop_fraction']:8.4f} {row['bytes_per_assignment']:17.1f} "
                f"{row['rows_executed_over_useful']:16.2f} {row['time_over_local']:11.2f}  {low:.2f} to {high:.2f}",
                flush=True,
            )
    print(f"\none GB200 of 64, the 535B recipe\n{'transport':12} {'GB sent':>9} {'wire s':>8} {'compute bound s':>16} {'step s':>8}")
    for row in rack():
        print(f"{row['transport']:12} {row['gb_sent']:9.0f} {row['wire_s']:8.2f} {row['compute_bound_s']:16.2f} {row['step_time_s']:8.2f}")
    if arguments.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        kept = {"date": time.strftime("%Y-%m-%d"), "commit": commit, "jax": jax.__version__, "results": results, "gb200": rack()}
        (HERE / "transports.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
