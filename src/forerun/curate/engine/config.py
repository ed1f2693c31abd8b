"""Which engine runs the tasks of a stage. Nothing here is part of a step's identity: every engine gives the same bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from forerun.base.errors import ConfigError

WORKER_BYTES = 128 << 20  # measured: a worker takes 1.7 CPU s to start; 128 MiB of text take a stage 4 s (benchmarks/data/engine)


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How the work is spread."""

    runner: Literal["native", "ray", "loop"] = "native"
    """`native`: Daft on this machine. `ray`: Daft on a Ray cluster, whose nodes see the lab under the same path. `loop`: one task after
    another in this process, without Daft."""
    workers: int = field(default_factory=available_cores)
    """Most worker processes at a time, over all nodes."""
    worker_bytes: int = WORKER_BYTES
    """A worker is started for every so many bytes of text of a stage; work for fewer than two of them is done in this process. With 0
    every task runs in a worker."""
    ray_address: str = ""
    """Of a running cluster; empty takes `RAY_ADDRESS`, and without one starts Ray on this machine."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"engine.workers must be at least 1, got {self.workers}", hint="1 is the least")
        if self.worker_bytes < 0:
            raise ConfigError(f"engine.worker_bytes must not be negative, got {self.worker_bytes}", hint="0 always starts workers")
        if self.ray_address and self.runner != "ray":
            raise ConfigError(f"engine.ray_address is given, but engine.runner is {self.runner!r}", hint='set engine.runner to "ray"')

    def workers_for(self, num_tasks: int, num_bytes: int) -> int:
        """Worker processes worth starting for this much work; 0 means this process."""
        if self.runner == "loop":
            return 0
        if self.runner == "ray" or not self.worker_bytes:
            return min(self.workers, num_tasks)
        worth = min(self.workers, num_tasks, num_bytes // self.worker_bytes)
        return worth if worth > 1 else 0
