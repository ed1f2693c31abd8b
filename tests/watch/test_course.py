"""The verdict on whole runs: healthy ones, planted departures, declared changes, too little to tell."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import forerun.ladder
from forerun.base.config import digest_of
from forerun.base.errors import ConfigError
from forerun.cli.watch import app
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import RunInfo, Segment, start_run
from forerun.record.series import TableRecord, series_of
from forerun.watch.band import band_of
from forerun.watch.course import judge
from forerun.watch.replay.healthy import healthy_run

HERO = Path(forerun.ladder.__file__).parent / "data"
EARLY = Path(__file__).parents[1] / "data" / "hero"


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def by_rule(report, rule):
    return next(finding for finding in report.findings if finding.rule == rule)


def record_of(table, *, num_steps, segments=(), events=()):
    segments = segments or (Segment(run_id="r", first_step=0, time=0.0),)
    return TableRecord(
        info=RunInfo(run_id="r", num_steps=num_steps, created=0.0, segments=segments),
        table={name: series_of(step, value) for name, (step, value) in table.items()},
        event_list=list(events),
    )


def forecast_of(loss, num_steps, width=0.02):
    fractions = np.linspace(0.05, 1, 20)
    curve = [
        {
            "fraction": x,
            "step": x * num_steps,
            "loss": loss(x * num_steps),
            "low90": loss(x * num_steps) * (1 - width),
            "high90": loss(x * num_steps) * (1 + width),
        }
        for x in fractions
    ]
    return {"curve": curve}


def power(step):
    return 2.0 + 6.0 * (np.asarray(step) + 1.0) ** -0.4


def tiny_run(num_steps=400, factor=1.0, seed=0):
    """What the demo makes: a few hundred steps and twenty evaluations."""
    rng = np.random.default_rng(seed)
    step = np.arange(1, num_steps + 1)
    at = np.linspace(num_steps / 20, num_steps, 20).astype(int)
    return {
        "loss_nats": (step, power(step) * factor * (1 + rng.normal(0, 0.02, num_steps))),
        "eval/macro_loss_nats": (at, power(at) * factor * (1 + rng.normal(0, 0.002, 20))),
    }


def test_a_tiny_run_on_its_forecast_is_on_course_at_every_evaluation():
    run = healthy_run(1, 400)
    for step in range(20, 401, 20):
        report = judge(run.record(step), run.forecast)
        assert report.state == "on_course", report.words()
        assert report.exit_code == 0


@pytest.mark.parametrize(("factor", "side"), [(1.12, "above"), (0.88, "below")])
def test_a_level_far_from_the_forecast_is_off_course_on_either_side(factor, side):
    report = judge(record_of(tiny_run(factor=factor), num_steps=400), forecast_of(power, 400))
    level = by_rule(report, "loss_level")
    assert (report.state, report.exit_code, level.state) == ("off_course", 1, "off_course")
    assert side in level.evidence
    assert not level.low <= level.value <= level.high


def test_one_evaluation_outside_is_noise_three_are_an_alarm():
    table = tiny_run()
    at, value = table["eval/macro_loss_nats"]
    table["eval/macro_loss_nats"] = (at, np.where(np.arange(20) >= 19, value * 1.2, value))
    assert by_rule(judge(record_of(table, num_steps=400), forecast_of(power, 400)), "loss_level").state == "on_course"
    table["eval/macro_loss_nats"] = (at, np.where(np.arange(20) >= 17, value * 1.2, value))
    assert by_rule(judge(record_of(table, num_steps=400), forecast_of(power, 400)), "loss_level").state == "off_course"


def test_without_forecast_metrics_or_fresh_rows_the_answer_is_cannot_tell():
    assert judge(record_of(tiny_run(), num_steps=400)).state == "cannot_tell"
    assert judge(record_of({}, num_steps=400), forecast_of(power, 400)).exit_code == 3
    run = healthy_run(1, 2000)
    late = judge(run.record(1500), run.forecast, now=float(run.time[1499]) + 7200)
    assert late.state == "cannot_tell"
    assert "stale" in by_rule(late, "telemetry").evidence
    fresh = judge(run.record(1500), run.forecast, now=float(run.time[1499]) + 20)
    assert fresh.state == "on_course"


def test_a_finished_run_is_not_late():
    run = healthy_run(1, 400)
    assert judge(run.record(), run.forecast, now=float(run.time[-1]) + 1e6).state == "on_course"


def test_the_public_hero_run_is_never_off_course_against_the_published_or_an_own_forecast():
    """The published curve is 3.4% high at 5% of training and its only error bar misses five evaluations of six."""
    evals = rows_of(HERO / "hero_eval_dropless_paloma_macro.csv")
    published = rows_of(HERO / "hero_forecast_per5pct.csv")
    curve = [
        {
            "step": int(row["hero_step"]),
            "loss": float(row["pred_dropless_paloma_macro"]),
            "low90": float(row["loo_low"]),
            "high90": float(row["loo_high"]),
        }
        for row in published
    ]
    lineage = rows_of(EARLY / "hero_lineage.csv")
    segments = tuple(
        Segment(
            run_id=row["run"],
            first_step=int(row["start_step"]),
            time=0.0,
            changed="" if index == 0 else row["change"],
            kind=row["change_kind"],
        )
        for index, row in enumerate(lineage)
    )
    step = [int(row["step"]) for row in evals]
    value = [float(row["dropless_paloma_macro_loss"]) for row in evals]
    train = [(int(row["step"]), float(row["train_cross_entropy_loss"])) for row in rows_of(EARLY / "hero_train_ce_early.csv")]
    early = rows_of(EARLY / "hero_early_dynamics.csv")
    for declared in (segments, ()):
        for end in range(1, len(step) + 1):
            inside = [row for row in train if row[0] <= step[end - 1]] or train[:1]
            table = {
                "eval/macro_loss_nats": (step[:end], value[:end]),
                "loss_nats": tuple(zip(*inside)),
                "grad_norm": ([int(row["step"]) for row in early], [float(row["grad_norm_total"]) for row in early]),
            }
            report = judge(record_of(table, num_steps=390_251, segments=declared), {"curve": curve})
            assert not report.alarms, report.words()
    assert by_rule(report, "loss_level").state == "on_course"


def test_a_level_shift_is_an_alarm_and_a_declared_one_is_not():
    """Both runs take +1.8% at step 10,000, the size of a real mixture change."""
    run = healthy_run(3, 20_000)
    run.rows["loss_nats"][10_000:] *= 1.018
    shift = by_rule(judge(run.record(11_000), run.forecast), "loss_shift")
    assert shift.state == "off_course"
    assert 10_000 < shift.step <= 10_060
    run.segments.append(replace(run.segments[0], first_step=10_001, changed="second data phase", kind="data"))
    report = judge(run.record(11_000), run.forecast)
    assert by_rule(report, "loss_shift").state == "on_course"
    assert "second data phase" in by_rule(report, "segments").evidence


def test_an_alarm_that_is_still_on_is_dated_where_it_began():
    """Without a forecast the course is the run's own; the drift alarm is older than the stretch that counts as of late."""
    rng = np.random.default_rng(3)
    step = np.arange(3000) * 10
    loss = 2.2 + 6 * (step + 200.0) ** -0.25 + 0.02 * rng.standard_normal(3000) + np.where(step >= 20_000, 0.08, 0)
    drift = by_rule(judge(record_of({"loss_nats": (step, loss)}, num_steps=0)), "loss_drift")
    assert drift.state == "off_course"
    assert 20_000 <= drift.step <= 20_600
    assert drift.value > drift.expected, "drifted up, and so do the numbers shown"


def test_a_file_whose_rows_carry_no_time_is_judged_as_it_stands(tmp_path):
    run = tiny_run()
    rows = dict(zip(*(column.tolist() for column in run["eval/macro_loss_nats"])))
    lines = [f"{step},{loss}" for step, loss in rows.items() if step <= 300]
    (tmp_path / "run.csv").write_text("step,eval/macro_loss_nats\n" + "\n".join(lines) + "\n")
    (tmp_path / "forecast.json").write_text(json.dumps(forecast_of(power, 400)))
    result = CliRunner().invoke(app, [f"csv:{tmp_path}/run.csv", "--forecast", str(tmp_path / "forecast.json"), "--once", "--json"])
    report = json.loads(result.stdout)
    assert report["state"] == "on_course"
    assert any("rows carry no time" in finding["evidence"] for finding in report["findings"])
    live = judge(record_of({"loss_nats": run["loss_nats"]}, num_steps=400), forecast_of(power, 400), now=0.0)
    assert live.state == "cannot_tell"


def test_a_declared_change_widens_the_band_for_good():
    band = band_of(forecast_of(power, 1000))
    step, above = np.array([900.0]), np.array([1.0])
    change = Segment(run_id="r", first_step=500, time=0.0, changed="longer context", kind="context")
    assert band.sd(step, above, [change]) > 1.5 * band.sd(step, above)
    assert band.sd(np.array([400.0]), above, [change]) == band.sd(np.array([400.0]), above)


def test_the_band_passes_through_its_points_and_stays_silent_outside():
    band = band_of(forecast_of(power, 1000))
    at = np.exp(band.log_step)
    np.testing.assert_allclose(band.expected(at), power(at), rtol=1e-12)
    between = np.sqrt(at[1:] * at[:-1])
    np.testing.assert_allclose(band.expected(between), power(between), rtol=2e-3)  # a cubic through 20 points
    assert np.isnan(band.expected(np.array([10.0, 2000.0]))).all()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"curve": []},
        {"curve": [{"step": 1}, {"step": 2}]},
        {"curve": [{"step": 2, "loss": 1.0}, {"step": 1, "loss": 1.0}]},
        {"curve": [{"step": 1, "loss": -1.0}, {"step": 2, "loss": 1.0}]},
    ],
)
def test_a_broken_forecast_is_refused(broken):
    with pytest.raises(ConfigError):
        judge(record_of(tiny_run(), num_steps=400), broken)


def test_non_finite_losses_are_off_course_until_the_run_is_past_them():
    run = healthy_run(1, 2000)
    run.rows["loss_nats"][500] = np.nan
    assert by_rule(judge(run.record(600), run.forecast), "nonfinite").state == "off_course"
    assert by_rule(judge(run.record(1900), run.forecast), "nonfinite").state == "on_course"


def test_frozen_and_renamed_series_are_named():
    run = healthy_run(1, 2000)
    run.rows["loss_nats"][1500:] = run.rows["loss_nats"][1500]
    frozen = judge(run.record(1600), run.forecast)
    assert "frozen" in by_rule(frozen, "telemetry").evidence
    assert frozen.state == "cannot_tell", "what a frozen series seems to do is no alarm about the run"
    assert "frozen since step" in by_rule(frozen, "loss_shift").evidence
    run = healthy_run(1, 2000)
    step, value = run.evals["eval/macro_loss_nats"]
    run.evals["eval/macro_loss_nats"], run.evals["eval/new_name"] = (step[:8], value[:8]), (step[8:], value[8:])
    renamed = judge(run.record(), run.forecast)
    assert renamed.state == "cannot_tell"
    assert "eval/new_name begins there: renamed?" in by_rule(renamed, "telemetry").evidence


def test_silent_ranks_and_a_stalled_step_are_told_apart():
    run = healthy_run(1, 2000)
    stop = float(run.time[999])
    beats = [{"kind": "heartbeat", "step": 1000, "time": stop + 1500, "rank": rank, "phase": "step"} for rank in range(8)]
    run.events += beats
    record = run.record(1000)
    stalled = by_rule(judge(record, run.forecast, now=stop + 1520), "heartbeat")
    assert (stalled.state, stalled.signals) == ("off_course", ("no_progress",))
    run.events[-1]["time"] = stop
    silent = by_rule(judge(run.record(1000), run.forecast, now=stop + 1520), "heartbeat")
    assert silent.evidence.startswith("1 of 8 ranks are silent; rank 7")


def test_the_config_and_the_schedule_are_checked_against_the_run(tmp_path):
    schedule = {"kind": "linear", "warmup_fraction": 0.01, "final_fraction": 0.05, "decay_fraction": 1.0}
    config = {"optim": {"muonh_learning_rate": 0.02, "schedule": schedule}}
    run_dir = tmp_path / "r"
    start_run(run_dir, num_steps=200, config_digest=digest_of(config))
    (run_dir / "config.json").write_text(json.dumps(config))
    with Journal(run_dir) as journal:
        for step in range(1, 201):
            journal.log(step, {"learning_rate": 0.02 * (1 - 0.95 * (step / 200 - 0.01) / 0.99), "loss_nats": 3.0 - step / 1000})
    report = judge(open_run(run_dir))
    assert by_rule(report, "learning_rate").state == "on_course"
    assert by_rule(report, "config").state == "on_course"
    (run_dir / "config.json").write_text(json.dumps({"optim": {"muonh_learning_rate": 0.03, "schedule": schedule}}))
    report = judge(open_run(run_dir))
    assert by_rule(report, "learning_rate").state == "off_course"
    assert by_rule(report, "config").state == "off_course"


def test_the_shape_of_the_gradient_norm_is_judged_against_rungs_not_its_level():
    rungs = [healthy_run(seed, 3000).record() for seed in (11, 12, 13)]
    run = healthy_run(14, 3000)
    run.rows["grad_norm"] *= 40
    assert by_rule(judge(run.record(1500), run.forecast, rungs=rungs), "grad_shape").state == "on_course"
    run.rows["grad_norm"] *= np.exp(2.5 * np.clip((run.step - 1200) / 300, 0, 1))
    assert by_rule(judge(run.record(1500), run.forecast, rungs=rungs), "grad_shape").state == "off_course"
    assert by_rule(judge(run.record(1500), run.forecast), "grad_shape").state == "cannot_tell"


def test_the_report_has_the_documented_json_and_a_checklist_of_twelve():
    run = healthy_run(1, 2000)
    plain = judge(run.record(), run.forecast).as_json()
    json.dumps(plain, allow_nan=False)
    assert plain["state"] in ("on_course", "off_course", "cannot_tell")
    wanted = {"rule", "state", "value", "expected", "low", "high", "step", "evidence", "false_alarm_rate"}
    assert all(wanted <= set(finding) for finding in plain["findings"])
    assert len(plain["checklist"]) == 12
    assert all({"item", "value", "rule", "evidence", "state"} <= set(item) for item in plain["checklist"])
    assert plain["diagnosis"] == []


@pytest.mark.parametrize("content", ["[]", "{", "null"])
def test_a_config_that_is_no_object_is_one_line(tmp_path, content):
    start_run(tmp_path / "r", num_steps=4)
    (tmp_path / "r" / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        judge(open_run(tmp_path / "r"))


@pytest.mark.parametrize("config", [{"optim": []}, {"optim": {"schedule": []}}, {"optim": {"muonh_learning_rate": "1e-3", "schedule": {}}}])
def test_a_config_of_another_form_plans_no_learning_rate(tmp_path, config):
    start_run(tmp_path / "r", num_steps=4)
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    with Journal(tmp_path / "r") as journal:
        journal.log(1, {"learning_rate": 1e-3})
    states = {finding.rule: finding.state for finding in judge(open_run(tmp_path / "r")).findings}
    assert states["learning_rate"] == "cannot_tell"


@pytest.mark.parametrize(
    ("about", "judged"),
    [
        ("loss_nats", "eval/macro_loss_nats"),
        ("eval/macro_loss_nats, held-out domains, dropless", "eval/macro_loss_nats"),
        ("eval/wiki/loss_nats", "eval/wiki/loss_nats"),
        ("wiki", "eval/wiki/loss_nats"),
        ("paloma", "eval/macro_loss_nats"),  # a label the run does not know: its one held-out loss is meant
    ],
)
def test_a_forecast_is_held_against_the_evaluation_it_is_about(about, judged):
    steps = np.arange(100, 2100, 100)
    table = {"loss_nats": 3.0, "eval/macro_loss_nats": 3.1, "eval/wiki/loss_nats": 2.5}
    info = RunInfo(run_id="r", created=0.0, num_steps=2000, segments=(Segment(run_id="r", first_step=0, time=0.0),))
    record = TableRecord(info=info, table={name: series_of(steps, np.full(len(steps), value)) for name, value in table.items()})
    loss = table[judged]
    curve = [{"step": int(step), "loss": loss, "low90": loss - 0.05, "high90": loss + 0.05} for step in steps]
    level = next(finding for finding in judge(record, {"eval": about, "curve": curve}).findings if finding.rule == "loss_level")
    assert (level.metric, level.state, level.value) == (judged, "on_course", loss)
