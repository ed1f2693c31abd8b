"""Losses of short runs as recorded, by kind of run. After a change that is meant:

PYTHONPATH=tests:tests/train python tests/train/golden_losses.py
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from tiny_runs import lab_with_store, tiny_run

from forerun.base.lab import Lab
from forerun.parallel.config import TransportConfig
from forerun.record.reader import open_run
from forerun.train.config import RunConfig
from forerun.train.loop import train

RECORDED = Path(__file__).with_name("golden_losses.json")
NUM_STEPS = 12


def variants(manifest: str) -> dict[str, RunConfig]:
    """Twelve steps of each."""
    base = tiny_run(manifest, num_steps=NUM_STEPS)
    base = replace(base, eval=replace(base.eval, every_fraction=1.0), checkpoint=replace(base.checkpoint, every_fraction=0.0))
    return {
        "recipe": base,
        "muon": replace(base, optim=replace(base.optim, recipe="muon")),
        "adamw": replace(base, optim=replace(base.optim, recipe="adamw", clip_grad_norm=1.0, weight_decay={"routed": 0.1})),
        "gram": replace(base, optim=replace(base.optim, orthogonalization="gram")),
        "scan": replace(base, train=replace(base.train, layer_loop="scan", remat="block")),
        "bfloat16": replace(base, train=replace(base.train, compute_dtype="bfloat16", num_microbatches=2)),
        "drops": replace(base, transport=TransportConfig(capacity_factor=1.0)),
    }


def losses_of(config: RunConfig, lab: Lab, run_id: str) -> dict[str, list[float]]:
    """Training loss and gradient norm of every step, and the evaluation at the end."""
    result = train(config, lab, run_id=run_id, registration=None, quiet=True)
    record = open_run(lab.run(run_id))
    return {
        "loss_nats": [float(value) for value in record.series("loss_nats").value],
        "grad_norm": [float(value) for value in record.series("grad_norm").value],
        "eval/macro_loss_nats": [result.evaluation["eval/macro_loss_nats"]],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        lab, manifest = lab_with_store(Path(folder))
        recorded = {name: losses_of(config, lab, name) for name, config in variants(manifest).items()}
    RECORDED.write_text(json.dumps({"schema": 1, "jax": version("jax"), "runs": recorded}, indent=1) + "\n")
