"""Real operating-system processes with collectives between them train what one process trains, and end together when one is lost."""

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
from process_runs import children_of, command, free_port, losses, settings, start_by
from tiny_runs import lab_with_store, tiny_run

from forerun.base.errors import ConfigError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.parallel.config import MeshConfig, TransportConfig
from forerun.parallel.processes import join
from forerun.record.reader import open_run
from forerun.train.launch import launch
from forerun.train.loop import train

ON_FOUR = settings(
    mesh__data="2", mesh__expert="2", transport__kind="fixed_cells", transport__capacity_factor="0.9", eval__with_drops="true"
)
MINUTES = 60.0


@pytest.fixture(scope="module")
def lab_and_config(tmp_path_factory):
    """Twenty steps of a model and an optimizer that compile in seconds."""
    lab, manifest = lab_with_store(tmp_path_factory.mktemp("lab"))
    config = tiny_run(manifest, num_steps=20)
    config = replace(
        config,
        model=replace(MODEL, vocab_size=config.model.vocab_size),
        optim=replace(config.optim, recipe="adamw"),
        eval=replace(config.eval, every_fraction=1.0),
        checkpoint=replace(config.checkpoint, every_fraction=0.5),
    )
    write_json(lab.root / "config.json", config)
    return lab, config


@pytest.fixture(scope="module")
def on_four(lab_and_config):
    """The losses of one process with four virtual devices, which four processes of one device must repeat."""
    lab, config = lab_and_config
    transport = TransportConfig(kind="fixed_cells", capacity_factor=0.9)
    config = replace(config, mesh=MeshConfig(data=2, expert=2), transport=transport, eval=replace(config.eval, with_drops=True))
    train(config, lab, run_id="virtual", registration=None, quiet=True)
    return losses(lab, "virtual")


def check_equal(ours, theirs):
    assert ours.step.tolist() == theirs.step.tolist() == list(range(1, 21))
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)  # float32 sums in another order


def wait_for_checkpoint(lab: Lab, run_id: str, step: int, process: subprocess.Popen) -> None:
    place = lab.run(run_id) / "checkpoints" / f"{step:09d}" / "checkpoint.json"
    deadline = time.monotonic() + 5 * MINUTES
    while not place.exists():
        assert time.monotonic() < deadline and process.poll() is None, "the run ended, or hangs, before its checkpoint"
        time.sleep(0.02)


def test_two_processes_train_what_one_device_does(lab_and_config):
    lab, config = lab_and_config
    train(config, lab, run_id="alone", registration=None, quiet=True)
    roomy = settings(mesh__expert="2", transport__kind="ragged", transport__capacity_factor=str(config.model.num_experts))  # all would fit
    spread = [*roomy, "--processes", "2"]
    fast_to_compile = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    started = command(lab, "two", *spread)
    ended = subprocess.run(started, env=fast_to_compile, capture_output=True, text=True, check=False, timeout=15 * MINUTES)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0].startswith("two  20 steps") and len(ended.stdout.splitlines()) == 1
    check_equal(losses(lab, "two"), losses(lab, "alone"))
    ours, theirs = (open_run(lab.run(run)).series("eval/macro_loss_nats").value for run in ("two", "alone"))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    record = open_run(lab.run("two"))
    assert record.events("start")[0]["processes"] == 2 and record.writers() == [0, 1]
    assert record.events("fallback")[0]["reason"] == "emulated: no ragged exchange on cpu"


@pytest.mark.slow
def test_four_processes_train_what_one_does(lab_and_config, on_four):
    lab, _ = lab_and_config
    ended = subprocess.run(command(lab, "four", *ON_FOUR, "--processes", "4"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    check_equal(losses(lab, "four"), on_four)
    assert open_run(lab.run("four")).events("start")[0]["processes"] == 4
    dropped = [sum(event["dropped_by_layer"]) for event in open_run(lab.run("four")).events("drops")]
    assert dropped and all(count > 0 for count in dropped)
    for metric in ("eval/macro_loss_nats", "eval_with_drops/macro_loss_nats"):
        ours, theirs = (open_run(lab.run(run)).series(metric).value for run in ("four", "virtual"))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    dropless, with_drops = (open_run(lab.run("four")).series(f"{name}/macro_loss_nats").value for name in ("eval", "eval_with_drops"))
    assert (dropless != with_drops).all()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["jax", "srun", "mpirun 4", "mpirun 5"])
def test_four_processes_of_an_external_launcher_train_what_one_does(lab_and_config, on_four, launcher):
    lab, _ = lab_and_config
    run_id = f"four-by-{launcher.replace(' ', '-')}"
    started = start_by(launcher, [command(lab, run_id, *ON_FOUR)] * 4)
    told = [child.communicate(timeout=10 * MINUTES)[1] for child in started]
    assert [child.returncode for child in started] == [0, 0, 0, 0], told
    check_equal(losses(lab, run_id), on_four)
    assert open_run(lab.run(run_id)).events("start")[0]["processes"] == 4


@pytest.mark.slow
def test_processes_resume_after_their_launcher_was_killed(lab_and_config, on_four):
    lab, _ = lab_and_config
    whole = command(lab, "orphans", *ON_FOUR, "--processes", "2")
    first = subprocess.Popen(whole, env=os.environ)
    wait_for_checkpoint(lab, "orphans", 10, first)
    first.send_signal(signal.SIGKILL)  # its children must notice and let go of the journals
    first.wait()
    ended = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=10 * MINUTES)
    assert ended.returncode == 0, ended.stderr
    check_equal(losses(lab, "orphans"), on_four)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2])
def test_one_killed_process_ends_all_in_one_line_and_the_same_command_goes_on(lab_and_config, on_four, number):
    lab, _ = lab_and_config
    whole = command(lab, f"killed-{number}", *ON_FOUR, "--processes", "4")
    first = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_checkpoint(lab, f"killed-{number}", 10, first)
    os.kill(children_of(first)[number], signal.SIGKILL)
    told = first.communicate(timeout=1 * MINUTES)[1]
    assert first.returncode == 75, told
    assert f"error: process {number} of 4 was ended by SIGKILL" in told.splitlines()[-1] and "Traceback" not in told
    ended = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=10 * MINUTES)
    assert ended.returncode == 0, ended.stderr
    check_equal(losses(lab, f"killed-{number}"), on_four)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_without_a_launcher_the_others_notice_a_killed_process_by_themselves(lab_and_config, number):
    lab, _ = lab_and_config
    run_id = f"alone-{number}"
    longer = command(
        lab,
        run_id,
        *ON_FOUR,
        *settings(mesh__data="1", train__num_steps="4000", checkpoint__every_fraction="0.01", data__epoch_cap="100000"),
    )
    started = start_by("jax", [longer] * 2)
    wait_for_checkpoint(lab, run_id, 40, started[0])
    started[number].kill()
    other = started[1 - number]
    told = other.communicate(timeout=1 * MINUTES)[1]
    assert other.returncode in (75, -signal.SIGABRT), told  # the coordination service aborts the others when its own process is gone
    if other.returncode == 75:
        assert told.splitlines()[-1].startswith("error: a process of this run is gone") and "Traceback" not in told
    started[number].communicate()


@pytest.mark.slow
def test_processes_given_different_configs_all_refuse(lab_and_config):
    lab, _ = lab_and_config
    spread = settings(mesh__expert="2", transport__kind="pooled_wave")
    rates = (settings(optim__adam_learning_rate=rate) for rate in ("0.01", "0.02"))
    started = start_by("jax", [command(lab, "unlike", *spread, *rate) for rate in rates])
    for child in started:
        told = child.communicate(timeout=5 * MINUTES)[1]
        assert child.returncode == 2 and "must be given the same config" in told.splitlines()[-1] and "Traceback" not in told
    assert not lab.run("unlike").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["0", "1"])
def test_a_process_whose_others_do_not_come_ends_in_one_line(number):
    told = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": number}
    waiting = [sys.executable, "-c", "from forerun.parallel.processes import join; join(timeout_s=3)"]
    ended = subprocess.run(waiting, env=os.environ | told, capture_output=True, text=True, check=False, timeout=2 * MINUTES)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(
        f"error: the processes did not find each other at {told['JAX_COORDINATOR_ADDRESS']} within 3 s"
    )


def test_processes_that_cannot_share_the_mesh_are_refused():
    with pytest.raises(ConfigError, match="--processes must divide the 4 devices"):
        launch(["train"], 3, 4)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2"}, "go together"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"}, "must lie in 0..1, got 2"),
        ({"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "0"}, "must be a whole number"),
        ({"SLURM_STEP_NUM_TASKS": "four", "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS must be a whole number"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "3"}, "must lie in 0..1, got 3"),
    ],
)
def test_a_contradictory_environment_is_one_line(environment, message):
    with pytest.raises(ConfigError, match=message):
        join(environment)


@pytest.mark.parametrize(
    "environment",
    [{}, {"SLURM_NTASKS": "4"}, {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, {"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}],
)
def test_a_process_by_itself_joins_nothing(environment):
    join(environment)  # a batch script of srun knows how many tasks its steps may have, and is one process
    import jax

    assert jax.process_count() == 1
