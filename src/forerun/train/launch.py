"""`forerun train --processes N`: the same command in N processes of this machine, which end together. Never imports JAX."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

from forerun.base.errors import ConfigError, ProcessLost

FOLLOW_PARENT = "FORERUN_LAUNCHED"
GRACE_S = 10.0  # assumed: enough to seal a journal
POLL_S = 0.1
STDIN = 0
OTHER_DEVICES = "--xla_force_host_platform_device_count"


def launch(arguments: list[str], num_processes: int, num_devices: int) -> int:
    """Run `forerun ARGUMENTS` in `num_processes` processes that find each other by jax.distributed; when one ends badly, all end.

    Args:
        num_devices: of the run's mesh, CPU devices being shared out equally among the processes, as are the cores.
    Returns: 0, or the exit code of one that ended badly and has said why.
    Raises: ConfigError when the devices cannot be shared out; ProcessLost when one was killed.
    """
    if num_processes < 1 or num_devices % num_processes:
        raise ConfigError(
            f"--processes must divide the {num_devices} devices of mesh.replica x data x expert, got {num_processes}",
            hint="set the mesh with --set mesh.expert=N, or start another number of processes",
        )
    environment = os.environ | {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{_free_port()}",
        "JAX_NUM_PROCESSES": str(num_processes),
        FOLLOW_PARENT: "1",
        "XLA_FLAGS": _with_devices(os.environ.get("XLA_FLAGS", ""), num_devices // num_processes),
    }
    environment.setdefault("PJRT_NPROC", str(max(1, (os.cpu_count() or 1) // num_processes)))  # threads of XLA:CPU
    children = [
        subprocess.Popen(
            [sys.executable, "-c", "from forerun.cli.main import main; main()", *arguments],
            env=environment | {"JAX_PROCESS_ID": str(number)},
            stdin=subprocess.PIPE,
            stdout=None if number == 0 else subprocess.DEVNULL,
        )
        for number in range(num_processes)
    ]
    try:
        return _wait(children)
    finally:
        _end(children)


def is_launched() -> bool:
    """Whether this process is one of those that `launch` started."""
    return os.environ.get(FOLLOW_PARENT) == "1"


def follow_parent() -> None:
    """In a launched process: end when the launcher is gone, however it went."""
    if not is_launched():
        return

    def watch() -> None:
        os.read(STDIN, 1)  # returns when the launcher's end of the pipe is closed
        os._exit(1)

    threading.Thread(target=watch, name="forerun-parent", daemon=True).start()


def _wait(children: list[subprocess.Popen]) -> int:
    while True:
        codes = [child.poll() for child in children]
        failed = [(code, number) for number, code in enumerate(codes) if code]
        if failed:
            code, number = min(failed)  # the killed one: those that end because of it do so by exit codes above 0 or by an abort
            if code > 0:
                return code
            raise ProcessLost(
                f"process {number} of {len(children)} was ended by {signal.Signals(-code).name}, and the others with it",
                hint="run the same command again: it goes on from the newest checkpoint",
            )
        if all(code == 0 for code in codes):
            return 0
        time.sleep(POLL_S)


def _end(children: list[subprocess.Popen]) -> None:
    running = [child for child in children if child.poll() is None]
    for child in running:
        child.terminate()
    deadline = time.monotonic() + GRACE_S
    for child in running:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _with_devices(flags: str, count: int) -> str:
    kept = [flag for flag in flags.split() if not flag.startswith(OTHER_DEVICES)]
    return " ".join([*kept, f"{OTHER_DEVICES}={count}"])
