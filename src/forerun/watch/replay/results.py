"""The tables of a replay as plain data, and the ones shipped with the project: shown beside every alarm's name."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from forerun.watch.replay.runner import Found, Healthy


def as_plain(healthy: Healthy | None, found: Sequence[Found]) -> dict[str, Any]:
    """JSON of `forerun replay`; numbers that do not exist are null."""
    plain: dict[str, Any] = {"schema": 1, "incidents": [{name: _number(value) for name, value in vars(line).items()} for line in found]}
    if healthy is not None:
        plain["healthy"] = {
            "num_runs": healthy.num_runs,
            "num_steps": healthy.num_steps,
            "any_alarm": healthy.any_alarm,
            "by_rule": healthy.by_rule,
        }
    return plain


def shipped() -> dict[str, Any]:
    """The replay that the shipped limits were checked with."""
    return json.loads((files("forerun.watch.replay") / "results.json").read_text(encoding="utf-8"))


def as_lines(healthy: Healthy | None, found: Sequence[Found]) -> list[str]:
    """The same tables as text."""
    lines = []
    if healthy is not None:
        lines.append(f"healthy runs: {healthy.num_runs} of {healthy.num_steps:,} steps, {healthy.any_alarm:.1%} raise any alarm")
        lines += [f"  {rule:16s} {share:.1%}" for rule, share in sorted(healthy.by_rule.items()) if share]
    if found:
        lines.append(f"{'incident':34s} {'runs':>4s} {'found':>6s} {'delay':>7s}  {'first alarm':16s} {'diagnosed':>9s} {'named':>6s}")
    for line in found:
        shares = [f"{share:.0%}" if math.isfinite(share) else "-" for share in (line.diagnosed, line.named)]
        delay = f"{line.median_delay:,.0f}" if math.isfinite(line.median_delay) else "-"
        lines.append(
            f"{line.incident:34s} {line.num_runs:4d} {line.detected:6.0%} {delay:>7s}  {line.first_rule:16s} {shares[0]:>9s} {shares[1]:>6s}"
        )
    return lines


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
