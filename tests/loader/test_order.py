"""The order of windows is a permutation, keeps proportions everywhere, and needs no memory of the past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.base.errors import ConfigError
from forerun.loader.order import Phase, apportion, counts_per_period, key_of, permute


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63))
def test_permute_visits_every_index_once(size: int, seed: int):
    index = np.arange(size)
    out = permute(index, np.full(size, size), np.full(size, seed, np.uint64))
    assert sorted(out.tolist()) == index.tolist()


def test_permute_handles_sizes_of_a_whole_trillion_token_cell():
    size = np.full(1000, 11_000_000_003)
    out = permute(np.arange(1000), size, np.full(1000, 7, np.uint64))
    assert len(set(out.tolist())) == 1000
    assert out.min() >= 0
    assert out.max() < 11_000_000_003
    assert np.abs(np.corrcoef(np.arange(1000), out)[0, 1]) < 0.1  # 3 sigma of 1000 independent draws


def test_permute_differs_by_key_but_not_by_process():
    index, size = np.arange(50), np.full(50, 50)
    one = permute(index, size, np.full(50, key_of("cell", 1, "a")))
    two = permute(index, size, np.full(50, key_of("cell", 2, "a")))
    assert one.tolist() != two.tolist()
    assert int(key_of("cell", 1, "a")) == 13436672802161091301  # recorded once: the order of a store is part of a run's promise


def test_apportion_gives_whole_shares_that_add_up():
    assert apportion(np.array([0.5, 0.3, 0.2]), 7).tolist() == [4, 2, 1]  # 3.5 2.1 1.4: the half goes first


def test_a_weight_below_one_window_per_period_is_refused_by_name():
    with pytest.raises(ConfigError, match="'dust'"):
        counts_per_period({"rest": 1 - 1e-6, "dust": 1e-6})


def test_every_stretch_of_a_phase_is_close_to_its_proportions():
    phase = Phase(0, (0, 1, 2), (700, 300, 24), (0, 0, 0), 5)
    cell, _ = phase.windows(np.arange(5000))
    for start in range(0, 4000, 333):
        counts = np.bincount(cell[start : start + 512], minlength=3)
        assert np.all(np.abs(counts - np.array([350, 150, 12])) <= 4)  # jitter moves a window across at most a few edges


def test_each_cell_is_read_in_order_without_a_gap_and_read_after_counts_it():
    phase = Phase(0, (3, 5), (900, 124), (10, 20), 9)
    cell, ordinal = phase.windows(np.arange(3333))
    for position, (index, base) in enumerate([(3, 10), (5, 20)]):
        mine = ordinal[cell == index]
        assert sorted(mine.tolist()) == list(range(base, base + len(mine)))
        assert phase.read_after(3333)[position] == len(mine)
