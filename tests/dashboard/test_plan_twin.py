"""The page's what-if and `forerun plan` are two programs with one answer: the shipped bundle runs in Node beside Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from plan_twin import cases, differences, doubtful

import forerun.dashboard
from forerun.plan.page_inputs import page_inputs

STATIC = Path(forerun.dashboard.__file__).parent / "static"
SCRIPT = """
import { readFileSync } from "node:fs";
const { plan, problem, stepsFor } = await import(process.argv[1]);
const { inputs, cases, bad } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({
  plans: cases.map((one) => plan(one.run, inputs.devices[one.device], one.mfu, inputs)),
  problems: cases.map((one) => problem(one.run)),
  refused: bad.map((run) => problem(run)),
  steps: cases.map((one) => stepsFor(one.run, 791)),
}));
"""


@pytest.fixture(scope="module")
def twin():
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node; `make test-browser` asks the same of the browser (2026-11)")
    planned = cases(100)
    asked = json.dumps({"inputs": page_inputs(), "cases": planned, "bad": [run for run, _ in doubtful(planned)]})
    ran = subprocess.run(
        [node, "--input-type=module", "-e", SCRIPT, f"file://{STATIC / 'formulas.js'}"],
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    return planned, json.loads(ran.stdout)


def test_the_page_plans_100_designs_as_the_command_does_to_the_last_key(twin):
    planned, found = twin
    for case, answer in zip(planned, found["plans"], strict=True):
        assert differences(case["plan"], answer) == [], case["run"]


def test_the_page_accepts_what_the_command_accepts_and_refuses_what_it_refuses(twin):
    planned, found = twin
    assert set(found["problems"]) == {""}
    expected = doubtful(planned)
    assert 20 < sum(refused for _, refused in expected) < len(expected) - 20
    for (run, refused), words in zip(expected, found["refused"], strict=True):
        if not (run["transport"]["kind"] == "local" and run["mesh"]["expert"] > 1):  # `plan.ask` refuses this one, not the run itself
            assert bool(words) == refused, (words, run)


def test_steps_for_a_ratio_are_rounded_as_the_command_rounds(twin):
    from forerun.base.config import decode
    from forerun.model.count import num_active_params
    from forerun.plan.length import num_steps
    from forerun.plan.run import PlannedRun

    planned, found = twin
    for case, steps in list(zip(planned, found["steps"], strict=True))[:30]:
        run = decode(case["run"], PlannedRun, where="case")
        assert steps == num_steps(num_active_params=num_active_params(run.model), batch_tokens=run.batch_tokens)


def test_a_difference_of_one_part_in_a_million_is_found():
    assert differences({"a": {"b": 1.0}}, {"a": {"b": 1.000001}}) == [".a.b: 1.0 and 1.000001"]
