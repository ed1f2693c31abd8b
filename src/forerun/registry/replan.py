"""Contingency: the same run with another end, its decay re-aimed, in numbers a person can decide on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from forerun.base.errors import RegistryError


@dataclass(frozen=True, kw_only=True)
class Replan:
    """What ending at another step means."""

    num_steps: int
    """Planned length so far."""
    new_num_steps: int
    step: int
    """Finished steps."""
    train_tokens: int
    new_train_tokens: int
    flops_saved: float
    """Negative when the new end is later."""
    factor_now: float
    """Learning rate of the next step over its peak, as planned."""
    factor_new: float
    """The same under the schedule of the new length: a jump when it differs."""
    re_aimed_fraction: float
    """Share of the new length over which the rate falls from `factor_now` to its end without a jump."""
    days_left: float
    """At the measured step time; NaN without one."""
    new_days_left: float


def replan(config: dict[str, Any], *, step: int, new_num_steps: int, train_flops: float, step_time_s: float = math.nan) -> Replan:
    """Arithmetic of ending a run at `new_num_steps`.

    Args:
        config: the frozen run config as plain data.
        train_flops: of the whole run as planned.
    Raises: RegistryError when the new end does not lie behind the finished steps.
    """
    train, schedule = config["train"], config["optim"]["schedule"]
    num_steps = train["num_steps"]
    if not 0 <= step <= num_steps:
        raise RegistryError(f"step must lie in 0..{num_steps}, got {step}", hint="the run's last finished step")
    if new_num_steps <= step:
        raise RegistryError(f"new num_steps must be more than the {step} finished steps, got {new_num_steps}", hint="name a later end")
    batch_tokens = train["batch_size"] * train["seq_len"]
    return Replan(
        num_steps=num_steps,
        new_num_steps=new_num_steps,
        step=step,
        train_tokens=num_steps * batch_tokens,
        new_train_tokens=new_num_steps * batch_tokens,
        flops_saved=train_flops * (1 - new_num_steps / num_steps),
        factor_now=schedule_factor(schedule, step, num_steps),
        factor_new=schedule_factor(schedule, step, new_num_steps),
        re_aimed_fraction=1 - step / new_num_steps,
        days_left=(num_steps - step) * step_time_s / 86_400,
        new_days_left=(new_num_steps - step) * step_time_s / 86_400,
    )


def schedule_factor(schedule: dict[str, Any], step: int, num_steps: int) -> float:
    """Learning rate over its peak for the step after `step` finished ones; the same shape as `optim/schedule.py`, without JAX."""
    warmup = max(1, round(schedule["warmup_fraction"] * num_steps))
    if step < warmup:
        return 1 / warmup + (1 - 1 / warmup) * min(1.0, step / max(1, warmup - 1))
    rest, end, past = max(1, num_steps - warmup), schedule["final_fraction"], step - warmup
    if schedule["kind"] == "cosine":
        return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, past / rest)))
    decay = rest if schedule["kind"] == "linear" else max(1, round(schedule["decay_fraction"] * num_steps))
    return 1 - (1 - end) * min(1.0, max(0, past - max(0, rest - decay)) / decay)
