"""A run of the full recipe small enough to compile in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from forerun.base.lab import Lab
from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.optim.config import OptimConfig
from forerun.train.config import CheckpointConfig, EvalConfig, RunConfig, TrainConfig
from token_stores import VOCAB_SIZE, make

MODEL = ModelConfig(
    vocab_size=VOCAB_SIZE,
    d_model=32,
    num_layers=2,
    num_heads=2,
    d_head=16,
    num_kv_heads=1,
    num_global_kv_heads=1,
    window=16,
    num_experts=4,
    top_k=2,
    d_expert=16,
    d_latent=16,
    d_shared=16,
    gated_norm_rank=4,
)


def lab_with_store(folder: Path) -> tuple[Lab, str]:
    """A lab holding one store of two domains, and the store's digest."""
    lab = Lab(folder)
    return lab, make(lab, 160, longest=80).digest


def tiny_run(manifest: str, *, num_steps: int = 20, **train: object) -> RunConfig:
    """Twenty steps of 8 x 32 tokens, evaluated and saved every quarter."""
    return RunConfig(
        name="tiny",
        model=MODEL,
        optim=OptimConfig(muonh_learning_rate=0.02, adam_learning_rate=0.01, beta2=0.95),
        data=DataConfig(manifest=manifest, epoch_cap=64.0),
        train=replace(TrainConfig(num_steps=num_steps, batch_size=8, seq_len=32), **train),  # type: ignore[arg-type]
        eval=EvalConfig(every_fraction=0.25, num_sequences=8),
        checkpoint=CheckpointConfig(every_fraction=0.25),
    )
