"""Train a run in a process of its own and end that process with SIGKILL at a chosen moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.record.reader import open_run
from forerun.train.config import RunConfig

CHILD = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from forerun.base.config import load_json
from forerun.base.lab import Lab
from forerun.train.config import RunConfig
from forerun.train.loop import train
train(load_json(Path({config!r}), RunConfig), Lab(Path({lab!r})), run_id={run_id!r}, registration=None, quiet=True)
"""
PATIENCE_S = 300.0  # of a child that makes no progress: a loaded machine compiles for a minute


def killed_after(config: RunConfig, lab: Lab, run_id: str, step: int, *, extra_s: float = 0.0) -> bool:
    """Start or continue a run and kill it once `step` is on record, `extra_s` later. Returns whether it was still alive then."""
    path = lab.root / f"{run_id}.json"
    write_json(path, config)
    code = textwrap.dedent(CHILD).format(paths=sys.path[:1], config=str(path), lab=str(lab.root), run_id=run_id)
    child = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"JAX_PLATFORMS": "cpu"})
    deadline = time.monotonic() + PATIENCE_S
    while child.poll() is None and recorded_step(lab, run_id) < step:
        assert time.monotonic() < deadline, f"step {step} was not reached"
        time.sleep(0.02)
    time.sleep(extra_s)
    alive = child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    return alive


def recorded_step(lab: Lab, run_id: str) -> int:
    """Newest step in the record; 0 before the first."""
    folder: Path = lab.run(run_id)
    return max(open_run(folder).last_step, 0) if (folder / "w0" / "journal.jsonl").exists() else 0
