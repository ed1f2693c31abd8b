"""Several operating-system processes that are one run: joining them, and what only the first of them does.

Every process runs the same loop on the same batches and sees the same numbers; each computes on its own devices. The first one
writes the record and the checkpoints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.experimental import multihost_utils

from forerun.base.errors import CheckFailed, ConfigError, PlatformError

COORDINATOR, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
WORLD_SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")  # what srun and mpirun tell each of their processes
STDOUT, STDERR = 1, 2
INITIALIZATION_TIMEOUT_S = 120  # assumed: slow file systems start Python within a minute


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Become one process of several when the environment says so; before any other use of JAX.

    It says so by `JAX_COORDINATOR_ADDRESS` (with `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, unless a scheduler that JAX knows gives
    them), or by a world of more than one process under srun or mpirun.
    Raises: ConfigError when these contradict each other or the others do not come.
    """
    world = max((int(environment.get(name, "1")) for name in WORLD_SIZES), default=1)
    if COORDINATOR not in environment and world == 1:
        return
    count, number = (_whole(environment, name) for name in (COUNT, NUMBER))
    if (count is None) != (number is None):
        raise ConfigError(f"{COUNT} and {NUMBER} go together, got {count} and {number}", hint="set both, or neither under srun or mpirun")
    if count is not None and number is not None and not 0 <= number < count:
        raise ConfigError(f"{NUMBER} must lie in 0..{count - 1}, got {number}", hint=f"{COUNT} processes are counted from 0")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _keep_output_for_data()
    try:
        jax.distributed.initialize(
            coordinator_address=environment.get(COORDINATOR),
            num_processes=count,
            process_id=number,
            initialization_timeout=INITIALIZATION_TIMEOUT_S,
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"the processes did not find each other: {str(error).splitlines()[0][:200]}", hint=f"check {COORDINATOR}, {COUNT} and {NUMBER}"
        ) from None


def is_first() -> bool:
    """Whether this process writes the record."""
    return jax.process_index() == 0


def wait_for_all(what: str) -> None:
    """Go on when every process has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


def on_host(tree: Any) -> Any:
    """Whole arrays in every process's memory, leaf by leaf; a collective when there are several processes."""
    if jax.process_count() == 1:
        return tree
    return jax.tree.map(lambda leaf: multihost_utils.process_allgather(leaf, tiled=True), tree)


def as_the_first(action: Callable[[], None], outcomes: tuple[type[Exception], ...]) -> None:
    """Let the first process act; when that raises one of `outcomes`, all processes raise it. A collective."""
    if jax.process_count() == 1:
        action()
        return
    raised: Exception | None = None
    if is_first():
        try:
            action()
        except outcomes as error:
            raised = error
    code = 0 if raised is None else 1 + outcomes.index(type(raised))
    code = int(multihost_utils.broadcast_one_to_all(jax.numpy.int32(code)))
    if raised is not None:
        raise raised
    if code:
        kind = outcomes[code - 1]
        if issubclass(kind, PlatformError):
            raise CheckFailed("the first process ended the run", hint="its message and the record say why")
        raise kind


def _keep_output_for_data() -> None:
    """Send what native libraries write to standard output (gloo's greetings) to standard error; Python's own output stays."""
    sys.stdout.flush()
    own = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    sys.stdout = os.fdopen(own, "w", encoding="utf-8")


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ConfigError(f"{name} must be a whole number, got {text!r}", hint="processes are counted from 0")
    return int(text)
