"""`forerun train` in several real processes: its command, and what the launchers of this world tell each of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from forerun.base.lab import Lab
from forerun.record.reader import Series, open_run

FIRST_PORT, NUM_PORTS = 61_440, 4096  # where JAX puts the coordinator of a job it finds by itself


def command(lab: Lab, run_id: str, *options: str) -> list[str]:
    start = [sys.executable, "-c", "from forerun.cli.main import main; main()", "train", str(lab.root / "config.json")]
    return [*start, "--unregistered", "--lab", str(lab.root), "--run-id", run_id, *options]


def settings(**fields: str) -> list[str]:
    """`--set` options, dots written as two underscores."""
    return [word for name, value in fields.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]


def told_by(launcher: str, count: int, number: int, port: int) -> dict[str, str]:
    """The variables process `number` of `count` finds: of jax.distributed's own, of srun, of mpirun before version 5, of mpirun since."""
    job, count_text, text = port - FIRST_PORT, str(count), str(number)
    mpi = {"OMPI_COMM_WORLD_SIZE": count_text, "OMPI_COMM_WORLD_RANK": text, "OMPI_COMM_WORLD_LOCAL_RANK": text}
    return {
        "jax": {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": count_text, "JAX_PROCESS_ID": text},
        "srun": {
            "SLURM_JOB_ID": str(job),
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": count_text,
            "SLURM_STEP_NUM_TASKS": count_text,
            "SLURM_PROCID": text,
            "SLURM_LOCALID": text,
        },
        "mpirun 4": mpi | {"OMPI_MCA_orte_hnp_uri": f"{job << 12}.0;tcp://127.0.0.1:1"},
        "mpirun 5": mpi | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}"},
    }[launcher]


def start_by(launcher: str, commands: list[list[str]]) -> list[subprocess.Popen[str]]:
    """Start one process of one device for each command, as the launcher would."""
    port = free_port()
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    return [
        subprocess.Popen(
            arguments,
            env=environment | told_by(launcher, len(commands), number, port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, arguments in enumerate(commands)
    ]


def free_port() -> int:
    """One that JAX could choose for a job."""
    for port in range(FIRST_PORT + os.getpid() % NUM_PORTS, FIRST_PORT + 2 * NUM_PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", FIRST_PORT + port % NUM_PORTS))
            except OSError:
                continue
            return FIRST_PORT + port % NUM_PORTS
    raise AssertionError("no free port")


def children_of(process: subprocess.Popen) -> list[int]:
    """Process ids, oldest first."""
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def losses(lab: Lab, run_id: str) -> Series:
    return open_run(lab.run(run_id)).series("loss_nats")
