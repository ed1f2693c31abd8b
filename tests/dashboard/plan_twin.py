"""Many designs, planned by Python, for whoever computes the same: the bundle in Node, or in the browser."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import msgspec

from forerun.base.config import decode
from forerun.base.errors import ConfigError
from forerun.dashboard.lab_files import Planner
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.plan.cost import plan
from forerun.plan.devices import DEVICES
from forerun.plan.page_inputs import page_inputs, plan_of, planned_of
from forerun.plan.presets import preset
from forerun.plan.run import PlannedRun

RTOL = 1e-9  # sums run in another order, in float64 on both sides


def planner() -> Planner:
    """What the command hands to the site."""
    return Planner(plan=plan_of, planned=planned_of, inputs=page_inputs())


def cases(count: int) -> list[dict[str, Any]]:
    """Random designs around every preset, with what `forerun plan` says of each: its JSON, or that it refuses."""
    rng = random.Random(7)
    names = list(page_inputs()["presets"])
    found = []
    while len(found) < count:
        base = preset(names[len(found) % len(names)])
        device, mfu = rng.choice(DEVICES), rng.uniform(0.05, 1)
        try:
            run = _varied(base, rng)
        except ConfigError:
            continue
        found.append({"run": msgspec.to_builtins(run), "device": device.name, "mfu": mfu, "plan": plan(run, device, mfu).as_json()})
    return json.loads(json.dumps(found))


def _varied(base, rng: random.Random):
    model = base.model
    changes: dict[str, Any] = {
        "num_layers": rng.randint(max(1, model.num_dense_layers + 1), 64),
        "d_model": model.d_head * rng.randint(2, 64),
        "num_shared_experts": rng.randint(1, 4),
        "d_shared": rng.choice((64, 512, 3072)),
        "qk_gain": rng.choice(("none", "per_head", "all_heads")),
        "head_gate": rng.random() < 0.5,
        "short_conv_taps": rng.choice((0, 4)),
        "gated_norm_rank": rng.choice((0, 16, 128)),
        "embedding_norm": rng.random() < 0.5,
        "tied_embeddings": rng.random() < 0.3,
        "latent_norm": rng.random() < 0.5,
        "global_every": rng.randint(1, 6),
        "window": rng.choice((0, 256, 1000, 2048)),
        "vocab_size": rng.choice((2048, 50_257, 128_256)),
        "balancing": rng.choice(("quantile", "auxiliary_loss", "sigmoid_bias")),
    }
    experts = 1
    if model.num_experts:
        changes["num_experts"] = rng.choice((8, 64, 384))
        changes["top_k"] = rng.randint(1, 8)
        changes["d_latent"] = changes["d_model"] if rng.random() < 0.3 else 2 * rng.randint(1, changes["d_model"] // 2)
        changes["d_expert"] = rng.choice((128, 1536, 4096))
        experts = rng.choice((1, 2, 8))
    mesh = MeshConfig(replica=rng.choice((1, 2, 11)), data=rng.choice((1, 3, 16)), expert=experts)
    kinds = ("all_gather", "fixed_cells", "pooled_wave", "ragged") + (("local",) if experts == 1 else ())
    microbatches = rng.choice((1, 4))
    return replace(
        base,
        model=replace(model, **changes),
        seq_len=rng.choice((1024, 2500, 4096)),
        batch_size=mesh.num_devices * microbatches * rng.randint(1, 8),
        num_steps=rng.randint(1, 400_000),
        num_microbatches=microbatches,
        compute_dtype=rng.choice(("float32", "bfloat16")),
        recipe=rng.choice(("muonh", "muon", "adamw")),
        remat=rng.choice(("none", "block", "moe")),
        mesh=mesh,
        transport=TransportConfig(
            kind=rng.choice(kinds),
            capacity_factor=rng.choice((0.0, 0.8, 1.15, 2.0)),
            sender_factor=rng.uniform(0.9, 1.5),
            num_waves=rng.randint(1, 5),
        ),
    )


MUTATIONS: tuple[tuple[str, Any], ...] = (
    *(("batch_size", size) for size in (1, 7, 4096, 4097)),
    *(("seq_len", length) for length in (0, 100, 2048, 8192)),
    *(("model.top_k", top_k) for top_k in (0, 1, 8, 4000)),
    *(("model.d_latent", width) for width in (3, 128, 10**6)),
    *(("model.num_experts", experts) for experts in (0, 6, 384)),
    *(("model.num_kv_heads", heads) for heads in (1, 3, 5)),
    *(("mesh.expert", shards) for shards in (1, 5, 64)),
    *(("model.num_layers", layers) for layers in (0, 1, 90)),
    *(("transport.capacity_factor", factor) for factor in (-0.5, 0.0)),
    ("num_steps", 0),
    ("num_microbatches", 3),
)


def doubtful(planned: list[dict[str, Any]]) -> list[tuple[dict[str, Any], bool]]:
    """Runs with one field changed, and whether Python refuses them."""
    found = []
    for index, (path, value) in enumerate(MUTATIONS * 2):
        run = json.loads(json.dumps(planned[index % len(planned)]["run"]))
        inner = run
        for key in path.split(".")[:-1]:
            inner = inner[key]
        inner[path.split(".")[-1]] = value
        try:
            decode(run, PlannedRun, where="case")
            refused = False
        except ConfigError:
            refused = True
        found.append((run, refused))
    return found


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where two plans differ; numbers may differ by `RTOL`."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = sorted(set(expected) | set(found))
        return [line for key in keys for line in differences(expected.get(key, "absent"), found.get(key, "absent"), f"{path}.{key}")]
    if isinstance(expected, int | float) and isinstance(found, int | float) and not isinstance(expected, bool):
        return [] if math.isclose(expected, found, rel_tol=RTOL, abs_tol=1e-12) else [f"{path}: {expected!r} and {found!r}"]
    return [] if expected == found else [f"{path}: {expected!r} and {found!r}"]
