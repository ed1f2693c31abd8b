"""Parameters whose norm the optimizer keeps must keep it."""

from __future__ import annotations

import numpy as np

from forerun.watch.case import Case, finite
from forerun.watch.report import Finding
from forerun.watch.rules import past

STEADY = 1e-4  # assumed: a norm that moves less than this in its first tenth is one the optimizer holds; float32 rescaling moves it by 1e-6
TOLERANCE = 5e-3  # assumed: float32 rounding over 400,000 rescalings stays far below


def constant_norms(case: Case) -> list[Finding]:
    """A parameter group that began with a constant norm must end with it."""
    held, moved = [], []
    for name in past.qualified(case, "param_norm"):
        series = finite(case.record.series(name))
        early = series.value[series.step <= max(0.1 * case.num_steps, 1)]
        if len(early) < 5 or len(series) < 2 * len(early) or early[0] <= 0:
            continue
        if np.ptp(early) <= STEADY * early[0]:
            held.append(name)
            away = np.abs(series.value / early[0] - 1)
            if away[-1] > TOLERANCE:
                moved.append((float(away[-1]), name, int(series.step[np.argmax(away > TOLERANCE)]), float(series.last), float(early[0])))
    if not held:
        return [
            Finding(
                rule="constant_norms",
                state="cannot_tell",
                metric="param_norm",
                evidence="no parameter norm that is held constant is logged yet",
            )
        ]
    if not moved:
        return [
            Finding(
                rule="constant_norms",
                state="on_course",
                value=0.0,
                high=TOLERANCE,
                step=case.last_step,
                metric="param_norm",
                evidence=f"{len(held)} held norms are constant",
                false_alarm_rate=0.0,
            )
        ]
    away, name, step, value, expected = max(moved)
    return [
        Finding(
            rule="constant_norms",
            state="off_course",
            value=value,
            expected=expected,
            low=expected * (1 - TOLERANCE),
            high=expected * (1 + TOLERANCE),
            step=step,
            metric=name,
            evidence=f"{name} should be constant and moved {away:.1%} since step {step:,}"
            + (f"; {len(moved)} groups moved" if len(moved) > 1 else ""),
            false_alarm_rate=0.0,
        )
    ]
