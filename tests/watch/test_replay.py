"""Replay in small: few runs here, the full tables are made by `forerun replay` and shipped."""

import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from forerun.watch.case import shipped_limits
from forerun.watch.course import judge
from forerun.watch.diagnose import UNKNOWN, knowledge
from forerun.watch.replay import results
from forerun.watch.replay.calibrate import limits_from, noise_of
from forerun.watch.replay.healthy import Noise, healthy_run
from forerun.watch.replay.incidents import INCIDENTS
from forerun.watch.replay.runner import replay_healthy, replay_incident

STEPS = 4000
BY_NAME = {incident.name: incident for incident in INCIDENTS}


def test_healthy_runs_scatter_as_stated():
    run = healthy_run(0, 20_000, noise=Noise(loss_sd=0.01, loss_correlation=0.3))
    noise = run.rows["loss_nats"] / run.trend - 1
    np.testing.assert_allclose(noise.std(), 0.01, rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(noise[1:], noise[:-1])[0, 1], 0.3, atol=0.05)


def test_few_healthy_runs_alarm():
    """Five percent is the budget: of six runs none, with these seeds."""
    assert replay_healthy(range(6), 2000).any_alarm == 0


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_class_is_found_and_diagnosed_or_answered_unknown(name):
    incident = BY_NAME[name]
    found = replay_incident(incident, range(300, 302), 20_000 if name.startswith("2%") else STEPS)
    assert found.detected == 1
    if incident.causes:
        assert found.diagnosed == 1


def test_a_small_step_is_found_within_its_bar():
    found = replay_incident(BY_NAME["+1% step"], range(20, 24), 8000)
    assert found.median_delay <= 60


def test_a_silent_hang_is_answered_unknown_and_teardown_noise_is_no_cause():
    run = healthy_run(5, STEPS)
    BY_NAME["silent hang"].plant(run, 2000, np.random.default_rng(0))
    report = judge(run.record(), run.forecast, now=run.now)
    assert report.diagnosis[0].cause.startswith(UNKNOWN)
    said = json.dumps(report.as_json()["diagnosis"])
    assert "barrier" not in said
    assert "RegisterTask" not in said
    assert "collective counters differ: rank 3" in said
    assert "P04" in report.diagnosis[0].precedent


def test_a_dead_link_is_named_with_what_others_did():
    run = healthy_run(5, STEPS)
    BY_NAME["link error"].plant(run, 2000, np.random.default_rng(0))
    first = judge(run.record(), run.forecast, now=run.now).diagnosis[0]
    assert first.cause == "link or device fault"
    assert "NVLINK_UNCORRECTABLE" in first.evidence_for[0]
    assert "retry from checkpoint" in first.precedent
    assert 0 < first.confidence < 1


def test_the_knowledge_is_consistent():
    """Every precedent exists, every incident has a source, every weight is positive, every pattern says what it means."""
    known = knowledge()
    incidents = {incident["id"]: incident for incident in known["incident"]}
    assert all(incident["source"] for incident in incidents.values())
    for cause in known["cause"]:
        assert set(cause["precedents"]) <= set(incidents)
        assert all(weight > 0 for weight in [*cause["for"].values(), *cause["against"].values()])
        assert set(cause["needs"]) and cause["next_measurement"]
    assert all(message.get("ignore") or message["signal"] for message in known["message"])


def test_noise_measured_from_rungs_is_the_noise_they_were_made_with():
    noise = Noise(loss_sd=0.02, loss_correlation=0.2, eval_sd=0.004, grad_sd=0.1)
    measured = noise_of([healthy_run(seed, 5000, noise=noise).record() for seed in (1, 2, 3)])
    np.testing.assert_allclose(measured.loss_sd, 0.02, rtol=0.1)
    np.testing.assert_allclose(measured.loss_correlation, 0.2, atol=0.08)
    np.testing.assert_allclose(measured.eval_sd, 0.004, rtol=0.6)  # twenty evaluations a rung


def test_calibrated_limits_keep_the_false_alarms_in_budget():
    noise = Noise(loss_sd=0.03, loss_correlation=0.5)
    healthy = replay_healthy(range(6), 1000, noise=noise)
    limits = limits_from(healthy)
    again = replay_healthy(range(6), 1000, noise=noise, limits=limits)
    assert again.any_alarm <= healthy.any_alarm
    assert again.any_alarm <= 0.1


def test_every_limit_names_a_rule_and_its_shipped_rate():
    table = tomllib.loads((files("forerun.watch") / "thresholds.toml").read_text())
    shipped = results.shipped()["healthy"]["by_rule"]
    for rule, limit in shipped_limits().items():
        assert limit.limit > 0
        assert table[rule]["false_alarm_rate"] == pytest.approx(shipped.get(rule, 0.0), abs=5e-4)
