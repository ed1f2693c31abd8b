"""Who lost assignments since the last evaluation: by sender, expert, layer and position, counted in 64 bits on the host."""

# N layers with a router, E experts

from __future__ import annotations

from typing import Any

import numpy as np

from forerun.train.config import RunConfig
from forerun.train.step import StepReport

COUNTED = ("load", "dropped", "dropped_by_sequence", "dropped_by_position", "valid_by_sequence", "valid_by_position")


class DropCount:
    """Sums of step reports; one layer's counts fit 32 bits, sums over layers and steps need not."""

    def __init__(self, config: RunConfig) -> None:
        self._top_k, self._senders = config.model.top_k, config.mesh.num_devices
        self._num_steps, self._sums = 0, dict[str, np.ndarray]()
        self._rows_sent = self._rows_executed = 0.0

    def add(self, report: StepReport) -> None:
        """Count one more step."""
        self._num_steps += 1
        for name in COUNTED:
            self._sums[name] = self._sums.get(name, 0) + np.asarray(getattr(report, name)).astype(np.int64)
        self._rows_sent += float(np.asarray(report.rows_sent, np.float64).sum())
        self._rows_executed += float(np.asarray(report.rows_executed, np.float64).sum())

    def take(self) -> dict[str, Any]:
        """The fields of a `drops` event, and start anew. `valid_*` are assignments over all layers; senders are devices in mesh order."""
        sums, num_layers = self._sums, self._sums["load"].shape[0]
        valid_of = self._top_k * num_layers
        fields = {
            "num_steps": self._num_steps,
            "dropped_by_layer": sums["dropped"].sum(1),
            "valid_by_layer": sums["load"].sum(1),
            "dropped_by_expert": sums["dropped"].sum(0),
            "valid_by_expert": sums["load"].sum(0),
            "dropped_by_layer_and_expert": sums["dropped"],
            "valid_by_layer_and_expert": sums["load"],
            "dropped_by_sender": sums["dropped_by_sequence"].sum(0).reshape(self._senders, -1).sum(1),
            "valid_by_sender": valid_of * sums["valid_by_sequence"].reshape(self._senders, -1).sum(1),
            "dropped_by_position": sums["dropped_by_position"].sum(0),
            "valid_by_position": valid_of * sums["valid_by_position"],
            "rows_sent": self._rows_sent,
            "rows_executed": self._rows_executed,
        }
        self._num_steps, self._sums, self._rows_sent, self._rows_executed = 0, {}, 0.0, 0.0
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()}
