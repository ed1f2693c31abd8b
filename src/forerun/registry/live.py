"""Rules while a run is under way: fed one row at a time, answering which promised rule now holds for the first time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.registry.rules import History, Rule

FIRST_ROWS = 1024  # assumed: buffers double from here


@dataclass(frozen=True)
class Fired:
    """A rule that began to hold."""

    kind: str
    """`stop`, `alarm` or `abort_budget`."""
    rule: str
    step: int


class LiveRules:
    """The stop rules, alarms and abort budget of one promise, scored as rows arrive.

    A rule is scored only in rows that hold one of its metrics, over numpy views of what came so far: about 10 microseconds a rule
    at 10,000 rows. Each rule is reported once.

    Args:
        num_steps: planned length, for `at(metric, fraction)`.
        flops_per_step: of the run; with `abort_budget_flops` 0 nothing is counted.
    """

    def __init__(
        self, stop: Iterable[Rule], alarm: Iterable[Rule], *, num_steps: int, flops_per_step: float = 0.0, abort_budget_flops: float = 0.0
    ) -> None:
        self._open = [("stop", rule) for rule in stop] + [("alarm", rule) for rule in alarm]
        self._num_steps, self._per_step, self._budget = num_steps, flops_per_step, abort_budget_flops
        self._history = LiveHistory({metric for _, rule in self._open for metric in rule.metrics})

    def resume(self, history: History, fired: set[str]) -> None:
        """Take over what was recorded before a restart; rules that had fired by then are not reported again."""
        for metric in self._history.metrics:
            fractions, values = history.values(metric)
            for fraction, value in zip(fractions.tolist(), values.tolist()):
                self._history.add(fraction, {metric: value})
        self._open = [(kind, rule) for kind, rule in self._open if rule.text not in fired]

    def observe(self, step: int, row: Mapping[str, float]) -> list[Fired]:
        """Take in one row of finished step `step`; returns the rules that hold now and did not before."""
        touched = self._history.add(step / max(self._num_steps, 1), row)
        fired = [
            Fired(kind, rule.text, step)
            for kind, rule in self._open
            if not touched.isdisjoint(rule.metrics) and rule.judge(self._history).holds
        ]
        if fired:
            gone = {(one.kind, one.rule) for one in fired}
            self._open = [(kind, rule) for kind, rule in self._open if (kind, rule.text) not in gone]
        if self._budget and step * self._per_step > self._budget:
            fired.append(Fired("abort_budget", f"{step * self._per_step:.3e} FLOPs > abort_budget_flops {self._budget:.3e}", step))
            self._budget = 0.0
        return fired


class LiveHistory:
    """Values by metric in growing buffers; adding is amortised constant, reading copies nothing."""

    def __init__(self, metrics: Iterable[str]) -> None:
        self._buffers = {metric: np.empty((2, FIRST_ROWS)) for metric in metrics}
        self._counts = dict.fromkeys(self._buffers, 0)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those it watches."""
        return tuple(self._buffers)

    def add(self, fraction: float, row: Mapping[str, float]) -> set[str]:
        """Keep the values of the watched metrics. Returns which the row had."""
        touched = self._buffers.keys() & row.keys()
        for metric in touched:
            count, buffer = self._counts[metric], self._buffers[metric]
            if count == buffer.shape[1]:
                buffer = self._buffers[metric] = np.concatenate([buffer, np.empty_like(buffer)], axis=1)
            buffer[0, count], buffer[1, count] = fraction, row[metric]
            self._counts[metric] = count + 1
        return set(touched)

    def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Fractions of the run and values, in order."""
        if metric not in self._buffers:
            return np.empty(0), np.empty(0)
        fraction, value = self._buffers[metric][:, : self._counts[metric]]
        return fraction, value
