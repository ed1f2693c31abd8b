"""A whole plan: counts, FLOPs, memory, network, step bounds, days, energy, checkpoint, ladder share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.base.errors import ConfigError
from forerun.model import count
from forerun.plan.devices import Device
from forerun.plan.memory import FLOAT, Memory, memory, optimizer_numbers
from forerun.plan.network import Traffic, expert_traffic, routed_rows_executed, transport_table, weight_traffic
from forerun.plan.presets import ladder_share
from forerun.plan.run import PlannedRun

DEFAULT_MFU = 0.25  # assumed: the published hero ran at 0.21 to 0.27 (reference model-and-training 1.6)
POWER_OVERHEAD = 1.5  # assumed: hosts, network and cooling beside the devices' own power
ACTIVATION_PASSES = 3  # derived: kept values are written once and read twice, forward and backward


@dataclass(frozen=True)
class StepBounds:
    """Shortest possible seconds per step, were one resource all that counts; a real step takes at least the largest."""

    compute: float
    memory: float
    network: float

    @property
    def binding(self) -> str:
        """The resource with the largest bound."""
        return max(("compute", "memory", "network"), key=lambda name: getattr(self, name))

    @property
    def longest(self) -> float:
        """Seconds, with everything overlapped."""
        return max(self.compute, self.memory, self.network)


@dataclass(frozen=True)
class Plan:
    """Everything `forerun plan` prints about one run on one kind of device."""

    run: PlannedRun
    device: Device
    mfu: float
    memory: Memory
    weight_traffic: Traffic
    expert_traffic: Traffic
    bounds: StepBounds
    checkpoint_bytes: float
    """Float32 weights and optimizer state, one copy."""

    @property
    def num_devices(self) -> int:
        """Of the mesh."""
        return self.run.mesh.num_devices

    @property
    def fits(self) -> bool:
        """Whether one device's memory holds its share."""
        return self.memory.total <= self.device.memory_bytes

    @property
    def step_time_s(self) -> float:
        """At the stated MFU."""
        return self.run.train_flops / self.run.num_steps / (self.num_devices * self.device.peak_flops * self.mfu)

    @property
    def days(self) -> float:
        """Pure stepping at the stated MFU."""
        return self.step_time_s * self.run.num_steps / 86_400

    @property
    def energy_mwh(self) -> float:
        """Megawatt-hours, overhead included."""
        return self.days * 24 * self.num_devices * self.device.power_w * POWER_OVERHEAD / 1e6

    def as_json(self) -> dict[str, Any]:
        """Plain data; the keys of the glossary where it has one, bytes and seconds elsewhere."""
        run = self.run
        terms = count.forward_flops(run.model, run.seq_len)
        return {
            "name": run.name,
            "num_params": count.num_params(run.model),
            "num_params_headline": count.num_params_headline(run.model),
            "num_active_params": count.num_active_params(run.model),
            "params_by_part": count.params_by_part(run.model),
            "forward_flops_per_token": sum(terms.values()),
            "forward_flops_by_term": terms,
            "routed_flops_fraction": count.routed_flops_fraction(run.model, run.seq_len),
            "train_flops": run.train_flops,
            "fit_compute": count.fit_compute(run.model, run.seq_len, run.train_tokens),
            "train_tokens": run.train_tokens,
            "tokens_per_active_param": run.train_tokens / count.num_active_params(run.model),
            "num_steps": run.num_steps,
            "batch_tokens": run.batch_tokens,
            "seq_len": run.seq_len,
            "mesh": {axis: getattr(run.mesh, axis) for axis in ("replica", "data", "expert")},
            "device": self.device.name,
            "num_devices": self.num_devices,
            "memory_bytes": {
                "weights": self.memory.weights,
                "compute_copy": self.memory.compute_copy,
                "optimizer": self.memory.optimizer,
                "gradients": self.memory.gradients,
                "activations": dict(self.memory.activations),
                "expert_buffers": self.memory.expert_buffers,
                "remat": self.memory.remat,
                "total": self.memory.total,
                "device": self.device.memory_bytes,
                "fits": self.fits,
            },
            "network_bytes_per_step": {
                "weights": _levels(self.weight_traffic),
                "experts": {kind: _levels(traffic) for kind, traffic in transport_table(run, self.device).items()},
                "transport": run.transport.kind,
            },
            "step_bounds_s": {
                "compute": self.bounds.compute,
                "memory": self.bounds.memory,
                "network": self.bounds.network,
                "binding": self.bounds.binding,
            },
            "mfu": self.mfu,
            "step_time_s": self.step_time_s,
            "days": self.days,
            "energy_mwh": self.energy_mwh,
            "checkpoint_bytes": self.checkpoint_bytes,
            "ladder_flops_fraction": ladder_share(run),
        }


def plan(run: PlannedRun, device: Device, mfu: float = DEFAULT_MFU) -> Plan:
    """Work the plan out. Raises: ConfigError when `mfu` is not a fraction."""
    if not 0 < mfu <= 1:
        raise ConfigError(f"--mfu must lie in 0..1, 0 excluded, got {mfu:g}", hint="0.25 is a quarter of the device's peak")
    needed = memory(run)
    weights, experts = weight_traffic(run, device), expert_traffic(run, device, run.transport.kind)
    numbers = count.num_params(run.model) + sum(optimizer_numbers(run).values())
    return Plan(
        run=run,
        device=device,
        mfu=mfu,
        memory=needed,
        weight_traffic=weights,
        expert_traffic=experts,
        bounds=_bounds(run, device, needed, weights + experts),
        checkpoint_bytes=numbers * FLOAT,
    )


def _bounds(run: PlannedRun, device: Device, needed: Memory, traffic: Traffic) -> StepBounds:
    padding = 1 + count.routed_flops_fraction(run.model, run.seq_len) * (routed_rows_executed(run) - 1)
    recomputed = 1 + 1 / count.TRAIN_OVER_FORWARD if run.remat == "block" else 1.0
    executed = run.train_flops / run.num_steps / run.mesh.num_devices * padding * recomputed
    read_per_pass = needed.compute_copy or needed.weights
    touched = run.num_microbatches * (2 * read_per_pass + ACTIVATION_PASSES * needed.activations[run.remat] + 2 * needed.gradients)
    touched += 2 * (needed.weights + needed.optimizer)
    return StepBounds(
        compute=executed / device.peak_flops,
        memory=touched / device.memory_bandwidth,
        network=traffic.inner / device.inner_bandwidth + traffic.outer / device.outer_bandwidth,
    )


def _levels(traffic: Traffic) -> dict[str, float]:
    return {"inner": traffic.inner, "outer": traffic.outer}
