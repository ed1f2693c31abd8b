"""Real operating-system processes with collectives between them train what one process trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from mesh_runs import MODEL
from tiny_runs import lab_with_store, tiny_run

from forerun.base.errors import ConfigError
from forerun.base.files import write_json
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.parallel.processes import join
from forerun.record.reader import open_run
from forerun.train.launch import launch
from forerun.train.loop import train

COMMAND = "from forerun.cli.main import main; main()"


@pytest.fixture(scope="module")
def lab_and_config(tmp_path_factory):
    lab, manifest = lab_with_store(tmp_path_factory.mktemp("lab"))
    config = tiny_run(manifest, num_steps=20)
    config = replace(
        config,
        model=replace(MODEL, vocab_size=config.model.vocab_size),
        eval=replace(config.eval, every_fraction=1.0),
        checkpoint=replace(config.checkpoint, every_fraction=0.5),
    )
    write_json(lab.root / "config.json", config)
    return lab, config


ON_FOUR = (
    "--set",
    "mesh.data=2",
    "--set",
    "mesh.expert=2",
    "--set",
    "transport.kind=fixed_cells",
    "--set",
    "transport.capacity_factor=0.9",
)


def on_four(config):
    transport = TransportConfig(kind="fixed_cells", capacity_factor=0.9)
    return replace(config, mesh=MeshConfig(data=2, expert=2), transport=transport)


def command(lab, run_id, *options):
    return [
        sys.executable,
        "-c",
        COMMAND,
        "train",
        str(lab.root / "config.json"),
        "--unregistered",
        "--lab",
        str(lab.root),
        "--run-id",
        run_id,
        *options,
    ]


def losses(lab, run_id):
    return open_run(lab.run(run_id)).series("loss_nats")


def test_two_processes_train_what_one_device_does(lab_and_config):
    lab, config = lab_and_config
    train(config, lab, run_id="alone", registration=None, quiet=True)
    spread = ("--set", "mesh.expert=2", "--set", "transport.kind=pooled_wave", "--processes", "2")
    ended = subprocess.run(command(lab, "two", *spread), env=os.environ, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0].startswith("two  20 steps") and len(ended.stdout.splitlines()) == 1
    ours, theirs = losses(lab, "two"), losses(lab, "alone")
    assert ours.step.tolist() == theirs.step.tolist() == list(range(1, 21))
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)  # float32 sums in another order
    evaluations = [open_run(lab.run(run)).series("eval/macro_loss_nats").value for run in ("two", "alone")]
    np.testing.assert_allclose(*evaluations, atol=1e-5)
    record = open_run(lab.run("two"))
    assert record.events("start")[0]["processes"] == 2 and record.writers() == [0, 1]


@pytest.mark.slow
def test_processes_resume_after_their_launcher_was_killed(lab_and_config):
    lab, config = lab_and_config
    train(on_four(config), lab, run_id="one", registration=None, quiet=True)
    whole = command(lab, "killed", *ON_FOUR, "--processes", "2")
    first = subprocess.Popen(whole, env=os.environ)
    half = lab.run("killed") / "checkpoints" / "000000010" / "checkpoint.json"
    deadline = time.monotonic() + 600
    while not half.exists() and first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)  # its children must notice and let go of the journals
    first.wait()
    ended = subprocess.run(whole, env=os.environ, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    ours, theirs = losses(lab, "killed"), losses(lab, "one")
    assert ours.step.tolist() == theirs.step.tolist()
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)
    record = open_run(lab.run("killed"))
    dropped = [sum(event["dropped_by_layer"]) for event in record.events("drops")]
    assert dropped and all(count > 0 for count in dropped)


@pytest.mark.slow
def test_four_processes_under_an_external_launcher_train_what_one_does(lab_and_config):
    lab, config = lab_and_config
    train(on_four(config), lab, run_id="virtual", registration=None, quiet=True)
    environment = os.environ | {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:47613", "JAX_NUM_PROCESSES": "4"}
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
    started = [subprocess.Popen(command(lab, "four", *ON_FOUR), env=environment | {"JAX_PROCESS_ID": str(number)}) for number in range(4)]
    assert [child.wait(timeout=900) for child in started] == [0, 0, 0, 0]
    np.testing.assert_allclose(losses(lab, "four").value, losses(lab, "virtual").value, atol=1e-5)


def test_processes_that_cannot_share_the_mesh_are_refused():
    with pytest.raises(ConfigError, match="--processes must divide the 4 devices"):
        launch(["train"], 3, 4)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2"}, "go together"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"}, "must lie in 0..1, got 2"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0"}, "must be a whole number"),
    ],
)
def test_a_contradictory_environment_is_one_line(environment, message):
    with pytest.raises(ConfigError, match=message):
        join(environment)
    join({})  # nothing to join: one process
