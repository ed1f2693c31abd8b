"""Every transport on meshes of 1, 2, 4 and 8 virtual devices against plain NumPy loops in float64."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_experts import kept, make_problem, output_and_gradients

from forerun.base.errors import ConfigError
from forerun.parallel import ragged
from forerun.parallel.config import MeshConfig, TransportConfig, check_header_ids
from forerun.parallel.contract import ExpertParams
from forerun.parallel.mesh import build_mesh
from forerun.parallel.transports import TRANSPORTS, bind

MESHES = {
    1: MeshConfig(),
    2: MeshConfig(expert=2),
    4: MeshConfig(data=2, expert=2),
    8: MeshConfig(replica=2, expert=4),
}
TIGHT = TransportConfig(capacity_factor=0.7, sender_factor=0.9, num_waves=2)
RULES = {
    "dropless": TransportConfig(sender_factor=0.5, num_waves=2),
    "per_expert": TIGHT,
    "per_shard": replace(TIGHT, receiver="shard", renormalize_survivors=True),
    "two_stages": replace(TIGHT, drop_rule="sender_receiver"),
}


@functools.cache
def compiled(config: TransportConfig, mesh_config: MeshConfig):
    """Output, traffic and all gradients of `(out * cotangent).sum()` in one call."""
    mesh = build_mesh(mesh_config) if mesh_config.num_devices > 1 else None

    def both(rows, index, weight, valid, experts, cotangent, step):
        def scalar(rows, weight, experts):
            out, traffic = bind(config, mesh, step)(rows, index, weight, valid, experts)
            return (out * cotangent).sum(), (out, traffic)

        gradients, (out, traffic) = jax.grad(scalar, (0, 1, 2), has_aux=True)(rows, weight, experts)
        return out, traffic, gradients

    return jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})  # compiles in two thirds of the time


def check(problem, config, mesh_config, step, tolerance=2e-5):
    """Compare one call with the twin; tolerances are a few roundings of float32 sums over a hundred terms of size one."""
    cotangent = np.random.default_rng(1).normal(size=problem.rows.shape).astype(np.float32)
    out, traffic, (d_rows, d_weight, d_experts) = compiled(config, mesh_config)(
        problem.rows, problem.expert_index, problem.weight, problem.valid, ExpertParams(*problem.experts), cotangent, jnp.int32(step)
    )
    groups = mesh_config.replica * mesh_config.data
    keep = kept(problem, config, num_groups=groups, shards=mesh_config.expert, step=step)
    plain = output_and_gradients(problem, keep, cotangent, renormalize=config.renormalize_survivors)
    for ours, theirs in zip((out, d_rows, d_weight, *d_experts), (*plain[:3], *plain[3]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=tolerance * max(1.0, np.abs(theirs).max()))
    num_experts = problem.experts[0].shape[0]
    lost = problem.valid[:, None] & ~keep
    np.testing.assert_array_equal(traffic.load, np.bincount(problem.expert_index[problem.valid].reshape(-1), minlength=num_experts))
    np.testing.assert_array_equal(traffic.dropped, np.bincount(problem.expert_index[lost], minlength=num_experts))
    np.testing.assert_array_equal(traffic.dropped_of_row, lost.sum(1))
    return traffic


# Every transport with two rules, every rule and mesh with at least two transports; the rest of the grid is slow.
PAIRS = {
    (2, "local", "per_expert"), (8, "local", "two_stages"),
    (4, "all_gather", "dropless"), (8, "all_gather", "per_shard"),
    (4, "fixed_cells", "per_expert"), (1, "fixed_cells", "two_stages"),
    (8, "pooled_wave", "dropless"), (2, "pooled_wave", "two_stages"), (4, "pooled_wave", "per_shard"),
    (2, "ragged", "dropless"), (8, "ragged", "per_expert"),
}  # fmt: skip
GRID = [pytest.param(*case, marks=() if case in PAIRS else pytest.mark.slow) for case in itertools.product(MESHES, TRANSPORTS, RULES)]


@pytest.mark.parametrize(("num_devices", "kind", "rule"), GRID)
def test_output_gradients_and_drops_equal_plain_loops(num_devices, kind, rule):
    config, mesh = replace(RULES[rule], kind=kind), MESHES[num_devices]
    for case, step in (("plain", 0), ("hot", 3), ("idle", 7)):
        problem = make_problem(num_devices, 12, 8, 3, kind=case, seed=step)
        traffic = check(problem, config, mesh, step)
        assert float(traffic.rows_executed) >= int(traffic.load.sum() - traffic.dropped.sum())


@pytest.mark.parametrize(
    ("kind", "num_devices", "num_tokens", "num_experts", "top_k"),
    [
        pytest.param("pooled_wave", 2, 7, 6, 5, id="odd sizes"),
        pytest.param("ragged", 2, 5, 4, 4, id="every expert chosen: K + 1 > E"),
        pytest.param("fixed_cells", 2, 1, 6, 1, id="one token a device", marks=pytest.mark.slow),
        pytest.param("all_gather", 2, 7, 6, 5, id="odd sizes gathered", marks=pytest.mark.slow),
    ],
)
def test_odd_sizes_equal_plain_loops(kind, num_devices, num_tokens, num_experts, top_k):
    config = TransportConfig(kind=kind, capacity_factor=0.6, sender_factor=0.7, num_waves=2)
    for case in ("plain", "idle"):
        check(make_problem(num_devices, num_tokens, num_experts, top_k, kind=case), config, MESHES[num_devices], 5)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_on_accelerators_rows_travel_by_the_ragged_exchange_and_nothing_is_gathered(monkeypatch, platform):
    monkeypatch.setattr(ragged, "NATIVE_PLATFORMS", ("cpu",))  # what an accelerator's own process says of itself; lowered, not run
    problem = make_problem(2, 12, 8, 3)

    def both(rows, weight, experts):
        def scalar(*arguments):
            rows, weight, experts = arguments
            run = bind(replace(TIGHT, kind="ragged"), build_mesh(MESHES[2]))
            return run(rows, problem.expert_index, weight, problem.valid, ExpertParams(*experts))[0].sum()  # type: ignore[arg-type]

        return jax.grad(scalar, (0, 1, 2))(rows, weight, experts)

    traced = jax.jit(both).trace(problem.rows, problem.weight, problem.experts)
    program = traced.lower(lowering_platforms=(platform,)).as_text()
    assert program.count("ragged_all_to_all") >= 4  # there and back, forward and backward
    gathers = [line for line in program.splitlines() if "stablehlo.all_gather" in line]
    assert gathers and all("xi32>" in line for line in gathers)  # counts and offsets alone


def test_more_experts_a_shard_than_bfloat16_ids_can_name_are_refused():
    check_header_ids(255, "bfloat16")
    with pytest.raises(ConfigError, match="at most 255, got 256"):
        check_header_ids(256, "bfloat16")
    check_header_ids(256, "float32")
    ids = jnp.arange(256, dtype=jnp.int32) + 1
    assert (ids.astype(jnp.bfloat16).astype(jnp.int32) == ids).all()  # 256 is the last whole number that comes back
