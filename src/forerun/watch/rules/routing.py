"""Experts: drops, load, dead experts, entropy and bias of the router, against the rungs and against the run's own past."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.watch.case import Case
from forerun.watch.report import Finding
from forerun.watch.rules import past


@dataclass(frozen=True)
class Level:
    """How far one routing metric may leave its usual level."""

    rule: str
    metric: str
    words: str
    room: float
    """Absolute distance always allowed."""
    factor: float
    """Relative distance always allowed, as a share of the usual value."""
    falls: bool = False
    """The bad direction is down."""


LEVELS = (
    Level(
        "drop_fraction", "drop_fraction", "dropped assignments", 0.02, 1.0
    ),  # measured: rungs drop 0 to 10% and end at 4%; the hero 2.6 to 3.4%
    Level("load_imbalance", "load_imbalance", "load of the fullest expert over the mean", 0.2, 0.5),  # assumed
    Level("dead_experts", "dead_expert_fraction", "experts without a token", 0.02, 1.0),  # assumed: 1 expert of 50
    Level("router_bias", "router_bias_max", "largest routing bias", 0.01, 1.0),  # assumed: doubling is not steady
    Level(
        "router_entropy", "router_entropy_nats", "entropy of the mean routing distribution", 0.03, 0.0, True
    ),  # measured: a pager for 384 experts fires 0.031 below ln 384
)


def routing(case: Case) -> list[Finding]:
    """One finding per level; the worst layer is named where layers are logged."""
    return [_judged(case, level) for level in LEVELS]


def _judged(case: Case, level: Level) -> Finding:
    now = past.standing(case, case.record.series(level.metric), since_change=("systems", "context"))
    if now is None:
        return Finding(
            rule=level.rule, state="cannot_tell", metric=level.metric, evidence=f"{level.metric} is not logged, or has too few rows"
        )
    limit = case.limits[level.rule]
    room = max(level.room, level.factor * abs(now.usual), limit.limit * now.spread)
    expected = now.usual
    rungs = past.at_fraction(case.rungs, level.metric, case.last_step / case.num_steps) if case.num_steps else []
    low, high = (expected - room, math.nan) if level.falls else (math.nan, expected + room)
    if rungs and not level.falls:
        high = max(high, max(rungs) + level.room)
    off = now.now < low if level.falls else now.now > high
    layer = _worst_layer(case, level) if off else ""
    evidence = (
        f"{level.words}: {now.now:.4g}, usually {now.usual:.4g}"
        + (f", rungs here {min(rungs):.4g} to {max(rungs):.4g}" if rungs else "")
        + layer
    )
    return Finding(
        rule=level.rule,
        state="off_course" if off else "on_course",
        value=now.now,
        expected=expected,
        low=low,
        high=high,
        score=(now.usual - now.now if level.falls else now.now - now.usual) / (expected - low if level.falls else high - expected),
        step=now.step,
        metric=level.metric,
        evidence=evidence,
        false_alarm_rate=limit.false_alarm_rate,
    )


def _worst_layer(case: Case, level: Level) -> str:
    """The layer that left its usual level the most, as words; empty when layers are not logged."""
    moved = {}
    for name in past.qualified(case, level.metric):
        layer = past.standing(case, case.record.series(name), since_change=("systems", "context"))
        if layer is not None:
            moved[name] = (layer.usual - layer.now) if level.falls else (layer.now - layer.usual)
    if not moved:
        return ""
    worst = max(moved, key=lambda name: moved[name])
    return f"; most in {worst.split('/', 1)[1]} ({moved[worst]:+.3g})"
