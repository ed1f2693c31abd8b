"""Tasks run to their end on every engine; a deadly one is set aside and named, an unlucky one is not, a user's error comes through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.base.errors import ConfigError, DataError
from forerun.curate.engine.config import EngineConfig
from forerun.curate.engine.run import run_tasks
from forerun.curate.engine.tasks import Task

WORKERS = EngineConfig(workers=2, worker_bytes=0)
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def workers_find_the_tasks(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))


def task(out: Path, call: str = "note", **arguments) -> Task:
    if call == "note":
        arguments["text"] = "done"
    return Task(name=out.name, call=f"curate.engine_tasks:{call}", arguments={"out": str(out), **arguments}, num_bytes=1000)


def test_a_shard_that_kills_its_worker_three_times_is_set_aside_and_the_others_finish(tmp_path):
    tasks = [task(tmp_path / f"t{i}", "die" if i == 1 else "die_once" if i == 2 else "note") for i in range(5)]
    aside = run_tasks("test", tasks, tmp_path / "scratch", WORKERS, quiet=True)
    assert aside == {"t1": "killed its worker 3 times"}
    assert [(tmp_path / f"t{i}").exists() for i in range(5)] == [True, False, True, True, True]
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize("engine", [EngineConfig(runner="loop"), WORKERS], ids=["loop", "native"])
def test_a_users_error_in_a_task_reaches_the_user_whole(tmp_path, engine):
    with pytest.raises(DataError, match=r"the column is missing \(rename it\)"):
        run_tasks("test", [task(tmp_path / "t", "refuse")], tmp_path / "scratch", engine, quiet=True)


def test_a_task_during_which_a_whole_run_died_is_tried_in_a_worker_next_time(tmp_path):
    code = (
        "import sys; from pathlib import Path; from forerun.curate.engine.run import run_tasks; from forerun.curate.engine.config import EngineConfig;"
        "from curate.test_engine import task; d = Path(sys.argv[1]);"
        "print(run_tasks('test', [task(d / 'a'), task(d / 'b', 'die'), task(d / 'c')], d / 'scratch', EngineConfig(), quiet=True))"
    )
    first = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert first.returncode == -9  # so little work is done in the process itself
    second = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.stdout.strip() == "{'b': 'killed its worker 3 times'}", second.stderr
    assert (tmp_path / "c").read_text() == "done"


def test_workers_are_started_for_enough_text_only():
    engine = EngineConfig(workers=8, worker_bytes=100)
    assert [engine.workers_for(100, size) for size in (0, 199, 200, 350, 10_000)] == [0, 0, 2, 3, 8]
    assert engine.workers_for(2, 10_000) == 2
    assert EngineConfig(runner="loop", workers=8).workers_for(100, 1 << 40) == 0


@pytest.mark.parametrize(("field", "value"), [("workers", 0), ("worker_bytes", -1), ("ray_address", "auto")])
def test_an_engine_that_cannot_be_is_refused_by_field(field, value):
    with pytest.raises(ConfigError, match=f"engine.{field}"):
        EngineConfig(**{field: value})


def test_ray_is_asked_for_by_name_when_it_is_not_installed(tmp_path):
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match=r"pip install 'forerun\[ray\]'"):
            run_tasks("test", [task(tmp_path / "t")], tmp_path / "scratch", EngineConfig(runner="ray"), quiet=True)
