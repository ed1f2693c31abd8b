import numpy as np
import pytest

from forerun.base.errors import DataError
from forerun.ladder.forecast import forecast
from forerun.ladder.public import marin_ladder
from forerun.ladder.score import interval_score, score


def test_interval_score_is_width_plus_twenty_times_the_miss_at_ninety_percent():
    low, high = np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])
    got = interval_score(low, high, np.array([1.5, 0.9, 2.2]), 0.1)
    np.testing.assert_allclose(got, [1.0, 1.0 + 20 * 0.1, 1.0 + 20 * 0.2])


def test_an_outcome_on_the_central_curve_scores_perfectly_and_one_far_off_does_not():
    rungs, target = marin_ladder()
    answer = forecast(rungs, target)
    steps = np.array([point.step for point in answer.curve], float)
    exact = score(answer, steps, np.array([point.loss for point in answer.curve]))
    assert exact.absolute_error < 1e-4  # steps are rounded, so fractions differ by 1e-6
    assert exact.coverage90 == 1.0
    assert exact.final_inside90
    off = score(answer, steps, np.array([point.loss * 1.2 for point in answer.curve]))
    assert off.signed_error == pytest.approx(1 / 1.2 - 1, abs=1e-4)
    assert off.coverage90 == 0.0


def test_outcomes_before_the_forecast_starts_are_counted_but_not_scored():
    rungs, target = marin_ladder()
    result = score(forecast(rungs, target), np.array([100.0, 195_126.0]), np.array([7.0, 2.17]))
    assert (result.num_evals, result.num_outside) == (1, 1)
    assert result.final_error is None


def test_an_outcome_past_the_promised_length_is_refused():
    rungs, target = marin_ladder()
    with pytest.raises(DataError, match="past the forecast's train_steps"):
        score(forecast(rungs, target), np.array([500_000.0]), np.array([2.0]))
