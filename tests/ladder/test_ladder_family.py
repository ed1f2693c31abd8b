import json
import math
from dataclasses import replace

import msgspec
import pytest

from forerun.base.config import canonical_json, digest_of
from forerun.base.errors import ConfigError, RecordError
from forerun.base.lab import Lab
from forerun.cli.main import run as command
from forerun.ladder.family import Dial, family, member, target_of, total_compute, widened
from forerun.ladder.promise import promise_rung
from forerun.ladder.run import rungs_of, status
from forerun.loader.config import DataConfig
from forerun.model.config import ModelConfig
from forerun.model.count import fit_compute, num_active_params
from forerun.optim.config import OptimConfig
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.train.config import RunConfig, TrainConfig

MODEL = ModelConfig(
    vocab_size=512,
    d_model=64,
    num_layers=2,
    num_heads=4,
    d_head=16,
    num_kv_heads=2,
    num_global_kv_heads=1,
    window=16,
    num_experts=8,
    top_k=2,
    d_expert=32,
    d_latent=32,
    d_shared=32,
    gated_norm_rank=8,
)
BASE = RunConfig(
    name="toy",
    model=MODEL,
    optim=OptimConfig(muonh_learning_rate=0.02, adam_learning_rate=0.005),
    data=DataConfig(manifest="0" * 64),
    train=TrainConfig(num_steps=400, batch_size=8, seq_len=32),
)
DIAL = Dial(widths=(32, 48, 64, 96), tokens_per_active_param=20, extra_seeds={48: (1, 2)})


def test_every_rung_has_the_dialled_ratio_of_tokens_to_active_parameters():
    for rung in family(BASE, DIAL):
        ratio = rung.train.train_tokens / num_active_params(rung.model)
        assert ratio == pytest.approx(20, rel=0.5 * rung.train.batch_tokens / rung.train.train_tokens + 1e-9)  # steps are whole


def test_rungs_differ_from_the_base_only_in_size_length_and_rates():
    for rung in family(BASE, DIAL):
        same = replace(rung, name=BASE.name, model=BASE.model, optim=BASE.optim, train=BASE.train)
        assert same == BASE
        assert rung.optim == replace(
            BASE.optim, muonh_learning_rate=rung.optim.muonh_learning_rate, adam_learning_rate=rung.optim.adam_learning_rate
        )


def test_repeats_are_the_same_run_with_another_seed():
    rungs = {rung.name: rung for rung in family(BASE, DIAL)}
    assert list(rungs) == ["toy-d32", "toy-d48", "toy-d48-s1", "toy-d48-s2", "toy-d64", "toy-d96"]
    first, again = rungs["toy-d48"], rungs["toy-d48-s2"]
    assert again == replace(first, name="toy-d48-s2", train=replace(first.train, seed=2))


def test_relative_rates_follow_the_transfer_exponents_and_keep_the_base_where_nothing_changes():
    wide = member(BASE, DIAL, 96)
    tokens = wide.train.train_tokens / BASE.train.train_tokens
    by_hand = BASE.optim.muonh_learning_rate * tokens**-0.3461 * 1.5**-0.3448  # source: ladder/transfer.py, equal batch
    assert wide.optim.muonh_learning_rate == pytest.approx(by_hand)
    ratio = BASE.train.train_tokens / num_active_params(MODEL)
    same = member(BASE, Dial(widths=(64,), tokens_per_active_param=ratio), 64)
    assert same.optim.adam_learning_rate == pytest.approx(BASE.optim.adam_learning_rate)


def test_widening_scales_inner_widths_and_keeps_the_head_width():
    wide = widened(MODEL, 128)
    assert (wide.num_heads, wide.d_head, wide.num_kv_heads) == (8, 16, 4)
    assert (wide.d_expert, wide.d_latent, wide.d_shared) == (64, 64, 64)
    assert widened(MODEL, 64) == MODEL
    with pytest.raises(ConfigError, match=r"multiples of model\.d_head=16, got 40"):
        widened(MODEL, 40)


def test_the_target_of_a_run_counts_compute_without_the_head():
    rung = member(BASE, DIAL, 96)
    assert target_of(rung).compute == pytest.approx(fit_compute(rung.model, 32, rung.train.train_tokens))
    assert total_compute([rung, rung]) == pytest.approx(2 * target_of(rung).compute)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"widths": (64, 32)}, "must rise"),
        ({"widths": ()}, "must rise"),
        ({"tokens_per_active_param": 0}, "must be positive"),
        ({"rates": "guess"}, "relative or transfer"),
        ({"extra_seeds": {128: (1,)}}, "which is no rung"),
    ],
)
def test_a_dial_that_cannot_be_meant_is_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        replace(DIAL, **wrong)


def loss_of(compute, fraction):
    return 2.0 + 1.5 * (compute / 1e10) ** -0.14 * (1.4 - 0.4 * fraction)


def record(lab, run, upto=1.0):
    start_run(lab.run(run.name), num_steps=run.train.num_steps, config_digest=digest_of(run))
    with Journal(lab.run(run.name)) as journal:
        for part in range(1, 21):
            step = round(part / 20 * run.train.num_steps)
            if part / 20 <= upto:
                journal.log(step, {"eval/macro_loss_nats": loss_of(target_of(run).compute, part / 20)})


def test_status_tells_waiting_started_and_finished_apart(tmp_path):
    lab, runs = Lab(tmp_path), family(BASE, DIAL)
    record(lab, runs[0])
    record(lab, runs[1], upto=0.5)
    assert [each.state for each in status(runs[:3], lab)] == ["finished", "started", "waiting"]


def test_recorded_rungs_become_a_forecast_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_bytes(canonical_json(BASE))
    arguments = ["ladder", "plan", "base.json", "--widths", "32,48,64,96", "--tokens-per-active-param", "20", "--repeat", "48:1"]
    assert command([*arguments, "--out", "rungs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["rung"] for row in rows] == ["toy-d32", "toy-d48", "toy-d48-s1", "toy-d64", "toy-d96"]
    runs = family(BASE, replace(DIAL, extra_seeds={48: (1,)}))
    for run in runs:
        record(Lab(tmp_path / "lab"), run)
    assert command(["ladder", "status", "rungs", "--lab", "lab"]) == 0
    assert capsys.readouterr().out.count("finished") == 5
    assert command(["ladder", "export", "rungs", "--lab", "lab", "--out", "."]) == 0
    target = target_of(member(BASE, replace(DIAL, widths=(192,), extra_seeds={}), 192))
    (tmp_path / "target.json").write_bytes(canonical_json(target))
    capsys.readouterr()
    assert command(["forecast", "--rungs", "rungs.csv", "--evals", "evals.csv", "--target", "target.json", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["final"]["loss"] == pytest.approx(loss_of(target.compute, 1.0), rel=0.005)
    assert answer["seed_noise"] == 0.0


def test_a_run_without_evaluations_is_no_rung(tmp_path):
    run = member(BASE, DIAL, 32)
    start_run(tmp_path / "runs" / run.name, num_steps=10)
    with pytest.raises(RecordError, match="after step 0"):
        rungs_of([run], Lab(tmp_path))


def test_a_rung_is_promised_once_as_exploratory_with_chance_as_baseline(tmp_path):
    lab, run = Lab(tmp_path), member(BASE, DIAL, 32)
    first = promise_rung(run, lab, owner="someone")
    assert promise_rung(run, lab, owner="someone else") == first
    assert first.config_digest == digest_of(run)
    assert msgspec.to_builtins(first.body["promise"])["kind"] == "exploratory"
    assert f"{math.log(512):.4f}" in (lab.experiments / run.name / "experiment.toml").read_text()


def test_a_planned_rung_is_not_rewritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_bytes(canonical_json(BASE))
    arguments = ["ladder", "plan", "base.json", "--widths", "32,64", "--out", "rungs"]
    assert command([*arguments, "--tokens-per-active-param", "20"]) == 0
    assert command([*arguments, "--tokens-per-active-param", "20"]) == 0
    with pytest.raises(ConfigError, match="holds another config"):
        command([*arguments, "--tokens-per-active-param", "40"])
