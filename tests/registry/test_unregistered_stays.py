"""An unregistered run is never shown as registered: random sequences of everything that can touch a run, and the trainer's own in a slow test."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from test_promises import PROMISE, toml_of
from tiny_runs import lab_with_store, tiny_run

from forerun.base.config import digest_of
from forerun.base.errors import PlatformError
from forerun.base.lab import Lab
from forerun.cli.main import run as command
from forerun.publish.issue_text import issue_text
from forerun.record.copy import copy_run
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import load_run, start_foreign, start_run
from forerun.registry import verifier
from forerun.registry.changes import allowed_configs, amend, close
from forerun.registry.gate import require_registered
from forerun.registry.register import register, registrations
from forerun.registry.verdict import judge, run_of

CONFIGS = [{"train": {"seed": seed}, "data": {}} for seed in range(3)]
RUNS = ("a", "b", "c")


class Sequences:
    """A lab and what was done to it: each call is one command, and `unregistered` holds the runs begun without a promise."""

    def __init__(self, root: Path, seed: int) -> None:
        self.lab, self.rng, self.unregistered = Lab(root), random.Random(seed), set[str]()

    def train(self) -> None:
        """As the trainer begins or goes on: through the gate, under the promise the run has."""
        name, config, free = self.rng.choice(RUNS), self.rng.choice(CONFIGS), self.rng.random() < 0.4
        registration = None if free else require_registered(self.lab, digest_of(config))
        folder = self.lab.run(name)
        if (folder / "run.json").exists() and load_run(folder).registration_id != (registration.id if registration else None):
            return
        new = not (folder / "run.json").exists()
        start_run(
            folder,
            num_steps=2,
            registration_id=registration.id if registration else None,
            unregistered=registration is None,
            config_digest=digest_of(config),
        )
        self.unregistered |= {name} if new and free else set()
        with Journal(folder) as journal:
            journal.event("start", 0, registration_id=registration.id if registration else None)
            journal.log(2, {"eval/macro_loss_nats": 3.0, "loss_nats": 3.0})

    def promise(self) -> None:
        index = self.rng.randrange(3)
        folder = self.lab.experiments / f"00{index}-x"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.toml").write_text(toml_of(PROMISE))
        register(self.lab, folder, self.rng.choice(CONFIGS))

    def amendment(self) -> None:
        amend(
            self.lab,
            f"00{self.rng.randrange(3)}-x",
            reason="r",
            what="w",
            at_step=1,
            expected="e",
            control="",
            config=self.rng.choice(CONFIGS),
        )

    def closing(self) -> None:
        close(self.lab, f"00{self.rng.randrange(3)}-x", "failed", fraction_done=0.5)

    def copy(self) -> None:
        name = self.rng.choice(RUNS)
        copy_run(open_run(self.lab.run(self.rng.choice(RUNS))), self.lab, name)
        self.unregistered.add(name)

    def rows_from_outside(self) -> None:
        name = self.rng.choice(RUNS)
        start_foreign(self.lab.run(name))
        self.unregistered.add(name)
        with Journal(self.lab.run(name)) as journal:
            journal.log(2, {"eval/macro_loss_nats": 2.9})

    def verdicts(self) -> None:
        for registration in registrations(self.lab):
            with suppress(PlatformError):
                assert run_of(self.lab, registration).name not in self.unregistered

    def check(self) -> None:
        promises = {registration.id: registration for registration in registrations(self.lab)}
        for path in self.lab.runs.glob("*/run.json"):
            info = load_run(path.parent)
            assert info.unregistered == (info.run_id in self.unregistered) == (info.registration_id is None)
            if info.run_id in self.unregistered:
                assert all(judge(self.lab, one, path.parent).answer == "deviated" for one in promises.values())
            else:
                assert info.config_digest in allowed_configs(self.lab, promises[str(info.registration_id)])
        assert verifier.verify(self.lab.root)[1] == []


@pytest.mark.parametrize("seed", range(3))
def test_no_random_sequence_turns_an_unregistered_run_into_a_registered_one(tmp_path, seed):
    work = Sequences(tmp_path, seed)
    steps = [work.train, work.train, work.promise, work.amendment, work.closing, work.copy, work.rows_from_outside, work.verdicts]
    for _ in range(30):
        with suppress(PlatformError):
            work.rng.choice(steps)()
    work.check()
    assert len(list(work.lab.runs.glob("*/run.json"))) > 1


def test_a_promise_names_the_runs_of_its_config_that_were_there_before(tmp_path):
    lab = Lab(tmp_path)
    start_run(lab.run("peek"), num_steps=1, unregistered=True, config_digest=digest_of(CONFIGS[0]))
    folder = lab.experiments / "000-x"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(toml_of(PROMISE))
    registration = register(lab, folder, CONFIGS[0])
    assert registration.body["earlier_runs"] == ["peek"]
    assert "Runs of this config before the promise: peek." in issue_text(lab, registration)


def test_of_two_runs_under_one_promise_the_first_is_judged_and_the_second_deviates(tmp_path):
    lab = Lab(tmp_path)
    folder = lab.experiments / "000-x"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(toml_of(PROMISE))
    registration = register(lab, folder, CONFIGS[0])
    for name in ("zz-first", "aa-second"):
        start_run(lab.run(name), num_steps=1, registration_id=registration.id, config_digest=registration.config_digest)
        with Journal(lab.run(name)) as journal:
            journal.log(1, {"eval/macro_loss_nats": 3.0, "loss_nats": 3.0})
    assert run_of(lab, registration).name == "zz-first"
    assert judge(lab, registration, lab.run("zz-first")).answer == "kept"
    assert "zz-first was started under this promise before" in judge(lab, registration, lab.run("aa-second")).words


@pytest.mark.slow
def test_the_trainers_own_commands_keep_an_unregistered_run_unregistered(tmp_path):
    lab, manifest = lab_with_store(tmp_path / "lab")
    config, at = tiny_run(manifest, num_steps=8), ["--lab", str(tmp_path / "lab")]
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    path = str(tmp_path / "config.json")
    with pytest.raises(PlatformError, match="no registered experiment"):
        command(["train", path, "--run-id", "r", *at])
    assert command(["train", path, "--run-id", "r", "--unregistered", "--stop-at-step", "4", *at]) == 0
    folder = lab.experiments / "001-x"
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(toml_of(PROMISE))
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    assert command(["register", "001", *at]) == 0
    with pytest.raises(PlatformError, match="goes on that way only"):
        command(["train", "001", "--run-id", "r", *at])
    assert command(["train", path, "--run-id", "r", "--unregistered", *at]) == 0
    assert command(["fork", "r", "--at-step", "4", "--run-id", "f", *at]) == 0
    with pytest.raises(PlatformError, match="no run was started under"):
        command(["verdict", "001", *at])
    assert command(["verdict", "001", "--run", "r", "--no-record", *at]) == 1
    assert command(["publish", "release", "r", "--out", str(tmp_path / "out"), *at]) == 0
    assert "no promise: an unregistered run" in (tmp_path / "out" / "README.md").read_text()
    for name in ("r", "f"):
        info = json.loads((lab.run(name) / "run.json").read_bytes())
        assert info["unregistered"] and info["registration_id"] is None
    assert command(["verify", *at]) == 0
