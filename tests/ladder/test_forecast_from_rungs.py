import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.base.config import canonical_json
from forerun.base.errors import DataError
from forerun.ladder.forecast import forecast
from forerun.ladder.public import marin_hero, marin_ladder, marin_published
from forerun.ladder.rungs import Rung, Target
from forerun.ladder.score import score
from forerun.ladder.store import keep, load

FRACTIONS = np.arange(1, 21) / 20


def synthetic_ladder(
    *, floor=1.7, exponent=0.14, scale=1.0, noise=0.0, computes=(1e15, 3e15, 1e16, 3e16), steps=4000, repeats=0, seed=0
) -> list[Rung]:
    """Rungs that obey collapse exactly: L = E + R C^-a (1 + 0.4 (1 - x) + 0.05 (x^-0.5 - 1)), with relative noise."""
    rng = np.random.default_rng(seed)
    rungs = []
    for index, compute in enumerate([*computes, *[computes[1]] * repeats]):
        reducible = 1.5 * (compute / 1e15) ** -exponent
        curve = scale * (floor + reducible * (1 + 0.4 * (1 - FRACTIONS) + 0.05 * (FRACTIONS**-0.5 - 1)))
        curve = curve * np.exp(noise * rng.standard_normal(len(curve)))
        rungs.append(
            Rung(
                name=f"r{index}",
                train_steps=steps,
                compute_per_step=compute / steps,
                steps=tuple(int(x) for x in np.round(FRACTIONS * steps)),
                losses=tuple(float(value) for value in curve),
            )
        )
    return rungs


def truth_at(compute, *, floor=1.7, exponent=0.14):
    reducible = 1.5 * (compute / 1e15) ** -exponent
    return floor + reducible * (1 + 0.4 * (1 - FRACTIONS) + 0.05 * (FRACTIONS**-0.5 - 1))


def test_the_published_forecast_is_rebuilt_to_every_digit_it_gives():
    rungs, target = marin_ladder()
    answer = forecast(rungs, target, method="marin2026")
    assert round(answer.final.loss, 4) == 2.0388
    # the published table has five decimals
    np.testing.assert_allclose([point.loss for point in answer.curve], marin_published(), atol=6e-6)


def test_the_hero_lies_in_the_band_of_a_forecast_that_never_saw_it():
    rungs, target = marin_ladder()
    steps, losses = marin_hero()
    window = (steps >= 0.099 * target.train_steps) & (steps <= 0.3 * target.train_steps)
    result = score(forecast(rungs, target), steps[window], losses[window])
    assert result.absolute_error <= 0.009
    assert result.coverage90 >= 0.8


def test_the_curve_falls_towards_the_end_and_its_intervals_nest():
    rungs, target = marin_ladder()
    answer = forecast(rungs, target)
    losses = [point.loss for point in answer.curve]
    assert losses == sorted(losses, reverse=True)
    for point in answer.curve:
        assert point.low90 <= point.low50 <= point.loss <= point.high50 <= point.high90
    assert answer.curve[-1].loss == answer.final.loss


def test_a_ladder_that_obeys_the_law_is_carried_on_within_its_interval_and_two_thirds_of_a_percent():
    target = Target(train_steps=4000, compute_per_step=3e17 / 4000)
    answer = forecast(synthetic_ladder(), target)
    truth = truth_at(3e17)
    got = np.array([point.loss for point in answer.curve])
    assert np.abs(got / truth - 1).max() < 0.0067  # four rungs do not fix the floor; the prior pulls by this much
    assert all(point.low90 <= value <= point.high90 for point, value in zip(answer.curve, truth))


def test_another_unit_of_loss_scales_the_whole_answer():
    target = Target(train_steps=4000, compute_per_step=3e17 / 4000)
    nats, bits = forecast(synthetic_ladder(), target), forecast(synthetic_ladder(scale=0.3), target)
    np.testing.assert_allclose(bits.final.high90, 0.3 * nats.final.high90, rtol=1e-6)  # only float rounding differs
    np.testing.assert_allclose(bits.curve[3].loss, 0.3 * nats.curve[3].loss, rtol=1e-6)


def test_intervals_hold_about_as_often_as_they_say_on_noisy_ladders():
    target = Target(train_steps=4000, compute_per_step=2e17 / 4000)
    inside = [
        forecast(synthetic_ladder(noise=0.003, seed=seed, exponent=a, floor=e), target)
        for seed, (a, e) in enumerate([(0.1, 1.2), (0.12, 1.5), (0.15, 1.7), (0.18, 1.8), (0.2, 1.9)] * 4)
    ]
    ends = [truth_at(2e17, exponent=a, floor=e)[-1] for a, e in [(0.1, 1.2), (0.12, 1.5), (0.15, 1.7), (0.18, 1.8), (0.2, 1.9)] * 4]
    share = np.mean([answer.final.low90 <= end <= answer.final.high90 for answer, end in zip(inside, ends)])
    assert share >= 0.85  # 20 ladders: 17 or more


def test_a_farther_target_gets_a_wider_interval():
    near, far = (forecast(synthetic_ladder(noise=0.001), Target(train_steps=4000, compute_per_step=c / 4000)).final for c in (6e16, 6e19))
    assert (far.high90 - far.low90) / far.loss > 1.5 * (near.high90 - near.low90) / near.loss


def test_repeats_measure_seed_noise_and_do_not_count_as_rungs():
    target = Target(train_steps=4000, compute_per_step=3e17 / 4000)
    answer = forecast(synthetic_ladder(noise=0.002, repeats=3), target)
    assert answer.seed_noise == pytest.approx(0.002, rel=0.8)  # sd from 4 repeats, 3 degrees of freedom
    with pytest.raises(DataError, match="at least 3 rungs of different compute, got 2"):
        forecast(synthetic_ladder(computes=(1e15, 3e15), repeats=3), target)


def test_a_rung_that_died_is_continued_by_rule_and_named():
    rungs = synthetic_ladder()
    dead = rungs[-1]
    cut = Rung(
        name=dead.name,
        train_steps=dead.train_steps,
        compute_per_step=dead.compute_per_step,
        steps=dead.steps[:14],
        losses=dead.losses[:14],
    )
    answer = forecast([*rungs[:-1], cut], Target(train_steps=4000, compute_per_step=3e17 / 4000))
    use = answer.rungs[-1]
    assert use.inferred
    assert use.end == pytest.approx(dead.losses[-1], rel=0.005)
    assert any("died early" in note for note in answer.notes)


def test_a_rung_that_died_very_early_is_left_out_and_said_so():
    rungs = synthetic_ladder(computes=(1e15, 3e15, 1e16, 3e16, 1e17))
    dead = rungs[-1]
    cut = Rung(name="early", train_steps=4000, compute_per_step=dead.compute_per_step, steps=dead.steps[:3], losses=dead.losses[:3])
    answer = forecast([*rungs[:-1], cut], Target(train_steps=4000, compute_per_step=1e18 / 4000))
    assert "early" not in [use.rung for use in answer.rungs]
    assert any("left out" in note and "early" in note for note in answer.notes)


def test_rungs_with_different_evaluation_points_and_gaps_still_give_a_curve():
    rungs = synthetic_ladder()
    sparse = [
        Rung(
            name=rung.name,
            train_steps=rung.train_steps,
            compute_per_step=rung.compute_per_step,
            steps=rung.steps[index % 2 :: 1 + index % 3],
            losses=rung.losses[index % 2 :: 1 + index % 3],
        )
        for index, rung in enumerate(rungs)
    ]
    ended = [
        rung
        if rung.finished
        else Rung(
            name=rung.name,
            train_steps=rung.train_steps,
            compute_per_step=rung.compute_per_step,
            steps=(*rung.steps, 4000),
            losses=(*rung.losses, full.losses[-1]),
        )
        for rung, full in zip(sparse, rungs)
    ]
    answer = forecast(ended, Target(train_steps=4000, compute_per_step=3e17 / 4000))
    assert answer.final.loss == pytest.approx(truth_at(3e17)[-1], rel=0.0067)


def test_only_final_losses_give_a_final_forecast():
    ends = [
        Rung(name=rung.name, train_steps=4000, compute_per_step=rung.compute_per_step, steps=(4000,), losses=rung.losses[-1:])
        for rung in synthetic_ladder()
    ]
    answer = forecast(ends, Target(train_steps=4000, compute_per_step=3e17 / 4000))
    assert [point.fraction for point in answer.curve] == [1.0]


def test_a_pinned_floor_is_recorded_and_moves_the_answer_as_the_profile_says():
    rungs, target = marin_ladder()
    free, pinned = forecast(rungs, target), forecast(rungs, target, floor=1.7)
    assert pinned.floor_pinned
    assert not free.floor_pinned
    finals = [point.final for point in free.floor_profile]
    assert finals == sorted(finals)
    assert np.interp(1.7, [point.floor for point in free.floor_profile], finals) == pytest.approx(pinned.final.loss, rel=0.005)
    assert sum(point.weight for point in free.floor_profile) == pytest.approx(1.0)


@pytest.mark.parametrize("floor", [-0.1, 2.45, 3.0])
def test_a_floor_above_the_losses_is_refused(floor):
    rungs, target = marin_ladder()
    with pytest.raises(DataError, match="the floor must lie in"):
        forecast(rungs, target, floor=floor)


def test_the_same_numbers_give_the_same_forecast_and_its_file_is_tamper_evident(tmp_path):
    rungs, target = marin_ladder()
    first, second = forecast(rungs, target), forecast(list(reversed(rungs)), target)
    assert canonical_json(first) == canonical_json(second)
    path = keep(first, tmp_path)
    assert load(path) == first
    path.write_text(path.read_text().replace('"method":"collapse"', '"method":"collapsed"'))
    with pytest.raises(Exception, match="was changed after it was made"):
        load(path)


def test_the_json_has_the_promised_shape():
    rungs, target = marin_ladder()
    plain = json.loads(canonical_json(forecast(rungs, target)))
    assert {"loss", "low90", "high90", "low50", "high50"} == set(plain["final"])
    assert {"fraction", "step", "loss", "low90", "high90"} <= set(plain["curve"][0])
    assert {"floor", "final"} <= set(plain["floor_profile"][0])
    assert {"schema", "id", "method", "compute", "inputs_digest"} <= set(plain)


def test_band_at_joins_the_points_and_refuses_to_guess_outside():
    rungs, target = marin_ladder()
    answer = forecast(rungs, target)
    assert answer.band_at(0.5).loss == pytest.approx(answer.curve[9].loss)
    assert answer.curve[2].loss <= answer.band_at(0.12).loss <= answer.curve[1].loss
    with pytest.raises(DataError, match="covers fractions"):
        answer.band_at(0.01)


@pytest.mark.parametrize("factor", [0.3, 1.4427])
def test_a_rung_measured_in_another_unit_is_refused_by_name(factor):
    rungs, target = marin_ladder()
    odd = replace(rungs[1], losses=tuple(loss * factor for loss in rungs[1].losses))
    with pytest.raises(DataError, match="not one evaluation of one recipe"):
        forecast([rungs[0], odd, *rungs[2:]], target)


def test_a_ladder_without_evaluations_of_its_ends_is_told_where_they_stop():
    rungs = [replace(rung, steps=rung.steps[:-1], losses=rung.losses[:-1]) for rung in synthetic_ladder()]
    with pytest.raises(DataError, match=r"evaluated at 98\.5%.*last evaluation is at 95\.0%"):
        forecast(rungs, Target(train_steps=8000, compute_per_step=1e14))


def test_rungs_that_scatter_get_a_wide_answer_that_says_why():
    rungs, target = marin_ladder()
    shaken = [replace(rung, losses=tuple(loss * (1 + off) for loss in rung.losses)) for rung, off in zip(rungs, (0.04, -0.04, 0.04, -0.04))]
    plain, wide = forecast(rungs, target).final, forecast(shaken, target)
    assert wide.final.high90 - wide.final.low90 > 2 * (plain.high90 - plain.low90)
    assert any("off any one law" in note or "times wider" in note for note in wide.notes)
