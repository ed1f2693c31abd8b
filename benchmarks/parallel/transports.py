"""Every transport at the same routing on 8 virtual CPU devices: bytes, rows, drops, time; and what a GB200 rack would see by the plan.

Run from the repository root: python benchmarks/parallel/transports.py [--write]

Times are processor seconds of one forward and backward pass of one layer, all devices together, over those of `local`; virtual
devices share the cores, so only ratios say anything, and only about work, not about wires. The last columns are the planner's.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import time
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
from forerun.plan.devices import device_named
from forerun.plan.network import expert_traffic

NUM_EXPERTS, TOP_K, WIDTH, D_EXPERT, TOKENS = 32, 4, 64, 64, 512
DOCUMENTS = 4  # per device: as few as long contexts leave
MESH = MeshConfig(expert=8)
REPEATS = 5
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


def measured(config: TransportConfig) -> dict[str, float]:
    """One transport under one setting."""
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

    _, traffic = jax.block_until_ready(both(rows, weight, experts))
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        jax.block_until_ready(both(rows, weight, experts))
        times.append(time.process_time() - began)
    load, dropped = np.asarray(traffic.load, np.int64), np.asarray(traffic.dropped, np.int64)
    useful = int(load.sum() - dropped.sum())
    return {
        "drop_fraction": float(dropped.sum() / load.sum()),
        "bytes_per_assignment": float(traffic.rows_sent) * WIDTH * 4 * 2 / float(load.sum()),
        "rows_executed_over_useful": float(traffic.rows_executed) / useful,
        "cpu_s": float(np.median(times)),
    }


@functools.cache
def planned_bytes(kind: str) -> float:
    """GB one GB200 of a 64-GPU rack would send per step for the 535B recipe, by the planner."""
    run = run_of(Question(preset="marin-hero"))
    traffic = expert_traffic(run, device_named("gb200"), kind)  # type: ignore[arg-type]
    return (traffic.inner + traffic.outer) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the transports on 8 virtual devices.")
    parser.add_argument("--write", action="store_true", help="keep the result beside this file")
    arguments = parser.parse_args()
    results = []
    for setting, base in SETTINGS.items():
        for kind in TRANSPORTS:
            results.append(
                {"setting": setting, "transport": kind, **measured(replace(base, kind=kind)), "gb200_gb_per_step": planned_bytes(kind)}
            )
        local = next(row for row in results if row["setting"] == setting and row["transport"] == "local")
        print(
            f"\n{setting}\n{'transport':12} {'drop':>8} {'bytes/assignment':>17} {'executed/useful':>16} {'time/local':>11} {'GB200 GB/step':>14}"
        )
        for row in results[-len(TRANSPORTS) :]:
            row["time_over_local"] = row["cpu_s"] / local["cpu_s"]
            print(
                f"{row['transport']:12} {row['drop_fraction']:8.4f} {row['bytes_per_assignment']:17.1f} "
                f"{row['rows_executed_over_useful']:16.2f} {row['time_over_local']:11.2f} {row['gb200_gb_per_step']:14.1f}",
                flush=True,
            )
    if arguments.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        kept = {"date": time.strftime("%Y-%m-%d"), "commit": commit, "jax": jax.__version__, "results": results}
        (HERE / "transports.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
