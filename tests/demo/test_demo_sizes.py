"""The demo's sizes keep what its forecast rests on: one recipe, one ratio, enough rungs, a repeated one, a large enough step up."""

from __future__ import annotations

import json

import pytest

from forerun.base.config import canonical_json
from forerun.demo.report import write_report
from forerun.demo.settings import FULL, QUICK
from forerun.ladder.family import target_of, total_compute
from forerun.ladder.forecast import forecast
from forerun.ladder.rungs import Rung
from forerun.model.count import num_active_params

MANIFEST = "0" * 64


@pytest.mark.parametrize("settings", [FULL, QUICK], ids=["full", "quick"])
def test_the_large_run_takes_at_least_four_times_the_largest_of_at_least_four_rungs(settings):
    rungs, big = settings.rungs(MANIFEST), settings.big(MANIFEST)
    assert len({run.model.d_model for run in rungs}) >= 4
    assert len({run.train.seed for run in rungs if run.model.d_model == settings.repeated_width}) == 1 + settings.num_repeats >= 2
    assert target_of(big).compute >= 4 * max(target_of(run).compute for run in rungs)
    assert total_compute(rungs) < target_of(big).compute


@pytest.mark.parametrize("settings", [FULL, QUICK], ids=["full", "quick"])
def test_all_runs_share_the_recipe_and_the_ratio_of_tokens_to_active_parameters(settings):
    runs = [*settings.rungs(MANIFEST), settings.big(MANIFEST)]
    for run in runs:
        tokens = run.train.num_steps * run.train.batch_tokens
        assert tokens / num_active_params(run.model) == pytest.approx(
            settings.tokens_per_active_param, rel=0.5 / run.train.num_steps + 1e-3
        )  # whole steps
        assert run.eval.every_fraction == 0.05
        model = run.model
        assert (model.num_experts, model.top_k, model.num_shared_experts, model.num_layers) == (16, 2, 2, settings.num_layers)
        assert model.d_latent < model.d_model and run.optim.recipe == "muonh" and run.optim.schedule.kind == "linear"


def ladder() -> tuple[list[Rung], list]:
    runs = FULL.rungs(MANIFEST)
    rungs = []
    for index, run in enumerate(runs):
        target = target_of(run)
        fractions = [0.05 * step for step in range(1, 21)]
        losses = [2.0 + 3.0 * (fraction * target.compute / 1e12) ** -0.08 * (1 + 0.001 * (index % 2)) for fraction in fractions]
        steps = [max(1, round(fraction * target.train_steps)) for fraction in fractions]
        rungs.append(
            Rung(name=run.name, train_steps=target.train_steps, compute_per_step=target.compute_per_step, steps=steps, losses=losses)
        )
    return rungs, runs


def test_the_report_says_what_was_predicted_why_and_what_happened(tmp_path):
    rungs, runs = ladder()
    big = FULL.big(MANIFEST)
    promised = forecast(rungs, target_of(big), compute="fit_compute")
    write_report(tmp_path / "report.md", big, promised, 0.4, quick=True, registration="abc123")
    text = (tmp_path / "report.md").read_text()
    assert f"**{promised.final.loss:.3f} nats**" in text and "abc123" in text and "40.0%" in text
    assert "not finished" in text and "--quick" in text and "demo runs with other seeds" in text
    assert json.loads(canonical_json(promised))["final"]["loss"] == promised.final.loss
