"""`experiment.toml`: what is promised before a run, in fields a machine can score."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from forerun.base.config import load_toml
from forerun.base.errors import RegistryError
from forerun.registry.possible import check_metric
from forerun.registry.rules import Rule, parse


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the metric will be at the end of the run."""

    point: float
    """Most likely value, in the metric's unit."""
    low50: float
    """The value is above this and below `high50` in half of such predictions."""
    high50: float
    """Upper end of the 50% interval."""
    low90: float
    """The value is above this and below `high90` in nine of ten such predictions."""
    high90: float
    """Upper end of the 90% interval."""
    forecast: str = ""
    """File under `ledger/forecasts/` that the numbers come from; empty when they do not come from one."""

    def __post_init__(self) -> None:
        for name in ("point", "low50", "high50", "low90", "high90"):
            if not math.isfinite(getattr(self, name)):
                raise RegistryError(f"prediction.{name} must be finite, got {getattr(self, name)}", hint="give a wide number instead")
        order = (("low90", "low50"), ("low50", "point"), ("point", "high50"), ("high50", "high90"))
        for lower, upper in order:
            if not getattr(self, lower) <= getattr(self, upper):
                raise RegistryError(
                    f"prediction.{lower} must not exceed prediction.{upper}={getattr(self, upper)}, got {getattr(self, lower)}",
                    hint="order them low90 <= low50 <= point <= high50 <= high90",
                )


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A change that is planned from the start."""

    at_fraction: float
    """Share of the run after which it is made."""
    change: str
    """What changes."""

    def __post_init__(self) -> None:
        if not 0 <= self.at_fraction < 1:
            raise RegistryError(f"segments.at_fraction must lie in 0..1, 1 excluded, got {self.at_fraction}", hint="a share of the run")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One promise."""

    schema: Literal[1] = 1
    """Of this file."""
    title: str
    """One line for people."""
    owner: str
    """Who answers for it; the lab's calibration is kept by owner."""
    kind: Literal["exploratory", "confirmatory"]
    """Whether the outcome is looked for, or a hypothesis is put to the test."""
    hypothesis: str
    """What is believed, in one sentence."""
    falsified_by: str
    """What would show the hypothesis wrong."""
    metric: str
    """Key in the record that decides."""
    metric_definition: str
    """Exact evaluation: data, number of sequences, with or without drops."""
    prediction: Prediction
    """What the metric is promised to be."""
    baseline: str
    """What the outcome is compared with, with its value."""
    success: str
    """Rule over metric names; see `registry/rules.py`."""
    stop: tuple[str, ...] = ()
    """Rules that end the run early when one holds."""
    alarm: tuple[str, ...] = ()
    """Rules that are written into the record when one first holds; the run goes on."""
    abort_budget_flops: float = 0.0
    """Compute after which the run is given up; 0 sets no limit."""
    compute_budget_flops: float
    """Planned compute of the run itself."""
    segments: tuple[Segment, ...] = ()
    """Planned changes."""
    valid_if: str = ""
    """Conditions outside of which the prediction says nothing."""
    already_seen: str
    """Earlier runs, pilot results and peeks at this very outcome; "nothing" when nothing."""
    ladder_runs: tuple[str, ...] = field(default_factory=tuple)
    """Runs the prediction rests on."""

    def __post_init__(self) -> None:
        texts = ("title", "owner", "hypothesis", "falsified_by", "metric_definition", "baseline", "already_seen")
        empty = [name for name in texts if not getattr(self, name).strip()]
        if empty:
            raise RegistryError(
                f"experiment.{', experiment.'.join(empty)} must not be empty", hint="a reader needs all of them to judge it"
            )
        check_metric(self.metric, "experiment.metric")
        success = self.success_rule()
        if self.metric not in success.metrics:
            raise RegistryError(
                f"experiment.success must read experiment.metric={self.metric!r}, got {self.success!r}", hint=f"use final({self.metric})"
            )
        self.stop_rules()
        self.alarm_rules()
        if not 0 < self.compute_budget_flops < math.inf:
            raise RegistryError(
                f"experiment.compute_budget_flops must be positive and finite, got {self.compute_budget_flops}",
                hint="`forerun plan` prints it",
            )
        if not (self.abort_budget_flops == 0 or self.compute_budget_flops <= self.abort_budget_flops < math.inf):
            raise RegistryError(
                f"experiment.abort_budget_flops must be 0 or at least compute_budget_flops={self.compute_budget_flops:g}, got {self.abort_budget_flops:g}",
                hint="0 sets no limit",
            )

    def success_rule(self) -> Rule:
        """`success`, parsed; it may name the prediction's numbers, as in `inside(final(m), low90, high90)`."""
        return parse(self.success, where="experiment.success", names=self._numbers())

    def stop_rules(self) -> tuple[Rule, ...]:
        """`stop`, parsed."""
        return tuple(parse(rule, where=f"experiment.stop[{index}]", names=self._numbers()) for index, rule in enumerate(self.stop))

    def alarm_rules(self) -> tuple[Rule, ...]:
        """`alarm`, parsed."""
        return tuple(parse(rule, where=f"experiment.alarm[{index}]", names=self._numbers()) for index, rule in enumerate(self.alarm))

    def _numbers(self) -> dict[str, float]:
        return {name: getattr(self.prediction, name) for name in ("point", "low50", "high50", "low90", "high90")}


def load(folder: Path) -> Experiment:
    """Read and check `folder/experiment.toml`."""
    return load_toml(folder / "experiment.toml", Experiment)
