"""Issues, pull requests, calibration, contingency arithmetic and the release bundle."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import jax
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from github_server import GitHubServer
from tiny_runs import lab_with_store, tiny_run

from forerun.base.errors import ConfigError, RegistryError, SourceError
from forerun.base.lab import Lab
from forerun.optim.config import ScheduleConfig
from forerun.optim.schedule import schedule
from forerun.plan.cost import plan
from forerun.plan.devices import device_named
from forerun.plan.run import planned
from forerun.publish.github import GitHub
from forerun.publish.issue_text import issue_text, marker, title_of
from forerun.publish.release import release
from forerun.record.run import start_run
from forerun.registry import ledger
from forerun.registry.calibration import calibration, wilson
from forerun.registry.register import register
from forerun.registry.replan import replan, schedule_factor
from forerun.train.checkpoint import Checkpoints
from forerun.train.state import init_state

TOML = """
title = "t"
owner = "ada"
kind = "confirmatory"
hypothesis = "h"
falsified_by = "f"
metric = "eval/macro_loss_nats"
metric_definition = "d"
baseline = "3.4"
success = "inside(final(eval/macro_loss_nats), low90, high90)"
compute_budget_flops = 1e15
already_seen = "nothing"
[prediction]
point = 3.0
low50 = 2.95
high50 = 3.05
low90 = 2.9
high90 = 3.1
"""


def promised(lab: Lab, name: str, config: dict):
    folder = lab.experiments / name
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(TOML)
    return register(lab, folder, config)


def test_issue_comment_and_pull_request_are_made_once_and_updated_after(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab, "001-x", {"a": 1})
    text = issue_text(lab, registration)
    assert "2.9 to 3.1" in text and registration.config_digest in text
    with GitHubServer() as server, GitHub("lab/runs", token="secret", api=server.address) as github:
        server.issues += [{"number": number + 1, "body": None, "title": "other"} for number in range(120)]  # more than a page
        addresses = {
            github.put_issue(title=title_of(registration), body=body, marker=marker(registration)) for body in (text, text, text + "!")
        }
        assert len(addresses) == 1 and server.writes == ["POST issues", "PATCH issues/121"]
        for body in ("one", "one", "two"):
            github.put_comment(
                issue_marker=marker(registration), body=f"{marker(registration, 'verdict')}\n{body}", marker=marker(registration, "verdict")
            )
        assert [one["body"].splitlines()[-1] for one in server.comments[121]] == ["two"]
        for content in (b"1", b"1", b"2"):
            github.put_pull_request(branch="experiment/001-x", title="t", body="b", files={"experiments/001-x/config.json": content})
        assert len(server.pulls) == 1 and sum(write.startswith("PUT") for write in server.writes) == 2
    with GitHubServer() as server, GitHub("lab/runs", token="wrong", api=server.address) as github, pytest.raises(SourceError, match="401"):
        github.find_issue("x")
    with pytest.raises(ConfigError, match="owner/name"):
        GitHub("lab", token="secret")


def test_calibration_counts_each_promise_once_with_a_wilson_interval(tmp_path):
    lab = Lab(tmp_path)
    for index, (inside50, inside90) in enumerate([(True, True), (False, True), (False, False)]):
        promised(lab, f"00{index}-x", {"a": index})
        for held in ((False, False), (inside50, inside90)):
            verdict = {"experiment": f"00{index}-x", "answer": "kept", "inside50": held[0], "inside90": held[1]}
            ledger.append(lab, "verdict", {"experiment": f"00{index}-x", "verdict": verdict})
    rows = {row.group: (row.num_scored, row.held50, row.held90) for row in calibration(lab)}
    assert rows == {"all": (3, 1, 2), "owner:ada": (3, 1, 2), "metric:eval/macro_loss_nats": (3, 1, 2)}
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # worked by hand
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_the_replanned_rate_is_the_trainers_rate(kind):
    settings = ScheduleConfig(kind=kind, warmup_fraction=0.05, decay_fraction=0.3)
    plain = msgspec.to_builtins(settings)
    for num_steps in (7, 100):
        theirs = [float(schedule(settings, num_steps)(step)) for step in range(num_steps)]
        assert [schedule_factor(plain, step, num_steps) for step in range(num_steps)] == pytest.approx(theirs, abs=1e-6)


def test_replan_counts_tokens_compute_and_days_of_another_end():
    config = {"train": {"num_steps": 100, "batch_size": 2, "seq_len": 8}, "optim": {"schedule": msgspec.to_builtins(ScheduleConfig())}}
    answer = replan(config, step=50, new_num_steps=80, train_flops=1e12, step_time_s=864.0)
    assert (answer.new_train_tokens, answer.days_left, answer.new_days_left) == (1280, pytest.approx(0.5), pytest.approx(0.3))
    assert answer.flops_saved == pytest.approx(2e11) and answer.factor_new < answer.factor_now
    with pytest.raises(RegistryError, match="more than the 50 finished"):
        replan(config, step=50, new_num_steps=50, train_flops=1.0)


def test_a_release_is_complete_and_its_ledger_verifies_with_python_alone(tmp_path):
    lab, manifest = lab_with_store(tmp_path / "lab")
    config = tiny_run(manifest)
    promised(lab, "001-x", msgspec.to_builtins(config))
    start_run(lab.run("r"), num_steps=20, unregistered=True)
    (lab.run("r") / "config.json").write_bytes(msgspec.json.encode(config))
    state = init_state(config)
    Checkpoints(lab.run("r") / "checkpoints", config_digest="").save(state, 20)
    out = release(lab, "r", tmp_path / "out", with_optimizer=True, price_per_device_hour=2.0)
    sums = dict(line.split("  ")[::-1] for line in (out / "SHA256SUMS").read_text().splitlines())
    assert all(hashlib.sha256((out / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    wanted = {
        "model.safetensors",
        "config.json",
        "modeling_forerun.py",
        "README.md",
        "metrics.parquet",
        "data_order.json",
        "croissant.json",
    }
    assert wanted | {"ro-crate-metadata.json", "ledger/verify.py", "optimizer.safetensors", "tokenizer.json"} <= set(sums)
    from safetensors.numpy import load_file

    held = load_file(out / "model.safetensors")
    np.testing.assert_array_equal(held["weights.embedding"], np.asarray(state.params["embedding"]))
    assert len(held) == len(jax.tree.leaves(state.params)) + 1
    assert "unregistered" in (out / "README.md").read_text() and pq.read_table(out / "metrics.parquet").column_names == [
        "metric",
        "step",
        "value",
    ]
    card = (out / "README.md").read_text()
    outcome = plan(planned(config), device_named("cpu"))
    assert f"| energy | {outcome.energy_mwh * 1000:.3g} kWh planned, 0 kWh by the time on record" in card
    assert f"| cost | {outcome.days * 24 * 2:.3g} planned, 0 spent, at 2 a device-hour |" in card
    listed = {part["@id"] for part in json.loads((out / "croissant.json").read_bytes())["distribution"]}
    assert {"model.safetensors", "metrics.parquet"} <= listed
    done = subprocess.run([sys.executable, "-I", str(out / "ledger" / "verify.py"), str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
