"""The models that are measured: the one peers are compared on, and the demo's own sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict, cast

import numpy as np

from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.model.presets import QWEN3_30B_A3B
from forerun.optim.config import OptimConfig
from forerun.parallel.config import TransportConfig
from forerun.train.config import RunConfig, TrainConfig
from forerun.train.step import ModelBatch

LEARNING_RATE = 3e-4


class Size(TypedDict):
    """Of a Qwen3-MoE, in our names; both sides build their model from it."""

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    d_head: int
    num_kv_heads: int
    num_experts: int
    top_k: int
    d_expert: int
    batch_size: int
    seq_len: int


PEER = Size(
    vocab_size=8192, d_model=256, num_layers=4, num_heads=4, d_head=64, num_kv_heads=4, num_experts=16, top_k=2, d_expert=512,
    batch_size=8, seq_len=256,
)  # fmt: skip
"""30.4M parameters: what the bars are stated for."""


def demo_size(run: RunConfig) -> Size:
    """The widths of one of the demo's runs; Qwen3-MoE has none of the other parts of the demo's block."""
    names = ("vocab_size", "d_model", "num_layers", "num_heads", "d_head", "num_kv_heads", "num_experts", "top_k", "d_expert")
    own = {name: getattr(run.model, name) for name in names}
    return cast(Size, own | {"batch_size": run.train.batch_size, "seq_len": run.train.seq_len})


def peer_model(size: Size) -> ModelConfig:
    """Qwen3-MoE's block at that size, as all recorded ratios were measured: without the gains on its query and key norms."""
    own = {name: value for name, value in size.items() if name not in ("batch_size", "seq_len")}
    return replace(QWEN3_30B_A3B.model, **own, qk_gain="none", num_global_kv_heads=size["num_kv_heads"], d_latent=size["d_model"])  # pyright: ignore[reportArgumentType]  the names are fields


def peer_run(recipe: str = "adamw", capacity_factor: float = 1.25, size: Size = PEER) -> RunConfig:
    """The run peers are compared on: float32, gradients clipped to 1; 8 x 256 tokens a step unless `size` says otherwise."""
    return RunConfig(
        name="peer",
        model=peer_model(size),
        optim=OptimConfig(recipe=recipe, muonh_learning_rate=0.01, adam_learning_rate=LEARNING_RATE, clip_grad_norm=1.0, eps=1e-8),  # type: ignore[arg-type]
        data=DataConfig(manifest=""),
        train=TrainConfig(num_steps=1000, batch_size=size["batch_size"], seq_len=size["seq_len"]),
        transport=TransportConfig(capacity_factor=capacity_factor),
    )


def batch_of(run: RunConfig, seed: int = 0) -> ModelBatch:
    """One document a row, uniform tokens: the same work as any text."""
    shape = (run.train.batch_size, run.train.seq_len)
    ids = np.random.default_rng(seed).integers(1, run.model.vocab_size, (shape[0], shape[1] + 1)).astype(np.int32)
    positions = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy()
    return ModelBatch(ids[:, :-1].copy(), ids[:, 1:].copy(), np.ones(shape, np.int32), positions, np.ones(shape, np.float32))
