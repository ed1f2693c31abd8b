"""Training steps on virtual devices without a lab: a model that compiles in seconds, the same random batches on every mesh."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.optim.config import OptimConfig
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.parallel.mesh import build_mesh, in_turn
from forerun.train.config import RunConfig, TrainConfig
from forerun.train.state import init_state
from forerun.train.step import build_step, model_batch

FAST_TO_COMPILE: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}  # these steps are short, their programs are not
MODEL = ModelConfig(
    vocab_size=64,
    d_model=16,
    num_layers=1,
    num_heads=2,
    d_head=8,
    num_kv_heads=1,
    num_global_kv_heads=1,
    window=0,
    short_conv_taps=0,
    gated_norm_rank=0,
    head_gate=False,
    num_experts=8,
    top_k=2,
    d_expert=8,
    d_latent=8,
    num_shared_experts=1,
    d_shared=8,
)


def run_config(
    mesh: MeshConfig = MeshConfig(), transport: TransportConfig = TransportConfig(), *, num_steps: int = 50, **train: object
) -> RunConfig:
    return RunConfig(
        name="mesh",
        model=MODEL,
        optim=OptimConfig(muonh_learning_rate=0.02, adam_learning_rate=0.01),
        data=DataConfig(manifest="0" * 64),
        train=replace(TrainConfig(num_steps=num_steps, batch_size=16, seq_len=12), **train),  # type: ignore[arg-type]
        mesh=mesh,
        transport=transport,
    )


def random_batch(config: RunConfig, step: int) -> SimpleNamespace:
    """Text with something to learn: each token is its predecessor plus a small step; a tenth is padding."""
    rng = np.random.default_rng(step)
    shape = (config.train.batch_size, config.train.seq_len + 1)
    walk = (rng.integers(0, 64, (shape[0], 1)) + rng.integers(0, 3, shape).cumsum(1)) % 64
    segments = np.ones((shape[0], shape[1] - 1), np.int32)
    segments[::5, -4:] = 0
    return SimpleNamespace(
        tokens=walk[:, :-1].astype(np.int32),
        targets=walk[:, 1:].astype(np.int32),
        segment_ids=segments,
        positions=np.broadcast_to(np.arange(shape[1] - 1, dtype=np.int32), segments.shape),
        loss_mask=segments.astype(np.float32),
    )


def trained(config: RunConfig, num_steps: int):
    """State and the reports of the first steps."""
    mesh = build_mesh(config.mesh) if config.mesh.num_devices > 1 else None
    state, reports = init_state(config, mesh), []
    batches = [model_batch(random_batch(config, number), mesh) for number in range(num_steps)]  # type: ignore[arg-type]
    step = build_step(config, mesh).lower(state, batches[0]).compile(FAST_TO_COMPILE)
    for batch in batches:
        state, report = step(in_turn(mesh, state), batch)
        reports.append(report)
    return state, reports


def losses(reports) -> np.ndarray:
    return np.array([float(report.nats_sum) / float(report.num_tokens) for report in reports])
