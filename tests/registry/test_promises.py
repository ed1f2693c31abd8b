"""Promises are frozen before the run, every edited byte is found, and nothing unregistered passes the gate."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from recorded import Recorded

from forerun.base.config import decode, digest_of
from forerun.base.errors import CheckFailed, PlatformError, RegistryError
from forerun.base.lab import Lab
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.registry import ledger, verifier
from forerun.registry.changes import amend, close, registration_of
from forerun.registry.experiment import Experiment
from forerun.registry.gate import closed, require_registered
from forerun.registry.register import register
from forerun.registry.rules import parse
from forerun.registry.verdict import judge, record_verdict

PROMISE = {
    "schema": 1,
    "title": "t",
    "owner": "o",
    "kind": "confirmatory",
    "hypothesis": "h",
    "falsified_by": "f",
    "metric": "eval/macro_loss_nats",
    "metric_definition": "d",
    "prediction": {"point": 3.0, "low50": 2.95, "high50": 3.05, "low90": 2.9, "high90": 3.1},
    "baseline": "b",
    "success": "inside(final(eval/macro_loss_nats), 2.9, 3.1)",
    "stop": ["final(loss_nats) > 12"],
    "compute_budget_flops": 1e15,
    "already_seen": "nothing",
}


def toml_of(promise: dict) -> str:
    top = "\n".join(f"{key} = {json.dumps(value)}" for key, value in promise.items() if key != "prediction")
    return f"{top}\n[prediction]\n" + "\n".join(f"{key} = {value}" for key, value in promise["prediction"].items())


def promised(lab: Lab, name: str = "001-x", seed: int = 0, **changes: object):
    folder = lab.experiments / name
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(toml_of(PROMISE | changes))
    return register(lab, folder, {"train": {"seed": seed}, "data": {}})


def run(lab: Lab, registration, losses: list[float], run_id: str = "r", num_steps: int | None = None) -> None:
    start_run(
        lab.run(run_id), num_steps=num_steps or len(losses), registration_id=registration.id, config_digest=registration.config_digest
    )
    with Journal(lab.run(run_id)) as journal:
        for step, loss in enumerate(losses, 1):
            journal.log(step, {"eval/macro_loss_nats": loss, "loss_nats": loss})


def test_a_promise_is_kept_missed_or_undecided_by_its_own_rule(tmp_path):
    verdicts = []
    for name, losses in (("good", [4.0, 3.05]), ("bad", [4.0, 3.2]), ("short", [4.0])):
        lab = Lab(tmp_path / name)
        registration = promised(lab)
        run(lab, registration, losses, num_steps=2)
        verdicts.append(judge(lab, registration, lab.run("r")))
    good, bad, short = verdicts
    assert (good.answer, good.inside90, good.inside50) == ("kept", True, True)
    assert good.interval_score90 == pytest.approx(0.2)
    assert (bad.answer, bad.inside90) == ("missed", False)
    assert bad.interval_score90 == pytest.approx(0.2 + 20 * 0.1)  # width + 2/0.1 x the miss
    assert (short.answer, short.fraction_done, short.outcome) == ("undecided", 0.5, 4.0)


def test_a_run_under_another_promise_or_with_undeclared_changes_deviates(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab)
    start_run(lab.run("alone"), num_steps=1, unregistered=True)
    assert judge(lab, registration, lab.run("alone")).answer == "deviated"
    run(lab, registration, [3.0, 3.0, 3.0], "changed")
    mixture_b = {"data": {"seed": 1}}
    start_run(lab.run("changed"), num_steps=3, config_digest=digest_of(mixture_b), first_step=3, changed="mixture b")
    assert "undeclared change at step 3" in " ".join(judge(lab, registration, lab.run("changed")).deviations)
    amend(lab, "001-x", reason="better data", what="mixture b", at_step=2, expected="+0.02", control="", config=mixture_b)
    assert judge(lab, registration, lab.run("changed")).deviations == ()
    assert require_registered(lab, digest_of(mixture_b)).change == "mixture b"


def test_the_gate_opens_for_the_registered_config_alone_and_shuts_at_closing(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab)
    assert require_registered(lab, registration.config_digest).id == registration.id
    with pytest.raises(RegistryError, match="no registered experiment"):
        require_registered(lab, digest_of({"train": {"seed": 1}, "data": {}}))
    assert closed(lab) == {}
    close(lab, "001", "failed", note="n", fraction_done=0.4)
    assert closed(lab) == {"001-x": "failed"}
    with pytest.raises(RegistryError, match="closed"):
        require_registered(lab, registration.config_digest)
    with pytest.raises(RegistryError, match="closed"):
        close(lab, "001", "succeeded")


def test_registering_twice_is_the_same_promise_and_another_config_is_refused(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab)
    assert register(lab, lab.experiments / "001-x", {"train": {"seed": 0}, "data": {}}).id == registration.id
    with pytest.raises(RegistryError, match="another config"):
        register(lab, lab.experiments / "001-x", {"train": {"seed": 5}, "data": {}})


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("long"))
    promised(lab)
    lines, prev = [], ledger.read(lab)[0].digest
    for seq in range(1, 1000):
        line = {
            "schema": 1,
            "seq": seq,
            "kind": "amendment",
            "time": "2026-01-01T00:00:00+00:00",
            "prev": prev,
            "body": {"experiment": "y", "n": seq},
        }
        line["digest"] = prev = digest_of(line)
        lines.append(json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    with lab.ledger.open("ab") as file:
        file.write(b"".join(lines))
    return lab


def test_a_dropped_a_swapped_and_a_torn_line_are_found_and_nothing_is_appended(long_ledger, tmp_path):
    lines = long_ledger.ledger.read_bytes().splitlines(keepends=True)
    broken = {"dropped": lines[:10] + lines[11:], "swapped": [lines[1], lines[0], *lines[2:]], "torn": [*lines[:5], lines[5][:-4]]}
    for name, kept in broken.items():
        lab = Lab(tmp_path / name)
        lab.ledger.parent.mkdir(parents=True)
        lab.ledger.write_bytes(b"".join(kept))
        with pytest.raises(CheckFailed, match="was changed"):
            ledger.append(lab, "closing", {})
        assert lab.ledger.read_bytes() == b"".join(kept)
        assert verifier.verify(lab.root)[1]


def test_a_changed_config_forecast_or_start_before_the_promise_is_found(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab)
    run(lab, registration, [3.0])
    assert verifier.verify(tmp_path)[1] == []
    info = json.loads((lab.run("r") / "run.json").read_bytes())
    (lab.run("r") / "run.json").write_text(json.dumps(info | {"created": info["created"] - 3600}))
    (lab.experiments / "001-x" / "config.json").write_bytes(b'{"data":{},"train":{"seed":1}}\n')
    problems = " ".join(verifier.verify(tmp_path)[1])
    assert "not the registered config" in problems and "started before its promise" in problems


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"created": "noon"}', '{"created": 1, "registration_id": [1]}'])
def test_a_run_json_of_another_form_is_a_problem_of_its_run(tmp_path, content):
    lab = Lab(tmp_path)
    run(lab, promised(lab), [3.0])
    (lab.run("r") / "run.json").write_text(content)
    problems = verifier.verify(tmp_path)[1]
    assert len(problems) >= 1 and all(problem.startswith("runs/r") for problem in problems)


def test_registering_into_a_thousand_line_ledger_takes_under_a_second(long_ledger):
    started = time.process_time()
    promised(long_ledger, "002-y", seed=9)
    assert time.process_time() - started < 1.0
    assert registration_of(long_ledger, "002-y").experiment == "002-y"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prediction": {**PROMISE["prediction"], "low90": 3.2}}, "prediction.low90 must not exceed"),
        ({"metric": "eval_loss"}, "no run records"),
        ({"success": "final(los) < 3"}, "no run records"),
        ({"success": "final(loss_nats) < 3 and final(loss_nats) > 4"}, "is never true"),
        ({"success": "inside(final(loss_nats), 3, 2)"}, "is never true"),
        ({"success": "1 < 2"}, "at least one metric"),
        ({"success": "final(loss_nats) <"}, "expected a number"),
        ({"success": "__import__('os')"}, "cannot read"),
        ({"baseline": " "}, "baseline must not be empty"),
        ({"compute_budget_flops": 0.0}, "must be positive"),
        ({"kind": "certain"}, "kind"),
        ({"hypotesis": "x"}, "did you mean 'hypothesis'"),
    ],
)
def test_a_promise_that_cannot_be_scored_is_refused_with_field_and_way_out(changes, message):
    with pytest.raises(PlatformError) as caught:
        decode(PROMISE | changes, Experiment, where="experiment.toml")
    assert message in str(caught.value)


def test_rules_read_series_and_combine():
    fractions = np.array([0.25, 0.5, 1.0])
    history = Recorded({"loss_nats": (fractions, np.array([4.0, 3.0, 2.0])), "grad_norm": (fractions, np.array([1.0, 60.0, 2.0]))})
    holds = {
        "final(loss_nats) <= 2": True,
        "any(grad_norm > 50)": True,
        "all(grad_norm > 50) or max(loss_nats) - min(loss_nats) == 2": True,
        "not any(grad_norm > 50) and final(loss_nats) < 9": False,
        "at(loss_nats, 0.75) == 2.5": True,
        "(final(loss_nats) < 1 or mean(loss_nats) > 2.9) and first(loss_nats) > 3.9": True,
        "final(loss_nats) / first(loss_nats) < 0.6": True,
        "(final(loss_nats) + 1) * 2 > 5.9": True,
    }
    assert {text: parse(text, where="w").judge(history).holds for text in holds} == holds
    unknown = parse("final(mfu) > 0.1", where="w").judge(history)
    assert (unknown.holds, unknown.missing) == (None, ("mfu",))


def test_a_verdict_is_chained_once(tmp_path):
    lab = Lab(tmp_path)
    registration = promised(lab)
    run(lab, registration, [3.0])
    verdict = judge(lab, registration, lab.run("r"))
    assert record_verdict(lab, verdict) is not None
    assert record_verdict(lab, verdict) is None
    assert [entry.kind for entry in ledger.read(lab)] == ["promise", "verdict"]


def test_a_hand_edited_run_json_cannot_make_an_unregistered_run_look_registered(tmp_path):
    lab = Lab(tmp_path)
    start_run(lab.run("r"), num_steps=1, unregistered=True)
    with Journal(lab.run("r")) as journal:
        journal.event("start", 0, registration_id=None)
    registration = promised(lab)
    info = json.loads((lab.run("r") / "run.json").read_bytes()) | {"created": time.time() + 5}
    (lab.run("r") / "run.json").write_text(json.dumps(info | {"registration_id": registration.id}))
    assert "marked unregistered" in " ".join(verifier.verify(tmp_path)[1])
    (lab.run("r") / "run.json").write_text(json.dumps(info | {"registration_id": registration.id, "unregistered": False}))
    assert "another promise than its journal" in " ".join(verifier.verify(tmp_path)[1])


def test_lines_cut_off_the_end_are_missed(tmp_path):
    lab = Lab(tmp_path)
    promised(lab)
    close(lab, "001", "abandoned")
    lines = lab.ledger.read_bytes().splitlines(keepends=True)
    lab.ledger.write_bytes(lines[0])
    assert "lines are missing" in verifier.verify(tmp_path)[1][0]
    with pytest.raises(CheckFailed, match="says 2"):
        ledger.read(lab)
    lab.ledger.write_bytes(b"".join(lines))
    ledger.head_path(lab).write_bytes(json.dumps({"lines": 1, "digest": "0" * 64}).encode())
    assert verifier.verify(tmp_path)[1]


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "stopped", "crashed", "abandoned", "inconclusive"])
def test_every_closing_state_is_reachable_and_keeps_the_fraction_of_the_record(tmp_path, outcome):
    lab = Lab(tmp_path)
    run(lab, promised(lab), [4.0, 3.9], num_steps=8)
    assert close(lab, "001", outcome).body["fraction_done"] == 0.25


def test_analysis_code_is_part_of_the_promise_and_an_edit_of_it_is_found(tmp_path):
    lab, folder = Lab(tmp_path), tmp_path / "experiments" / "001-x"
    (folder / "plots").mkdir(parents=True)
    (folder / "config.py").write_text("CONFIG = None")
    (folder / "plots" / "compare.py").write_text("print(1)")
    (folder / "experiment.toml").write_text(toml_of(PROMISE))
    registration = register(lab, folder, {"train": {"seed": 0}, "data": {}})
    assert list(registration.body["analysis"]) == ["plots/compare.py"] and len(registration.body["judge_digest"]) == 64
    assert verifier.verify(tmp_path)[1] == []
    (folder / "plots" / "compare.py").write_text("print(2)")
    assert verifier.verify(tmp_path)[1] == ["experiments/001-x/plots/compare.py is not the registered analysis"]
