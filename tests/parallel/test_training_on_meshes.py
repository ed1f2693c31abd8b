"""The same training on every mesh and transport: losses, norms, drops, checkpoints that know no mesh."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from mesh_runs import FAST_TO_COMPILE, losses, random_batch, run_config, trained

from forerun.base.errors import ConfigError
from forerun.optim.paths import named_leaves
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.parallel.mesh import build_mesh, over_batch
from forerun.parallel.transports import TRANSPORTS
from forerun.train.checkpoint import Checkpoints
from forerun.train.drops import DropCount
from forerun.train.loop import mesh_of
from forerun.train.state import shardings_of, state_shapes
from forerun.train.step import gradient_of, model_batch

MESH = MeshConfig(replica=2, data=2, expert=2)
TIGHT = TransportConfig(capacity_factor=0.8, sender_factor=0.9, num_waves=2)


@pytest.fixture(scope="module")
def dropping():
    """Fifty steps with drops, and the reports."""
    return trained(with_adam("all_gather"), 50)


def with_adam(kind):
    """A run whose optimizer compiles fast: which one moves the weights is nothing to the transport."""
    config = run_config(MESH, replace(TIGHT, kind=kind))
    return replace(config, optim=replace(config.optim, recipe="adamw"))


@pytest.mark.slow
def test_sharded_training_follows_one_device_over_twenty_steps():
    _, alone = trained(run_config(), 20)
    _, spread = trained(run_config(MESH, TransportConfig(kind="pooled_wave", sender_factor=0.7)), 20)
    np.testing.assert_allclose(losses(spread), losses(alone), atol=1e-5)  # float32 sums in another order
    for name in ("total", "routed", "attention"):
        ours, theirs = ([float(report.grad_norm[name]) for report in reports] for reports in (spread, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert all(int(report.dropped.sum()) == 0 for report in spread)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "kind"),
    [(MeshConfig(replica=5), "ragged"), (MeshConfig(data=7), "fixed_cells"), (MeshConfig(replica=2, expert=3), "all_gather")],
)
def test_meshes_of_odd_sizes_train_what_one_device_does(mesh, kind):
    """No matrix divides evenly by 3, 5 or 7: what cannot be cut lies whole."""
    alone = run_config(batch_size=6 * mesh.num_devices)
    alone = replace(alone, model=replace(alone.model, num_experts=6), optim=replace(alone.optim, recipe="adamw"))
    spread = replace(alone, mesh=mesh, transport=TransportConfig(kind=kind))
    np.testing.assert_allclose(losses(trained(spread, 5)[1]), losses(trained(alone, 5)[1]), atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    ["ragged", *(pytest.param(kind, marks=pytest.mark.slow) for kind in TRANSPORTS if kind not in ("ragged", "all_gather"))],
)
def test_switching_the_transport_leaves_fifty_steps_of_training_unchanged(dropping, kind):
    _, expected = dropping
    assert sum(int(report.dropped.sum()) for report in expected) > 100
    _, reports = trained(with_adam(kind), 50)
    np.testing.assert_allclose(losses(reports), losses(expected), atol=1e-5)
    for ours, theirs in zip(reports, expected, strict=True):
        np.testing.assert_array_equal(ours.dropped, theirs.dropped)
        np.testing.assert_array_equal(ours.dropped_by_sequence, theirs.dropped_by_sequence)


def test_under_a_scan_one_layer_is_gathered_at_a_time():
    config = run_config(MeshConfig(data=2, expert=2), remat="block", layer_loop="scan")
    config = replace(config, model=replace(config.model, num_layers=7))  # a size no other dimension has
    mesh = build_mesh(config.mesh)
    shapes, batch = state_shapes(config), model_batch(random_batch(config, 0), mesh)  # type: ignore[arg-type]
    gradient = jax.jit(functools.partial(gradient_of, config, mesh), in_shardings=(shardings_of(shapes, mesh), over_batch(mesh)))
    program = gradient.lower(shapes, batch).compile(FAST_TO_COMPILE).as_text()
    gathers = re.findall(r"= \w+\[([\d,]*)\]\S* all-gather\(", program or "")
    assert "16,16" in gathers and not any("7" in dims.split(",") for dims in gathers)


@pytest.mark.slow
def test_the_original_rule_gives_every_transport_the_same_training_too():
    first, *others = [
        trained(run_config(MESH, replace(TIGHT, kind=kind, drop_rule="sender_receiver")), 50)[1]
        for kind in ("pooled_wave", "ragged", "local")
    ]
    for other in others:
        np.testing.assert_allclose(losses(other), losses(first), atol=1e-5)


def test_a_checkpoint_goes_on_under_another_mesh(dropping, tmp_path):
    state, _ = dropping
    config = with_adam("all_gather")
    checkpoints = Checkpoints(tmp_path, config_digest="c")
    checkpoints.save(state, 50)
    shapes, other = state_shapes(config), build_mesh(MeshConfig(expert=4))
    restored = checkpoints.restore_newest(shapes, shardings_of(shapes, other))
    alone = checkpoints.restore_newest(shapes)
    assert restored is not None and alone is not None
    for before, after, single in zip(*(named_leaves(tree).values() for tree in (state, restored.state, alone.state)), strict=True):
        np.testing.assert_array_equal(before, after)
        np.testing.assert_array_equal(before, single)
    experts = restored.state.params["layers"][0]["feed_forward"]["experts"]["w_up"]
    assert experts.sharding.mesh.shape["expert"] == 4 and experts.addressable_shards[0].data.shape[0] == 2


def test_drops_are_told_by_sender_expert_layer_and_position_in_64_bits(dropping):
    _, reports = dropping
    count = DropCount(run_config(MESH, TIGHT))
    for report in reports:
        count.add(report)
    fields = count.take()
    total = sum(int(report.dropped.sum()) for report in reports)
    for place in ("layer", "expert", "sender", "position"):
        dropped, valid = (np.array(fields[f"{kind}_by_{place}"]) for kind in ("dropped", "valid"))
        assert dropped.sum() == total and (dropped <= valid).all()
        assert valid.sum() == sum(int(report.load.sum()) for report in reports)
    assert len(fields["dropped_by_sender"]) == 8 and len(fields["dropped_by_position"]) == 8
    big = reports[0]._replace(load=np.full((1, 8), 2**31 - 1, np.int32), dropped=np.full((1, 8), 2**31 - 1, np.int32))
    count.add(big)
    count.add(big)
    assert sum(count.take()["dropped_by_expert"]) == 16 * (2**31 - 1)


def test_ids_that_rows_cannot_carry_are_refused_before_anything_compiles():
    config = run_config(MeshConfig(), TransportConfig(kind="pooled_wave"), compute_dtype="bfloat16")
    wide = replace(config, model=replace(config.model, num_experts=256))
    with pytest.raises(ConfigError, match="at most 255, got 256"):
        mesh_of(wide)
    assert mesh_of(config) is None
