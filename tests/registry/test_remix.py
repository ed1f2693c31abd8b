"""Another mix from some step on: epochs by hand, as the loader counts them, and refusals."""

from __future__ import annotations

import json

import msgspec
import pytest
from tiny_runs import lab_with_store, tiny_run

from forerun.base.errors import PlatformError, RegistryError
from forerun.base.files import write_json
from forerun.cli.main import run
from forerun.loader.batches import Batches
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.store import open_store
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.registry.remix import remix

MANIFEST = {"cells": [{"name": "a/q0", "num_tokens": 1000}, {"name": "b/q0", "num_tokens": 3000}, {"name": "c/q0", "num_tokens": 100}]}
CONFIG = {
    "train": {"num_steps": 100, "batch_size": 2, "seq_len": 10},
    "optim": {"schedule": {"planned_steps": 0}},
    "data": {"mixture": [{"start_fraction": 0.0, "weights": {"a/q0": 0.5, "b/q0": 0.5}}], "epoch_cap": 2.0},
}


def test_epochs_of_a_changed_mix_are_those_worked_by_hand():
    answer = remix(CONFIG, MANIFEST, {"a/q0": 0.25, "c/q0": 0.75}, step=40, new_num_steps=80)
    cells = {
        row.cell: (row.weight, row.new_weight, round(row.exposure, 9), round(row.new_exposure, 9), row.over_cap) for row in answer.cells
    }
    # 20 tokens a step: 800 until step 40 by halves, then 800 until step 80; as planned 2,000 by halves
    assert cells == {
        "a/q0": (0.5, 0.25, 1.0, 0.6, False),
        "b/q0": (0.5, 0.0, round(1 / 3, 9), round(400 / 3000, 9), False),
        "c/q0": (0.0, 0.75, 0.0, 6.0, True),
    }
    assert answer.mixture[-1] == {"start_fraction": 0.4, "weights": {"a/q0": 0.25, "c/q0": 0.75}}


def test_a_run_without_a_mixture_reads_in_proportion_and_an_amended_length_moves_no_phase():
    plain = CONFIG | {"data": {"epoch_cap": 8.0}}
    assert {row.cell: row.weight for row in remix(plain, MANIFEST, {"a/q0": 1.0}, step=10, new_num_steps=100).cells}["b/q0"] == 3000 / 4100
    shortened = CONFIG | {"train": CONFIG["train"] | {"num_steps": 50}, "optim": {"schedule": {"planned_steps": 100}}}
    assert remix(shortened, MANIFEST, {"a/q0": 1.0}, step=40, new_num_steps=50).start_fraction == 0.4


@pytest.mark.parametrize(
    ("weights", "words"),
    [({"z/q0": 1.0}, "does not have"), ({"a/q0": 1.5, "b/q0": -0.5}, "must not be negative"), ({"a/q0": 0.5}, "must sum to 1")],
)
def test_a_mix_that_cannot_be_read_is_refused(weights, words):
    with pytest.raises(RegistryError, match=words):
        remix(CONFIG, MANIFEST, weights, step=1, new_num_steps=100)


def test_the_command_prints_epochs_that_the_loader_agrees_with(tmp_path, capsys):
    lab, manifest = lab_with_store(tmp_path / "lab")
    store, config = open_store(lab, manifest), tiny_run(manifest)
    start_run(lab.run("r"), num_steps=20, unregistered=True)
    with Journal(lab.run("r")) as journal:
        journal.log(10, {"loss_nats": 3.0, "step_time_s": 1.0})
    write_json(lab.run("r") / "config.json", config)
    name = max(store.cells, key=lambda cell: store.cells[cell].num_tokens)
    (tmp_path / "mix.json").write_text(json.dumps({name: 1.0}))
    command = ["replan", "-", "--run", "r", "--mixture", str(tmp_path / "mix.json"), "--lab", str(lab.root)]
    assert run([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["remix"]
    phases = tuple(msgspec.convert(phase, MixturePhase) for phase in answer["mixture"])
    batches = Batches(store, DataConfig(manifest=manifest, mixture=phases, epoch_cap=64.0), num_steps=20, batch_size=8, seq_len=32)
    planned = {row["cell"]: row["new_exposure"] for row in answer["cells"]}
    assert planned[name] == pytest.approx(batches.exposure[name], rel=0.1)  # the loader reads whole windows
    assert run(command) == 0 and "epochs" in capsys.readouterr().out
    assert run(["replan", "-", "--run", "r", "--num-steps", "40", "--lab", str(lab.root)]) == 0
    printed = capsys.readouterr().out
    assert "FLOPs more" in printed and "left       10.0 s -> 30.0 s" in printed
    (tmp_path / "mix.json").write_text('{"a": "many"}')
    with pytest.raises(PlatformError):
        run(command)
