"""Designs side by side: every combination of the given field values, one row each."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from forerun.base.config import with_overrides
from forerun.base.errors import ConfigError
from forerun.model import count
from forerun.model.config import ModelConfig
from forerun.plan.cost import plan
from forerun.plan.devices import Device
from forerun.plan.length import num_steps
from forerun.plan.run import PlannedRun

MAX_ROWS = 1000  # assumed: more rows than anyone compares by eye


def parse_sweep(arguments: list[str]) -> dict[str, list[Any]]:
    """`num_experts=64,128 top_k=4,8` as field -> values. Raises: ConfigError naming the field or value."""
    known = [field.name for field in fields(ModelConfig)]
    axes: dict[str, list[Any]] = {}
    for argument in arguments:
        name, equals, values = argument.partition("=")
        name = name.removeprefix("model.")
        if not equals or not values:
            raise ConfigError(f"--sweep needs field=value,value, got {argument!r}", hint="for example --sweep num_experts=64,128")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise ConfigError(f"--sweep: model has no field {name!r}", hint=f"did you mean {near[0]}?" if near else ", ".join(known))
        axes[name] = [_value(text) for text in values.split(",")]
    return axes


def sweep(run: PlannedRun, axes: dict[str, list[Any]], device: Device, mfu: float) -> list[dict[str, Any]]:
    """One row per combination, at the run's ratio of tokens to active parameters; impossible ones carry `problem` alone.

    Raises: ConfigError when there are more than 1000 combinations, or none is possible.
    """
    ratio = run.train_tokens / count.num_active_params(run.model)
    combinations = list(itertools.product(*axes.values()))
    if len(combinations) > MAX_ROWS:
        raise ConfigError(f"--sweep makes {len(combinations)} designs, at most {MAX_ROWS} are shown", hint="give fewer values")
    rows: list[dict[str, Any]] = []
    problems: list[ConfigError] = []
    for values in combinations:
        design = dict(zip(axes, values))
        try:
            rows.append(design | _row(run, design, ratio, device, mfu))
        except ConfigError as error:
            rows.append(design | {"problem": error.message})
            problems.append(error)
    if len(problems) == len(rows):
        raise problems[0]
    return rows


def _row(run: PlannedRun, design: dict[str, Any], ratio: float, device: Device, mfu: float) -> dict[str, Any]:
    model = with_overrides(run.model, [f"{name}={json.dumps(value)}" for name, value in design.items()])
    steps = num_steps(num_active_params=count.num_active_params(model), batch_tokens=run.batch_tokens, tokens_per_active_param=ratio)
    outcome = plan(replace(run, model=model, num_steps=steps), device, mfu)
    return {
        "num_params": count.num_params(model),
        "num_active_params": count.num_active_params(model),
        "forward_flops_per_token": count.forward_flops_per_token(model, run.seq_len),
        "routed_flops_fraction": count.routed_flops_fraction(model, run.seq_len),
        "train_flops": outcome.run.train_flops,
        "memory_bytes": outcome.memory.total,
        "expert_bytes_per_step": outcome.expert_traffic.inner + outcome.expert_traffic.outer,
        "days": outcome.days,
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
