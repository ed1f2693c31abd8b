"""Incidents of large runs that a CPU can show: see docs/reference/incidents-tests.md."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_runs import lab_with_store, tiny_run

from forerun.base.config import digest_of
from forerun.base.errors import CheckFailed
from forerun.loader.store import open_store
from forerun.optim.build import build
from forerun.optim.config import OptimConfig
from forerun.record.reader import open_run
from forerun.train.checkpoint import Checkpoints
from forerun.train.evaluate import Evaluator
from forerun.train.flops import check_flops, compiled_flops, expected_flops
from forerun.train.loop import train
from forerun.train.state import state_shapes


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    lab, manifest = lab_with_store(tmp_path_factory.mktemp("lab"))
    config = tiny_run(manifest, num_steps=12)
    result = train(config, lab, run_id="run", registration=None, quiet=True)
    return lab, config, result


def test_r2_a_checkpoint_evaluates_to_what_the_loop_measured_there(done):
    lab, config, result = done
    restored = Checkpoints(lab.run("run") / "checkpoints", config_digest=digest_of(config)).restore_newest(state_shapes(config))
    assert restored is not None and np.abs(np.asarray(restored.state.router.bias)).max() > 0  # an old bias would be another one
    assert Evaluator(config, open_store(lab, config.data.manifest))(restored.state) == result.evaluation


def test_the_compiled_step_does_the_products_its_config_asks_for_and_no_others(done):
    lab, _, _ = done
    ratio = open_run(lab.run("run")).events("compiled")[0]["flops_over_expected"]
    assert 0.97 < ratio <= 1.03  # XLA may leave out a product with a constant, it has no reason to add one


def test_a_dense_product_in_place_of_a_grouped_one_is_refused(done):
    _, config, _ = done
    asked = sum(expected_flops(config).values())

    def dense(rows, weights):  # every expert on every token, as a fallback computes it
        return jnp.einsum("td,edf->tef", rows, weights)

    rows = jax.ShapeDtypeStruct((4096, 64), jnp.float32)
    weights = jax.ShapeDtypeStruct((16, 64, int(2 * asked / (2 * 4096 * 16 * 64))), jnp.float32)
    program = jax.jit(dense).lower(rows, weights).compile().as_text()
    with pytest.raises(CheckFailed, match="times the matrix products"):
        check_flops(program, config)


def test_products_inside_loops_count_as_often_as_they_run():
    def looped(rows, weights):
        return jax.lax.fori_loop(0, 7, lambda _, rows: jnp.tanh(rows @ weights), rows)

    shapes = jax.ShapeDtypeStruct((32, 48), jnp.float32), jax.ShapeDtypeStruct((48, 48), jnp.float32)
    assert compiled_flops(jax.jit(looped).lower(*shapes).compile().as_text()) == 7 * 2 * 32 * 48 * 48


def test_n8_decay_of_one_group_shrinks_it_by_the_annealed_rate_and_leaves_the_others():
    gate, conv = jnp.full((4, 2), 3.0), jnp.full((4, 2), 3.0)
    params = {"layers": [{"attention": {"head_gate": gate, "conv_output": conv}}]}
    config = OptimConfig(muonh_learning_rate=0.1, adam_learning_rate=0.1, weight_decay={"head_gate": 0.02})
    optimizer, num_steps = build(config, 10), 10
    state, expected = optimizer.init(params), 3.0
    factors = np.concatenate([[1.0], np.linspace(1.0, 0.05, 10)])
    for step in range(5):
        updates, state = optimizer.update(jax.tree.map(jnp.zeros_like, params), state, params)
        params = optax.apply_updates(params, updates)
        expected *= 1 - 0.1 * factors[step] * 0.02 * (1 - step / num_steps)
    attention = params["layers"][0]["attention"]
    np.testing.assert_allclose(attention["head_gate"], expected, rtol=1e-4)  # the schedule in float32
    np.testing.assert_array_equal(attention["conv_output"], conv)


@pytest.mark.slow
def test_n9_a_learning_rate_forty_percent_too_high_brings_no_gradient_spikes(done):
    lab, config, _ = done
    longer = replace(config, train=replace(config.train, num_steps=100), data=replace(config.data, epoch_cap=1000.0))
    worst = {}
    for factor in (1.0, 1.4):
        optim = replace(config.optim, muonh_learning_rate=0.02 * factor, adam_learning_rate=0.01 * factor)
        train(replace(longer, optim=optim), lab, run_id=f"rate-{factor}", registration=None, quiet=True)
        worst[factor] = open_run(lab.run(f"rate-{factor}")).series("grad_norm").value[10:].max()
    assert worst[1.4] < 2 * worst[1.0]  # the public run saw factors of 20 with the embedding under AdamH
