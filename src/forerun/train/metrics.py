"""From a step's report to a row of the record, under the names of `base/terms.py`."""

from __future__ import annotations

import numpy as np

from forerun.model.count import mfu_executed, mfu_useful, routed_flops_fraction, train_flops
from forerun.train.config import RunConfig
from forerun.train.step import StepReport

PEAK_FLOPS_PER_CPU_DEVICE = 2.0e11  # measured: float32 products of XLA on two server cores reach 95-105 GFLOP/s each (2026-11-30)


class Rows:
    """Turns reports into rows; holds what stays the same over a run."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._step_flops = train_flops(config.model, config.train.seq_len, config.train.batch_tokens)
        self._routed = routed_flops_fraction(config.model, config.train.seq_len) if config.model.num_experts else 0.0

    def row(self, report: StepReport, *, step_time_s: float, learning_factor: float) -> dict[str, float]:
        """Loss, norms, routing, speed and rates of one finished step."""
        tokens = max(float(report.num_tokens), 1.0)
        row = {
            "loss_nats": float(report.nats_sum) / tokens,
            "z_loss": float(report.z_sum) / tokens,
            "learning_rate": self.config.optim.muonh_learning_rate * learning_factor,
            "learning_rate/adam": self.config.optim.adam_learning_rate * learning_factor,
            "step_time_s": step_time_s,
            "tokens_per_second": self.config.train.batch_tokens / step_time_s,
        }
        for kind, norms in (("grad_norm", report.grad_norm), ("param_norm", report.param_norm)):
            for group, norm in norms.items():
                row[kind if group == "total" else f"{kind}/{group}"] = float(norm)
        mfu = self._step_flops / step_time_s / (self.config.mesh.num_devices * PEAK_FLOPS_PER_CPU_DEVICE)
        row["mfu"] = mfu
        if self.config.model.num_experts:
            routing = _routing(report)
            row |= routing
            executed = float(np.asarray(report.rows_executed, np.float64).sum()) / max(
                float(np.asarray(report.load, np.float64).sum()), 1.0
            )
            row["mfu_executed"] = mfu_executed(mfu, self._routed, executed)
            if self.config.transport.capacity_factor:
                row |= _drops_by_place(report, self.config.model.top_k, self.config.mesh.num_devices)
            row["mfu_useful"] = mfu_useful(mfu, self._routed, routing["drop_fraction"])
        return row


def _routing(report: StepReport) -> dict[str, float]:
    load = np.asarray(report.load).astype(np.int64)
    dropped = np.asarray(report.dropped).astype(np.int64)
    by_layer = dropped.sum(1) / np.maximum(load.sum(1), 1)
    imbalance = load.max(1) / np.maximum(load.mean(1), 1e-9)
    entropy = np.asarray(report.router_entropy_nats)
    row = {
        "drop_fraction": float(dropped.sum() / max(int(load.sum()), 1)),
        "drop_fraction_worst": float(by_layer.max()),
        "load_imbalance": float(imbalance.max()),
        "router_entropy_nats": float(entropy.mean()),
        "router_bias_max": float(report.bias_max),
        "dead_expert_fraction": float((load == 0).mean()),
    }
    for layer in range(len(load)):
        row[f"load_imbalance/layer_{layer}"] = float(imbalance[layer])
        row[f"router_entropy_nats/layer_{layer}"] = float(entropy[layer])
        row[f"drop_fraction/layer_{layer}"] = float(by_layer[layer])
    return row


def _drops_by_place(report: StepReport, top_k: int, num_devices: int) -> dict[str, float]:
    """Drop fraction in each eighth of the sequences, and of the sender that lost most."""
    num_layers = len(np.asarray(report.load))
    by_position, by_sequence = (
        np.asarray(counts).astype(np.int64).sum(0) for counts in (report.dropped_by_position, report.dropped_by_sequence)
    )
    valid = np.asarray(report.valid_by_position).astype(np.int64) * top_k * num_layers
    row = {f"drop_fraction/position_{part}": float(by_position[part] / max(valid[part], 1)) for part in range(len(valid))}
    by_sender = by_sequence.reshape(num_devices, -1).sum(1)
    of_sender = np.asarray(report.valid_by_sequence).astype(np.int64).reshape(num_devices, -1).sum(1) * top_k * num_layers
    row["drop_fraction/worst_sender"] = float((by_sender / np.maximum(of_sender, 1)).max())
    return row
