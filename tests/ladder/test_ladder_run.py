"""`forerun ladder plan|run|status` with the real trainer: killed in the middle, it skips what is finished and goes on with the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_runs import lab_with_store, tiny_run

from forerun.base.config import canonical_json
from forerun.record.reader import open_run

COMMAND = (sys.executable, "-c", "from forerun.cli.main import main; main()")
WIDTHS = (32, 48)
ONE_DEVICE = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
PATIENCE_S = 900


def forerun(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, env=ONE_DEVICE, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_killed_ladder_skips_finished_rungs_and_continues_the_interrupted_one(tmp_path):
    lab, manifest = lab_with_store(tmp_path / "lab")
    (tmp_path / "base.json").write_bytes(canonical_json(tiny_run(manifest)))
    plan = ["ladder", "plan", "base.json", "--widths", ",".join(map(str, WIDTHS)), "--tokens-per-active-param", "0.6", "--out", "rungs"]
    forerun(tmp_path, *plan)
    names = [f"tiny-d{width}" for width in WIDTHS]
    assert [row["state"] for row in rows(tmp_path)] == ["waiting", "waiting"]

    run = ["ladder", "run", "rungs", "--lab", "lab", "--owner", "someone"]
    child = subprocess.Popen([*COMMAND, *run], cwd=tmp_path, env=ONE_DEVICE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    try:
        while not list((lab.run(names[1]) / "checkpoints").glob("*/checkpoint.json")):
            assert child.poll() is None, "the ladder ended before it could be killed"
            assert time.monotonic() - began < PATIENCE_S
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert [row["state"] for row in rows(tmp_path)] == ["finished", "started"]

    untouched = {path: path.stat().st_mtime_ns for path in lab.run(names[0]).rglob("*") if path.is_file()}
    forerun(tmp_path, *run)
    assert {path: path.stat().st_mtime_ns for path in lab.run(names[0]).rglob("*") if path.is_file()} == untouched
    assert [row["state"] for row in rows(tmp_path)] == ["finished", "finished"]
    starts = open_run(lab.run(names[1])).events("start")
    assert len(starts) == 2 and starts[1]["step"] > 0, "the second start is from a checkpoint"
    assert len(forerun(tmp_path, "ladder", "export", "rungs", "--lab", "lab", "--out", ".").splitlines()) == 2


def rows(folder: Path) -> list[dict]:
    return json.loads(forerun(folder, "ladder", "status", "rungs", "--lab", "lab", "--json"))
