"""Fractions of a run as steps."""

from __future__ import annotations

from forerun.train.config import RunConfig


def moments(config: RunConfig, every_fraction: float) -> frozenset[int]:
    """Steps after which something happens: at every fraction of the run, and always at the end."""
    if every_fraction == 0:
        return frozenset({config.train.num_steps})
    count = round(1 / every_fraction)
    return frozenset({step_at(config, index * every_fraction) for index in range(1, count + 1)} | {config.train.num_steps}) - {0}


def step_at(config: RunConfig, fraction: float) -> int:
    """The step a fraction of the run falls on."""
    return min(config.train.num_steps, round(fraction * config.train.num_steps))
