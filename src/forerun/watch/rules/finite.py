"""Numbers that are no numbers any more."""

from __future__ import annotations

import numpy as np

from forerun.watch.case import EVAL_LOSS, LOSS, Case
from forerun.watch.report import Finding

WATCHED = (LOSS, "grad_norm", EVAL_LOSS)


def nonfinite(case: Case) -> list[Finding]:
    """A loss or gradient norm that is NaN or infinite, unless the run has stepped past it since."""
    found = []
    for metric in WATCHED:
        series = case.record.series(metric)
        wrong = np.flatnonzero(~np.isfinite(series.value))
        if not len(wrong):
            continue
        first, last = int(series.step[wrong[0]]), int(series.step[wrong[-1]])
        where = f"step {first:,}" if len(wrong) == 1 else f"{len(wrong):,} steps, from {first:,} to {last:,}"
        recent = case.recent(last) or last == series.step[-1]
        found.append(
            Finding(
                rule="nonfinite",
                state="off_course" if recent else "on_course",
                value=float(series.value[wrong[0]]),
                step=first,
                metric=metric,
                evidence=f"{metric} is not finite at {where}",
                false_alarm_rate=0.0,
            )
        )
    steady = Finding(
        rule="nonfinite", state="on_course", step=case.last_step, evidence="losses and gradient norms are finite", false_alarm_rate=0.0
    )
    return found or [steady]
