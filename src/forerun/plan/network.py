"""Bytes that cross each network level per optimizer step, per device, for every expert transport and for the weights.

Levels: `inner`, inside a scale-up domain, and `outer`, beyond it. The mesh is laid out with `expert` innermost, then `data`, then
`replica`; an axis whose groups fit into one domain stays inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from forerun.parallel.config import Transport, TransportConfig
from forerun.plan.devices import Device
from forerun.plan.memory import sharded_sizes
from forerun.plan.run import PlannedRun

GRADIENT_BYTES = 4  # derived: gradients are float32
FORWARD_AND_BACKWARD = 2  # derived: every exchange is transposed once in the backward pass
INDEX_BYTES = 8  # derived: one int32 expert and one float32 weight per assignment
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)


@dataclass(frozen=True)
class Traffic:
    """Bytes one device sends per step."""

    inner: float
    outer: float

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.inner + other.inner, self.outer + other.outer)


def expert_traffic(run: PlannedRun, device: Device, transport: Transport) -> Traffic:
    """Rows to experts and back, forward and backward, over all layers and microbatches.

    `local` sends nothing and needs all experts on every device; dropped rows are not subtracted.
    """
    shards, model = run.mesh.expert, run.model
    if shards == 1 or transport == "local" or not model.num_experts:
        return Traffic(0.0, 0.0)
    assignments = run.tokens_per_device * model.top_k
    elsewhere = (shards - 1) / shards
    row = model.d_latent * run.compute_bytes
    settings = run.transport
    if transport == "all_gather":
        rows = (shards - 1) * run.tokens_per_device
        side = rows * INDEX_BYTES * model.top_k
    else:
        rows = assignments * elsewhere * _padding(transport, settings)
        side = assignments * elsewhere * INDEX_BYTES
    passes = FORWARD_AND_BACKWARD + (1 if run.remat in ("block", "moe") else 0)
    total = model.num_routed_layers * run.num_microbatches * (passes * 2 * rows * row + passes * side)
    return _split(total, shards, device)


def _padding(transport: Transport, settings: TransportConfig) -> float:
    """Rows sent over rows wanted: fixed buffers travel full, ragged ones as they are."""
    if transport == "fixed_cells":
        return max(1.0, settings.capacity_factor)
    if transport == "pooled_wave":
        return max(1.0, settings.sender_factor)
    return 1.0


def weight_traffic(run: PlannedRun, device: Device) -> Traffic:
    """Gathered weights and reduced gradients: non-expert matrices over (`data`, `expert`), experts over `data`, all over `replica`."""
    mesh = run.mesh
    sizes = sharded_sizes(run)
    rack = mesh.data * mesh.expert
    share = (rack - 1) / rack
    gathers = FORWARD_AND_BACKWARD * run.num_microbatches
    shared = sizes.spread * rack * share * (gathers * run.compute_bytes + GRADIENT_BYTES)
    traffic = _split(shared, rack, device)
    if mesh.data > 1:
        reduced = 2 * sizes.experts * GRADIENT_BYTES * (mesh.data - 1) / mesh.data
        traffic += _split(reduced, rack, device, stride=mesh.expert)
    if mesh.replica > 1:
        reduced = 2 * (sizes.spread + sizes.experts) * GRADIENT_BYTES * (mesh.replica - 1) / mesh.replica
        traffic += _split(reduced, mesh.num_devices, device, stride=rack)
    return traffic


def transport_table(run: PlannedRun, device: Device) -> dict[Transport, Traffic]:
    """`expert_traffic` of every transport at this run's shapes."""
    return {transport: expert_traffic(run, device, transport) for transport in TRANSPORTS}


def routed_rows_executed(run: PlannedRun) -> float:
    """Expert rows computed over rows wanted: the capacity factor, or 1 when nothing is padded."""
    return max(1.0, run.transport.capacity_factor) if run.transport.kind != "ragged" else 1.0


def _split(total: float, group: int, device: Device, stride: int = 1) -> Traffic:
    """Share of an exchange among `group` neighbours that leaves the domain; `stride` is the distance between partners."""
    if stride >= device.inner_devices:
        return Traffic(0.0, total)
    inside = min(1.0, max(0.0, (device.inner_devices / stride - 1) / (group / stride - 1))) if group > stride else 1.0
    return Traffic(total * inside, total * (1 - inside))
