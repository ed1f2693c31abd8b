"""A new experiment folder: the fields to fill in, a config to edit, a report to write."""

from __future__ import annotations

import re
from pathlib import Path

from forerun.base.errors import RegistryError
from forerun.base.files import write_atomic
from forerun.base.lab import Lab

EXPERIMENT = """schema = 1
title = "{slug}"
owner = ""
kind = "confirmatory"            # or "exploratory"
hypothesis = ""                  # one sentence that can be wrong
falsified_by = ""                # what would show it wrong
metric = "eval/macro_loss_nats"
metric_definition = "dropless mean over held-out domains, nats per token"
baseline = ""                    # what the outcome is compared with, and its value
success = "final(eval/macro_loss_nats) <= 3.0"
stop = ["final(loss_nats) > 12"]
compute_budget_flops = 1e15      # `forerun plan` prints it
already_seen = ""                # earlier runs, pilots, peeks; "nothing" when nothing

[prediction]
point = 3.0
low50 = 2.95
high50 = 3.05
low90 = 2.9
high90 = 3.1
forecast = ""                    # file in ledger/forecasts/ the numbers come from
"""

CONFIG = '''"""The run of experiment {name}: `register` freezes CONFIG into config.json."""

from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.optim.config import OptimConfig
from forerun.train.config import RunConfig, TrainConfig

CONFIG = RunConfig(
    name="{slug}",
    model=ModelConfig(
        vocab_size=4096, d_model=64, num_layers=4, num_heads=4, d_head=16, num_kv_heads=1, num_global_kv_heads=1, window=128,
        num_experts=16, top_k=2, d_expert=32, d_latent=32, d_shared=32, gated_norm_rank=8,
    ),
    optim=OptimConfig(muonh_learning_rate=0.02, adam_learning_rate=0.005),
    data=DataConfig(manifest="{manifest}"),
    train=TrainConfig(num_steps=400, batch_size=16, seq_len=256),
)
'''

REPORT = """# {name}

What was promised: see `experiment.toml` and the ledger. Fill in after `forerun verdict {name}`.

## Result

## What it means, what it does not

## Next action
"""


def create(lab: Lab, slug: str) -> Path:
    """Make `experiments/NNN-slug/`. Raises: RegistryError for a slug that is no short name, or one in use."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
        raise RegistryError(f"slug must be lower-case words joined by '-', got {slug!r}", hint="for example top-k-4")
    taken = sorted(folder.name for folder in lab.experiments.glob("[0-9][0-9][0-9]-*"))
    if any(name[4:] == slug for name in taken):
        raise RegistryError(f"an experiment {slug!r} exists", hint="choose another slug")
    number = int(taken[-1][:3]) + 1 if taken else 1
    folder = lab.experiments / f"{number:03d}-{slug}"
    manifests = sorted(lab.manifests.glob("*.json"), key=lambda path: path.stat().st_mtime)
    fields = {"slug": slug, "name": folder.name, "manifest": manifests[-1].stem if manifests else ""}
    for file, text in (("experiment.toml", EXPERIMENT), ("config.py", CONFIG), ("report.md", REPORT)):
        write_atomic(folder / file, text.format(**fields).encode())
    return folder
