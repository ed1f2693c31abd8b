"""Tasks on Daft: one row a task, one worker process a slot. The same plan runs on Daft's native runner and on its Ray runner.

Daft hands the rows to its workers, starts and ends the processes and notices their deaths; nothing of that is ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import daft

from forerun.base.errors import ConfigError
from forerun.curate.engine.config import EngineConfig
from forerun.curate.engine.tasks import Task, run_packed


class WorkerDied(Exception):
    """A worker process ended without an answer: killed, out of memory, or crashed in foreign code."""


class Worker:
    """What lives in a worker process."""

    @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)
    def run(self, packed: daft.Series) -> list[str]:
        """Run the one task of a batch."""
        return [run_packed(task) for task in packed.to_pylist()]


def answers(tasks: Sequence[Task], scratch: Path, engine: EngineConfig, workers: int) -> Iterator[tuple[str, str]]:
    """(task name, answer) as they finish.

    Raises: WorkerDied when a worker ended without answering; ConfigError when Ray is asked for and not installed.
    """
    choose_runner(engine)
    # On Ray a process per core of each node; a pool of Ray actors would retry a deadly task by itself and hold the query meanwhile.
    pool = daft.cls(Worker, use_process=True, max_concurrency=workers if engine.runner == "native" else None)()
    plan = daft.from_pydict({"name": [task.name for task in tasks], "packed": [task.packed(scratch) for task in tasks]})
    if engine.runner == "ray":
        plan = plan.into_partitions(min(len(tasks), 4 * workers))  # assumed: some rows per slot, so that a slow one does not hold the rest
    plan = plan.select("name", pool.run(plan["packed"]).alias("answer"))
    try:
        for row in plan.iter_rows(results_buffer_size=1):
            yield row["name"], row["answer"]
    except RuntimeError as error:
        if "UDF process" not in str(error):
            raise
        raise WorkerDied(str(error)) from None
    except _ray_deaths(engine) as error:
        raise WorkerDied(str(error).splitlines()[0]) from None


def choose_runner(engine: EngineConfig) -> None:
    """Point Daft at the machine or the cluster. Raises: ConfigError without Ray, or when this process has used the other one."""
    if engine.runner == "ray":
        _start_ray(engine)
    try:
        daft.set_runner_ray() if engine.runner == "ray" else daft.set_runner_native()
    except daft.exceptions.DaftCoreException:  # set before: Daft keeps to the first choice of a process
        chosen = daft.runners.get_or_infer_runner_type()
        if chosen != engine.runner:
            raise ConfigError(
                f"engine.runner is {engine.runner!r}, but this process already uses {chosen!r}", hint="use a new process"
            ) from None


def _start_ray(engine: EngineConfig) -> None:
    try:
        import ray
    except ImportError:
        raise ConfigError("engine.runner is 'ray', but Ray is not installed", hint="pip install 'forerun[ray]'") from None
    if not ray.is_initialized():
        address = engine.ray_address or os.environ.get("RAY_ADDRESS")
        ray.init(
            address=address,
            num_cpus=None if address else engine.workers,
            log_to_driver=False,
            include_dashboard=False,
            logging_level="ERROR",
        )


def _ray_deaths(engine: EngineConfig) -> tuple[type[BaseException], ...]:
    if engine.runner != "ray":
        return ()
    import ray

    return (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
