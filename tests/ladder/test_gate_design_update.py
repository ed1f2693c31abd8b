import math

import numpy as np
import pytest

from forerun.base.errors import ConfigError, DataError
from forerun.ladder.design import designs
from forerun.ladder.forecast import forecast
from forerun.ladder.gate import Measured, fit_gate_law, gate
from forerun.ladder.moe import MoERuns, effective_experts, fit_bilinear, fit_joint
from forerun.ladder.public import OLMO_SIZES, marin_hero, marin_ladder, olmo_runs
from forerun.ladder.rungs import Target
from forerun.ladder.update import Change, update

SCALES = (3.82e17, 2.81e18, 1.16e19, 3.46e19)


def baseline(compute, off=0.0):
    return Measured(compute=compute, loss=1.6 + 88.32 * compute**-0.0941 * (1 + off), eval="macro")


def test_speed_up_equals_the_formulas_worked_by_hand():
    law = fit_gate_law([baseline(c) for c in SCALES], floor=1.6)
    assert law.alpha == pytest.approx(0.0941, rel=1e-6)
    base = Measured(compute=3.82e17, loss=3.5422, tokens_per_second=433_986, eval="macro")
    variant = Measured(compute=3.82e17, loss=3.50, tokens_per_second=400_000, eval="macro")
    amplitude = (3.5422 - 1.6) * 3.82e17**0.0941
    needed = (amplitude / (3.50 - 1.6)) ** (1 / 0.0941)
    by_hand = (needed / 433_986) / (3.82e17 / 400_000)
    assert gate(law, [(base, variant)]).speedups[0].ratio == pytest.approx(by_hand, rel=1e-4)


def test_a_gain_inside_the_noise_passes_but_is_not_sure_and_a_large_one_is():
    law = fit_gate_law([baseline(c, off) for c, off in zip(SCALES, (0.002, -0.002, 0.001, -0.001))], floor=1.6, seed_noise=0.001)
    small = gate(law, [(baseline(c), baseline(c, -0.001)) for c in SCALES], seed_noise=0.001)
    large = gate(law, [(baseline(c), baseline(c, -0.05)) for c in SCALES], seed_noise=0.001)
    assert (small.passed, small.sure) == (True, False)
    assert (large.passed, large.sure) == (True, True)


def test_the_interval_of_equal_variants_holds_one_in_nine_of_ten_cases():
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(400):
        law = fit_gate_law([baseline(c, 0.002 * rng.standard_normal()) for c in SCALES], floor=1.6)
        pair = (baseline(SCALES[1], 0.002 * rng.standard_normal()), baseline(SCALES[1], 0.002 * rng.standard_normal()))
        answer = gate(law, [pair]).speedups[0]
        inside.append(answer.low90 <= 1 <= answer.high90)
    assert 0.85 <= np.mean(inside) <= 0.96  # 400 draws: standard error 1.5 points


def test_lack_of_fit_finds_a_bent_law_and_passes_a_straight_one():
    bends = [0.01, -0.01, -0.01, 0.01]
    assert fit_gate_law([baseline(c, b) for c, b in zip(SCALES, bends)], floor=1.6, seed_noise=0.001).lack_of_fit < 0.01
    assert fit_gate_law([baseline(c, b / 20) for c, b in zip(SCALES, bends)], floor=1.6, seed_noise=0.001).lack_of_fit > 0.2
    assert fit_gate_law([baseline(c) for c in SCALES], floor=1.6).lack_of_fit is None


def test_a_law_refuses_another_evaluation_and_losses_under_its_floor():
    law = fit_gate_law([baseline(c) for c in SCALES], floor=1.6)
    other = Measured(compute=1e18, loss=3.0, eval="dclm")
    with pytest.raises(DataError, match="the law is of 'macro'"):
        gate(law, [(other, other)])
    with pytest.raises(DataError, match="at or below the law's floor"):
        gate(law, [(baseline(1e18), Measured(compute=1e18, loss=1.5, eval="macro"))])
    with pytest.raises(DataError, match="at least 3 scales"):
        fit_gate_law([baseline(c) for c in SCALES[:2]], floor=1.6)


def test_effective_experts_saturate_and_start_near_the_first():
    few, many = effective_experts(1), effective_experts(1e9)
    assert 1 < few < 2
    assert many == pytest.approx(290, rel=1e-3)


def test_moe_laws_recover_what_made_the_numbers():
    sizes, tokens, experts = (grid.ravel() for grid in np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11], [1, 8, 64]))
    seen = np.log(effective_experts(experts))
    joint = 1.7 + 0.8 * np.exp(-0.05 * seen) * (sizes / 1e8) ** (-0.3 + 0.01 * seen) + 0.6 * (tokens / 1e10) ** -0.3
    law = fit_joint(MoERuns(sizes, tokens, experts, joint))
    np.testing.assert_allclose(law.at(sizes, tokens, experts), joint, rtol=2e-3)
    assert float(law.at(1e10, 1e12, 32)) < joint.min()
    bilinear = np.exp(-0.08 * np.log(sizes) - 0.1 * seen + 0.003 * np.log(sizes) * seen + 2.5)
    np.testing.assert_allclose(fit_bilinear(MoERuns(sizes, tokens, experts, bilinear)).at(sizes, experts), bilinear, rtol=1e-9)
    with pytest.raises(DataError, match="same num_experts"):
        fit_bilinear(MoERuns(sizes, tokens, np.ones_like(sizes), bilinear))


def test_a_bigger_budget_buys_a_narrower_forecast_and_the_ladder_costs_what_was_allowed():
    target = Target(train_steps=390_251, compute_per_step=6.69e18)
    cheap, dear = designs(target, 0.003), designs(target, 0.03)
    assert dear[0].expected_width90 < cheap[0].expected_width90
    assert [each.expected_width90 for each in dear] == sorted(each.expected_width90 for each in dear)
    assert sum(rung.compute for rung in dear[0].rungs) == pytest.approx(0.03 * target.compute)
    with pytest.raises(ConfigError, match="no ladder of 3 rungs fits"):
        designs(Target(train_steps=1000, compute_per_step=1e15), 1e-6)


def olmo_pair(length="5", eval_name="c4_en"):
    runs = {(run.size, run.length): run.rung(eval_name) for run in olmo_runs()}
    goal = runs[(OLMO_SIZES[-1], length)]
    answer = forecast(
        [runs[(size, length)] for size in OLMO_SIZES[:-1]], Target(train_steps=goal.train_steps, compute_per_step=goal.compute_per_step)
    )
    return answer, np.array(goal.steps, float), np.array(goal.losses)


def test_more_of_the_run_narrows_the_end_and_keeps_the_promise_already_passed():
    answer, steps, losses = olmo_pair()
    widths = [answer.final.high90 - answer.final.low90]
    for share in (0.25, 0.5, 0.75):
        seen = steps <= share * answer.target.train_steps
        moved = update(answer, steps[seen], losses[seen])
        widths.append(moved.final.high90 - moved.final.low90)
        assert moved.final.low90 <= losses[-1] <= moved.final.high90
        assert moved.curve[0] == answer.curve[0]
        assert moved.parent == answer.id
    assert widths == sorted(widths, reverse=True)


def test_a_tenth_of_the_run_hardly_moves_the_end():
    answer, steps, losses = olmo_pair()
    seen = steps <= 0.1 * answer.target.train_steps
    moved = update(answer, steps[seen], losses[seen] * 1.02)
    assert moved.final.loss / answer.final.loss - 1 < 0.006  # of 2%, under a third


def test_a_declared_change_is_an_offset_and_an_undeclared_one_is_trajectory():
    answer, steps, losses = olmo_pair()
    seen = steps <= 0.5 * answer.target.train_steps
    start = 0.3 * answer.target.train_steps
    shifted = np.where(steps >= start, losses * 1.02, losses)[seen]
    plain = update(answer, steps[seen], losses[seen])
    declared = update(answer, steps[seen], shifted, [Change(first_step=int(start), kind="data")])
    measured = update(answer, steps[seen], shifted, [Change(first_step=int(start), kind="data", offset=math.log(1.02), offset_sd=0.001)])
    assert measured.final.loss == pytest.approx(plain.final.loss * 1.02, rel=1e-3)
    assert declared.final.loss == pytest.approx(plain.final.loss * 1.02, rel=5e-3)
    width = [each.final.high90 / each.final.low90 for each in (plain, measured, declared)]
    assert width[0] < width[1] < width[2]


def test_a_planned_change_widens_only_what_comes_after_it():
    rungs, target = marin_ladder()
    steps, losses = marin_hero()
    answer = forecast(rungs, target)
    plain = update(answer, steps, losses)
    planned = update(answer, steps, losses, [Change(first_step=round(0.72 * target.train_steps), kind="context")])
    for before, after in zip(plain.curve, planned.curve):
        assert (after == before) == (after.fraction < 0.72)


def test_an_update_with_nothing_in_range_is_refused():
    rungs, target = marin_ladder()
    with pytest.raises(DataError, match="no evaluation at or after"):
        update(forecast(rungs, target), np.array([100.0]), np.array([7.0]))
