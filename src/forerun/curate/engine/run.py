"""All tasks of a stage to their end: on workers or in this process, past worker deaths, with poisonous ones set aside.

When an engine loses a worker the tasks that had begun and not ended are suspects: their markers are still there. Each suspect is
tried alone, so that the next death has one cause. After three deaths a task is set aside and the others go on.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from forerun.base.progress import Progress
from forerun.curate.engine.config import EngineConfig
from forerun.curate.engine.tasks import Task, marker, raise_answer, run_packed

MOST_DEATHS = 3  # source: Marin's engine gives a shard three task errors (E2: one shard held 3,000 workers for 12 hours)


def run_tasks(label: str, tasks: Sequence[Task], scratch: Path, engine: EngineConfig, *, quiet: bool = False) -> dict[str, str]:
    """Run tasks whose results are not there yet.

    Args:
        scratch: folder for markers; a marker left by a killed run makes its task a suspect of this one.
    Returns: name and reason of every task that was set aside because it killed its worker three times.
    Raises: the PlatformError of a task.
    """
    waiting = {task.name: task for task in tasks}
    deaths: Counter[str] = Counter()
    aside: dict[str, str] = {}
    with Progress(label, sum(task.num_bytes for task in tasks) / 1e6, "MB", quiet=quiet) as progress:
        while waiting:
            suspects = [name for name in waiting if marker(scratch, name).exists()]
            chosen = [waiting[suspects[0]]] if suspects else list(waiting.values())
            for finished in _attempt(chosen, scratch, engine, 1 if suspects else 0, deaths, aside):
                progress.advance(waiting[finished].num_bytes / 1e6, note=finished)
                del waiting[finished]
            for name in aside:
                waiting.pop(name, None)
    shutil.rmtree(scratch, ignore_errors=True)
    return aside


def _attempt(
    chosen: list[Task], scratch: Path, engine: EngineConfig, least: int, deaths: Counter[str], aside: dict[str, str]
) -> Iterator[str]:
    """Names of tasks as they finish, until all have or a worker dies."""
    workers = max(least, engine.workers_for(len(chosen), sum(task.num_bytes for task in chosen)))
    if engine.runner == "loop" or not workers:
        for task in chosen:
            raise_answer(run_packed(task.packed(scratch)))
            yield task.name
        return
    from forerun.curate.engine.workers import WorkerDied, answers

    try:
        for name, answer in answers(chosen, scratch, engine, workers):
            raise_answer(answer)
            yield name
        return
    except WorkerDied as error:
        words = str(error)
    begun = [task.name for task in chosen if marker(scratch, task.name).exists()]
    assert begun, f"the engine lost a worker before any task began: {words}"
    if len(chosen) == 1:
        deaths[begun[0]] += 1
        if deaths[begun[0]] >= MOST_DEATHS:
            marker(scratch, begun[0]).unlink()
            aside[begun[0]] = f"killed its worker {MOST_DEATHS} times"
