"""The models that are measured: the one peers are compared on, and the demo's own sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.model.presets import QWEN3_30B_A3B
from forerun.optim.config import OptimConfig
from forerun.parallel.config import TransportConfig
from forerun.train.config import RunConfig, TrainConfig
from forerun.train.step import ModelBatch

LEARNING_RATE = 3e-4


def peer_model() -> ModelConfig:
    """Qwen3-MoE's block at 4 layers, d 256, 16 experts top-2: 30.4M parameters."""
    return replace(
        QWEN3_30B_A3B.model,
        vocab_size=8192, d_model=256, num_layers=4, num_heads=4, d_head=64, num_kv_heads=4, num_global_kv_heads=4,
        num_experts=16, top_k=2, d_expert=512, d_latent=256,
    )  # fmt: skip


def peer_run(recipe: str = "adamw", capacity_factor: float = 1.25) -> RunConfig:
    """The run peers are compared on: 8 x 256 tokens a step, float32, gradients clipped to 1."""
    return RunConfig(
        name="peer",
        model=peer_model(),
        optim=OptimConfig(recipe=recipe, muonh_learning_rate=0.01, adam_learning_rate=LEARNING_RATE, clip_grad_norm=1.0, eps=1e-8),  # type: ignore[arg-type]
        data=DataConfig(manifest=""),
        train=TrainConfig(num_steps=1000, batch_size=8, seq_len=256),
        transport=TransportConfig(capacity_factor=capacity_factor),
    )


def batch_of(run: RunConfig, seed: int = 0) -> ModelBatch:
    """One document a row, uniform tokens: the same work as any text."""
    shape = (run.train.batch_size, run.train.seq_len)
    ids = np.random.default_rng(seed).integers(1, run.model.vocab_size, (shape[0], shape[1] + 1)).astype(np.int32)
    positions = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy()
    return ModelBatch(ids[:, :-1].copy(), ids[:, 1:].copy(), np.ones(shape, np.int32), positions, np.ones(shape, np.float32))
