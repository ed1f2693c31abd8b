"""Detectors against loops and hand-worked cases."""

import numpy as np
import pytest

from forerun.watch import detect


@pytest.mark.parametrize("weight", [0.02, 0.002, 0.5])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_the_tiled_average_equals_the_recursion(weight, size):
    value = np.random.default_rng(0).normal(size=size)
    mean, slow = 0.0, []
    for x in value:
        mean += weight * (x - mean)
        slow.append(mean)
    np.testing.assert_allclose(detect.ewma(value, weight), slow, rtol=1e-10, atol=1e-14)


def test_three_in_a_row_is_the_least_of_three_on_one_side():
    distance = np.array([5.0, 4.0, 6.0, -1.0, -3.0, -2.0, 7.0])
    assert detect.three_in_a_row(distance).tolist() == [0, 0, 4, 0, 0, -1, 0]
    assert detect.three_in_a_row(np.array([9.0, 9.0])).tolist() == [0, 0]


def test_a_straight_line_in_log_step_is_all_baseline():
    position = np.log(np.arange(1000, 6000))
    noise = np.random.default_rng(0).normal(0, 0.01, 5000)
    baseline = detect.baseline_of(position, 3 - 0.1 * position + noise)
    known = ~np.isnan(baseline.expected)
    np.testing.assert_allclose(baseline.expected[known], (3 - 0.1 * position)[known], atol=0.01)
    np.testing.assert_allclose(np.median(baseline.scale[known]), 0.01, rtol=0.1)


def test_scores_of_healthy_noise_have_unit_spread_even_when_noise_is_correlated():
    rng = np.random.default_rng(0)
    raw = rng.normal(size=40_000)
    noise = detect.ewma(raw, 0.7) * 0.02
    position = np.log(np.arange(10_000, 50_000))
    baseline = detect.baseline_of(position, noise)
    score = detect.ewma_score(detect.standardised(noise, baseline), baseline, detect.FAST)[2000:]
    assert 0.7 < score.std() < 1.15  # the model's own error is in the denominator, so a little under 1


def test_a_departure_is_not_learned_while_it_begins():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.01, 12_000)
    noise[10_000:] += 0.02
    baseline = detect.baseline_of(np.log(np.arange(1, 12_001) + 1000.0), noise)
    assert abs(baseline.expected[10_000:10_250]).max() < 0.002


def test_a_constant_series_scores_nothing():
    value = np.full(500, 3.0)
    baseline = detect.baseline_of(np.log(np.arange(1, 501.0)), value)
    assert not detect.standardised(value, baseline).any()


def test_one_limit_holds_over_a_run_of_any_length():
    """Beyond the counted rows the limit grows so that all rows to a billion alarm at most 0.35 times as often as the counted ones."""
    limit, counted = 4.0, 1000
    rows = np.unique(np.geomspace(1, 1e9, 4000).astype(np.int64))
    raised = limit / detect.spent(limit, rows, counted)
    assert np.all(raised[rows <= counted] == limit)
    assert np.all(np.diff(raised) >= 0)
    per_row = np.exp(-(raised**2 - limit**2) / 2)  # a normal tail, relative to a counted row
    beyond = rows >= counted
    assert np.trapezoid(per_row[beyond], rows[beyond]) <= 0.36 * counted
