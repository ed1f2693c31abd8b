"""Several operating-system processes that are one run: joining them, and what only the first of them does.

Every process runs the same loop on the same batches and sees the same numbers; each computes on its own devices. The first one
writes the record and the checkpoints.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from forerun.base.errors import CheckFailed, ConfigError, PlatformError, ProcessLost

COORDINATOR, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
SCHEDULERS = (("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"))
"""What srun and mpirun tell each of their processes; `SLURM_NTASKS` also stands in a batch script, which is one process."""
WAY_OUT = f"set {COORDINATOR}=HOST:PORT of the first process in all of them, and check {COUNT} and {NUMBER}"
STDOUT, STDERR = 1, 2
INITIALIZATION_TIMEOUT_S = 120  # assumed: slow file systems start Python within a minute
GRACE_S = 2.0  # assumed: what the others need to say why they end too, before the first process takes the coordinator away


def join(environment: Mapping[str, str] = os.environ, *, timeout_s: float = INITIALIZATION_TIMEOUT_S) -> None:
    """Become one process of several when the environment says so; before any other use of JAX.

    It says so by `JAX_COORDINATOR_ADDRESS`, with `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, or by more than one process under srun or
    mpirun, where JAX finds the address by itself unless Open MPI is too new for it.
    Raises: ConfigError when these contradict each other. When the others do not come in `timeout_s`, the process ends with that in one line:
        JAX itself would abort it.
    """
    count, number = _place(environment)
    if count == 1 or (count is None and COORDINATOR not in environment):
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _keep_output_for_data()
    waiting = threading.Timer(timeout_s, _nobody_came, [environment.get(COORDINATOR, "the first process"), timeout_s])
    waiting.daemon = True
    waiting.start()
    try:
        jax.distributed.initialize(
            coordinator_address=environment.get(COORDINATOR),
            num_processes=count,
            process_id=number,
            local_device_ids=_own_device(environment),
            initialization_timeout=int(timeout_s) + INITIALIZATION_TIMEOUT_S,
        )
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"the processes did not find each other: {str(error).splitlines()[0][:200]}",
            hint=WAY_OUT,
        ) from None
    finally:
        waiting.cancel()


def is_first() -> bool:
    """Whether this process writes the record."""
    return jax.process_index() == 0


def wait_for_all(what: str) -> None:
    """Go on when every process has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


@contextmanager
def ending_together() -> Iterator[None]:
    """Where several processes run: end this one in one line when it fails, or when a collective says that another is gone.

    Leaving in the ordinary way would wait for the others at JAX's last barrier, which the lost one never reaches.
    """
    try:
        yield
    except (PlatformError, jax.errors.JaxRuntimeError) as error:
        if jax.process_count() == 1:
            raise
        own = error if isinstance(error, PlatformError) else _lost(error)
        print(f"error: {own}", file=sys.stderr, flush=True)
        if is_first():
            time.sleep(GRACE_S)
        os._exit(own.exit_code)


def _nobody_came(address: str, timeout_s: float) -> None:
    error = ConfigError(f"the processes did not find each other at {address} within {timeout_s:g} s", hint=WAY_OUT)
    print(f"error: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


def _lost(error: Exception) -> ProcessLost:
    return ProcessLost(
        f"a process of this run is gone: process {jax.process_index()} of {jax.process_count()} was told {str(error).splitlines()[0][:200]!r}",
        hint="see what the others said; started again, the run goes on from its newest checkpoint",
    )


def must_agree(**given: str) -> None:
    """Go on when all processes were started for the same thing; a collective.

    Raises: ConfigError in every one of them otherwise, before they train past each other.
    """
    if jax.process_count() == 1:
        return
    digests = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") for text in given.values()]
    everyone = np.asarray(multihost_utils.process_allgather(np.array(digests, np.uint32)))
    for name, of_process in zip(given, everyone.T):
        others = np.flatnonzero(of_process != of_process[0]).tolist()
        if others:
            raise ConfigError(
                f"all processes of a run must be given the same {name}, but {others} were given another than process 0",
                hint="start all of them with the same command and files",
            )


def on_first_host(tree: Any) -> Any:
    """Whole arrays in the first process's memory, None instead of each in the others; a collective when there are several.

    Leaf by leaf: the others hold one whole leaf at a time, the first one all of them.
    """
    if jax.process_count() == 1:
        return tree

    def fetched(leaf: jax.Array) -> np.ndarray | None:
        whole = leaf if leaf.is_fully_replicated else multihost_utils.process_allgather(leaf, tiled=True)
        return np.asarray(whole) if is_first() else None

    return jax.tree.map(fetched, tree)


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


def _place(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """How many processes there are and which one this is, as far as the environment tells; None for a process by itself."""
    count, number = (_whole(environment, name) for name in (COUNT, NUMBER))
    if (count is None) != (number is None):
        raise ConfigError(f"{COUNT} and {NUMBER} go together, got {count} and {number}", hint="set both, or neither under srun or mpirun")
    if count is None:
        told = [(_whole(environment, size), _whole(environment, rank)) for size, rank in SCHEDULERS]
        count, number = next(((size, rank) for size, rank in told if size and size > 1 and rank is not None), (None, None))
    if count is not None and number is not None and not 0 <= number < count:
        raise ConfigError(f"{NUMBER} must lie in 0..{count - 1}, got {number}", hint=f"{COUNT} processes are counted from 0")
    return count, number


def _own_device(environment: Mapping[str, str]) -> int | None:
    """Under mpirun with an address given, the accelerator of this process, as JAX chooses it; JAX would ask mpi4py for it. Else None."""
    known = COORDINATOR in environment and "JAX_LOCAL_DEVICE_IDS" not in environment
    return _whole(environment, "OMPI_COMM_WORLD_LOCAL_RANK") if known else None


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise ConfigError(f"{name} must be a whole number, got {text!r}", hint="processes are counted from 0")
    return int(text)
