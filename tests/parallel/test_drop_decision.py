"""Water-filling wastes nothing, favours nobody over time, and is the same whatever carries the rows."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from forerun.base.errors import ConfigError
from forerun.parallel.config import MeshConfig, TransportConfig, check_counts, rows_within
from forerun.parallel.decision import water_fill
from forerun.parallel.order import sort_by_expert
from forerun.parallel.two_stage import room

fill = jax.jit(water_fill, static_argnums=1)


@pytest.mark.parametrize("num_receivers", [2, 4, 8])
def test_each_receiver_takes_what_it_can_and_no_cell_gets_more_than_another_that_waits(num_receivers):
    rng = np.random.default_rng(num_receivers)
    for step in range(20):
        wanted = rng.integers(0, 30, (4, 8)) * (rng.random((4, 8)) > 0.3)
        limit = int(rng.integers(1, 80))
        given = np.asarray(fill(wanted.astype(np.int32), num_receivers, np.int32(limit), np.int32(step)))
        assert (given <= wanted).all() and (given >= 0).all()
        of_receiver = wanted.reshape(4, num_receivers, -1).swapaxes(0, 1).reshape(num_receivers, -1)
        got = given.reshape(4, num_receivers, -1).swapaxes(0, 1).reshape(num_receivers, -1)
        np.testing.assert_array_equal(got.sum(1), np.minimum(of_receiver.sum(1), limit))
        for mine, want in zip(got, of_receiver, strict=True):
            waiting = mine < want
            if waiting.any():  # whoever still waits has at most one slot less than anyone has
                assert mine[waiting].min() >= mine.max() - 1


def test_over_as_many_steps_as_cells_everyone_gets_the_same():
    wanted = np.full((4, 6), 10, np.int32)
    total = sum(np.asarray(fill(wanted, 2, np.int32(77), np.int32(step))) for step in range(12))
    assert (total == total[0, 0]).all()


def test_over_the_steps_no_position_keeps_its_slot_more_often_than_another():
    num_tokens, num_steps = 128, 512
    index, counts = np.zeros((num_tokens, 1), np.int32), np.ones((num_tokens, 1), bool)
    rank_at = jax.jit(lambda step: sort_by_expert(index, counts, 2, step).rank[:, 0])
    kept = np.mean([np.asarray(rank_at(step)) < num_tokens // 4 for step in range(num_steps)], 0)
    np.testing.assert_allclose(kept, 0.25, atol=0.01)  # a rotation by an irrational share: error far below the root of 512


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.05, 1.1, 1.15, 1.25, 1.33, 2.0])
def test_the_logical_room_never_passes_the_buffer_and_equals_it_when_everything_is_valid(factor):
    sizes = [(a, p) for a in (7, 80, 4096, 524_288, 33_554_432) for p in (1, 3, 64, 384) if p <= a]
    for num_assignments, parts in sizes:
        physical = rows_within(num_assignments, factor, parts)
        assert int(room(np.int32(num_assignments), factor, parts, num_assignments)) == physical
        half = int(room(np.int32(num_assignments // 2), factor, parts, num_assignments))
        assert (half <= physical and half >= factor * (num_assignments // 2) / parts * (1 - 1e-5)) or half == physical
    assert rows_within(4, 4.05 / 8 * 8, 1) == 4  # never more rows than there are assignments


@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "mesh", "kind", "message"),
    [
        (1 << 28, 8, MeshConfig(expert=8), "ragged", "must stay below 2\\^31 in a microbatch, got 2147483648"),
        (1 << 21, 384, MeshConfig(), "local", "32-bit sort key, got 33 bits"),
        (1 << 27, 256, MeshConfig(expert=64), "all_gather", "32-bit sort key, got 33 bits for 4 experts"),
    ],
)
def test_counts_that_32_bits_cannot_hold_are_refused_with_a_way_out(num_tokens, num_experts, mesh, kind, message):
    check_counts(num_tokens // 4, 8, num_experts, mesh, TransportConfig(kind=kind))
    with pytest.raises(ConfigError, match=message):
        check_counts(num_tokens, 8, num_experts, mesh, TransportConfig(kind=kind))


def test_the_535b_run_counts_within_32_bits():
    for kind in ("pooled_wave", "ragged", "fixed_cells", "all_gather"):
        check_counts(46_137_344, 8, 384, MeshConfig(replica=11, expert=64), TransportConfig(kind=kind))
