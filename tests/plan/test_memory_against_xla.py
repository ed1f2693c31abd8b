"""Planned bytes against XLA's own analysis of the compiled gradient on CPU, at shapes the constants were not measured on."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from forerun.kernels.compiling import compiler_options
from forerun.model import transformer
from forerun.model.config import ModelConfig
from forerun.parallel.config import TransportConfig
from forerun.parallel.local import run_experts
from forerun.plan.memory import memory
from forerun.plan.run import PlannedRun

BASE = ModelConfig(
    vocab_size=1000,
    d_model=192,
    num_layers=4,
    num_heads=6,
    d_head=32,
    num_kv_heads=3,
    num_global_kv_heads=1,
    window=128,
    num_experts=12,
    top_k=3,
    d_expert=80,
    d_latent=96,
    d_shared=96,
    gated_norm_rank=24,
)


class Shapes(NamedTuple):
    """A batch of nothing but shapes."""

    tokens: jax.ShapeDtypeStruct
    targets: jax.ShapeDtypeStruct
    segment_ids: jax.ShapeDtypeStruct
    positions: jax.ShapeDtypeStruct
    loss_mask: jax.ShapeDtypeStruct


def bytes_of_xla(run: PlannedRun) -> int:
    params = jax.eval_shape(functools.partial(transformer.init_params, run.model), jax.random.key(0))
    state = jax.eval_shape(lambda: transformer.init_router_state(run.model))
    whole = jax.ShapeDtypeStruct((run.batch_size, run.seq_len), jnp.int32)
    batch = Shapes(whole, whole, whole, whole, jax.ShapeDtypeStruct(whole.shape, jnp.float32))
    experts = functools.partial(run_experts, config=run.transport)
    gradient = jax.value_and_grad(functools.partial(transformer.loss, config=run.model, experts=experts, remat=run.remat), has_aux=True)
    used = jax.jit(gradient, compiler_options=compiler_options()).lower(params, state, batch).compile().memory_analysis()
    return used.temp_size_in_bytes + used.output_size_in_bytes + used.argument_size_in_bytes


RUNS = {
    "windows and latent": {},
    "remat block": {"remat": "block"},
    "remat moe": {"remat": "moe"},
    "long context": {"model": replace(BASE, num_layers=2), "seq_len": 1024, "batch_size": 1},
    "plain siblings' block": {"model": replace(BASE, window=0, d_latent=192, num_shared_experts=1, short_conv_taps=0, gated_norm_rank=0)},
}


@pytest.mark.parametrize(
    "name", ["windows and latent", "remat block", *(pytest.param(name, marks=pytest.mark.slow) for name in list(RUNS)[2:])]
)
def test_planned_memory_is_within_15_percent_of_xla(name):
    settings = {"model": BASE, "seq_len": 384, "batch_size": 4, "remat": "none"} | RUNS[name]
    run = PlannedRun(name="small", num_steps=1, compute_dtype="float32", transport=TransportConfig(capacity_factor=1.25), **settings)
    planned = memory(run)
    assert planned.weights + planned.gradients + planned.activations[run.remat] == pytest.approx(bytes_of_xla(run), rel=0.15)
