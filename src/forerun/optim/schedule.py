"""The learning rate over the run as a factor on its peak: warm-up, then linear, cosine or hold-and-decay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import optax

from forerun.optim.config import ScheduleConfig


def schedule(config: ScheduleConfig, num_steps: int) -> optax.Schedule:
    """Factor in 0..1 for the step about to be taken, counted from 0.

    The warm-up ends at 1 after `warmup_fraction` of the steps (at least one step, so the first update is not zero); the decay
    reaches `final_fraction` at the last step. A run whose length was amended follows the schedule it was planned with up to
    `reaimed_at_step`, then falls linearly from the rate it has there to the same end.
    """
    if config.planned_steps:
        planned = schedule(replace(config, planned_steps=0, reaimed_at_step=0), config.planned_steps)
        begin = config.reaimed_at_step
        fall = optax.linear_schedule(float(np.asarray(planned(begin))), config.final_fraction, max(1, num_steps - begin))
        return optax.join_schedules([planned, fall], [begin])
    warmup = max(1, round(config.warmup_fraction * num_steps))
    rest = max(1, num_steps - warmup)
    rise = optax.linear_schedule(1.0 / warmup, 1.0, max(1, warmup - 1))
    if config.kind == "linear":
        fall = optax.linear_schedule(1.0, config.final_fraction, rest)
    elif config.kind == "cosine":
        fall = optax.cosine_decay_schedule(1.0, rest, alpha=config.final_fraction)
    else:
        decay = max(1, round(config.decay_fraction * num_steps))
        fall = optax.linear_schedule(1.0, config.final_fraction, decay, transition_begin=max(0, rest - decay))
    return optax.join_schedules([rise, fall], [warmup])
