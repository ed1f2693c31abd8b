"""The written-out list of transports, and how one is bound to a run's settings and mesh."""

# T tokens, d working width, K top_k, E experts

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from forerun.parallel import all_gather, fixed_cells, local, pooled_wave, ragged
from forerun.parallel.config import Transport, TransportConfig
from forerun.parallel.contract import ExpertParams, RunExperts, Traffic
from forerun.parallel.mesh import AXES, EXPERT_AXIS

TRANSPORTS: dict[Transport, Callable] = {
    "local": local.run_experts,
    "all_gather": all_gather.run_experts,
    "fixed_cells": fixed_cells.run_experts,
    "pooled_wave": pooled_wave.run_experts,
    "ragged": ragged.run_experts,
}


def bind(config: TransportConfig, mesh: Mesh | None, step: Int[Array, ""] | int = 0) -> RunExperts:
    """The transport of a run.

    Args:
        mesh: None runs on one device, without any collective; otherwise rows come cut over all devices and experts over `expert`.
        step: turns the order of drops; only read when there is a capacity.
    """
    run = functools.partial(TRANSPORTS[config.kind], config=config)
    if mesh is None:
        return functools.partial(run, step=step)
    rows: Any = PartitionSpec(AXES)
    whole: Any = PartitionSpec()
    experts: Any = whole if config.kind == "local" else PartitionSpec(EXPERT_AXIS)
    traffic = Traffic(load=whole, dropped=whole, dropped_of_row=rows, rows_sent=whole, rows_executed=whole)

    def on_one_device(rows, expert_index, weight, valid, experts, step):
        return run(rows, expert_index, weight, valid, experts, axes=AXES, step=step)

    spread = jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(rows, rows, rows, rows, ExpertParams(experts, experts, experts), whole),
        out_specs=(rows, traffic),
        check_vma=False,
    )
    return lambda rows, expert_index, weight, valid, experts: spread(rows, expert_index, weight, valid, experts, jax.numpy.int32(step))
