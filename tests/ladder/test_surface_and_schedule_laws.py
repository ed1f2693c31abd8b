import numpy as np
import pytest

from forerun.base.errors import DataError
from forerun.ladder.forms import SurfaceLaw, fit_kaplan, fit_power, fit_surface, fit_surface_huber
from forerun.ladder.public import schedule_curves
from forerun.ladder.schedules import MEMORY, MultiPowerLaw, ScheduledRun, fit_momentum, fit_multi_power, logged_rates, steps_only
from forerun.ladder.surface import Runs, forecast_surface

LAW = SurfaceLaw(floor=1.8, a=400.0, alpha=0.34, b=2000.0, beta=0.36)


def grid_of_runs():
    sizes, ratios = np.meshgrid([2e7, 6e7, 2e8, 6e8], [5, 20, 80], indexing="ij")
    sizes, tokens = sizes.ravel(), (sizes * ratios).ravel()
    return Runs(sizes, tokens, LAW.at(sizes, tokens))


@pytest.mark.parametrize("fit", [fit_surface, pytest.param(fit_surface_huber, marks=pytest.mark.slow)])
def test_both_surface_fits_recover_an_exact_law(fit):
    runs = grid_of_runs()
    law = fit(runs.num_params, runs.train_tokens, runs.losses)
    assert float(law.at(1e10, 2e11)) == pytest.approx(float(LAW.at(1e10, 2e11)), rel=2e-3)


def test_the_surface_forecast_holds_an_exact_law_inside_its_interval():
    band = forecast_surface(grid_of_runs(), num_params=5e9, train_tokens=1e11)
    truth = float(LAW.at(5e9, 1e11))
    assert band.low90 <= truth <= band.high90
    assert band.loss == pytest.approx(truth, rel=0.01)


def test_a_surface_needs_runs_that_vary_in_size_and_in_ratio():
    runs = grid_of_runs()
    with pytest.raises(DataError, match="at least 5 runs"):
        forecast_surface(runs.only(np.arange(12) < 4), num_params=5e9, train_tokens=1e11)
    sizes = np.geomspace(1e7, 1e9, 6)
    with pytest.raises(DataError, match="same train_tokens / num_params"):
        forecast_surface(Runs(sizes, 20 * sizes, LAW.at(sizes, 20 * sizes)), num_params=5e9, train_tokens=1e11)


def test_power_law_by_projection_recovers_floor_and_exponent_and_kaplan_has_none():
    compute = np.geomspace(1e18, 1e22, 6)
    losses = 1.6 + 90 * compute**-0.1
    law = fit_power(compute, losses)
    assert law.floor == pytest.approx(1.6, rel=1e-3)
    assert law.exponent == pytest.approx(0.1, rel=1e-3)
    assert fit_power(compute, losses, floor=1.5).floor == 1.5
    assert fit_kaplan(compute, losses).floor == 0.0


def decaying_run(total=3000, peak=1e-3):
    rates = np.concatenate([np.linspace(peak / 100, peak, 100), np.full(900, peak), np.linspace(peak, peak / 20, total - 1000)])
    return ScheduledRun(rates, np.arange(200, total + 1, 100))


def test_momentum_sum_equals_the_slow_double_sum():
    from forerun.ladder.schedules import _remembered_drops

    run = decaying_run(total=1200)
    falls = np.maximum(-np.diff(run.rates, prepend=run.rates[0]), 0)
    slow = [sum(falls[k] * MEMORY ** (i - k) for i in range(step) for k in range(i + 1)) for step in run.steps[:4]]
    np.testing.assert_allclose(_remembered_drops(run)[:4], slow, rtol=1e-9, atol=1e-18)


def test_multi_power_law_equals_the_slow_sum_over_every_step():
    run = decaying_run()
    law = MultiPowerLaw(floor=2.0, a=0.6, alpha=0.5, b=400.0, c=2.0, beta=0.5, gamma=0.5)
    total = np.cumsum(run.rates)
    for index in (5, 15, 28):
        step = int(run.steps[index])
        gain = sum(
            (run.rates[k - 1] - run.rates[k])
            * (1 - (law.c * run.rates[k] ** -law.gamma * (total[step - 1] - total[k - 1]) + 1) ** -law.beta)
            for k in range(100, step)
        )
        slow = law.floor + law.a * total[step - 1] ** -law.alpha - law.b * gain
        assert law.at(run)[index] == pytest.approx(slow, rel=2e-3)  # blocks of steps against single steps


def test_laws_of_the_schedule_beat_counting_steps_on_unseen_schedules():
    curves = {name: curve for (size, name), curve in schedule_curves().items() if size == 100}
    runs = {name: ScheduledRun(logged_rates(steps, rates), steps.astype(int), loss) for name, (steps, rates, loss) in curves.items()}
    fitted = [runs[name] for name in ("cosine_24000", "constant_24000", "wsdcon_9")]
    unseen = [run for name, run in runs.items() if name not in ("cosine_24000", "constant_24000", "wsdcon_9")]

    def error(law):
        return np.mean([np.abs(law(run) / run.losses - 1).mean() for run in unseen])

    assert error(fit_momentum(fitted).at) <= 0.002
    assert error(fit_multi_power(fitted).at) <= 0.002
    assert error(steps_only(fitted)) > 0.005
