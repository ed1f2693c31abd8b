"""Speed: medians over steps without evaluation and saving, against the run's own usual pace."""

from __future__ import annotations

import numpy as np

from forerun.record.series import Series
from forerun.watch.case import EVAL_LOSS, Case
from forerun.watch.report import Finding
from forerun.watch.rules import past

SLOWER = 0.2  # measured: operators of a 535B run act on throughput 20-30% under its baseline for several checks


def speed(case: Case) -> list[Finding]:
    """Is MFU (or step time, where MFU is not logged) where it used to be?"""
    for metric, falls in (("mfu", True), ("tokens_per_second", True), ("step_time_s", False)):
        series = _plain_steps(case, case.record.series(metric))
        now = past.standing(case, series, since_change=("systems", "context"))
        if now is None:
            continue
        limit = case.limits["speed"]
        room = max(SLOWER * now.usual, limit.limit * now.spread)
        low, high = (now.usual - room, float("nan")) if falls else (float("nan"), now.usual + room)
        off = now.now < low if falls else now.now > high
        return [
            Finding(
                rule="speed",
                state="off_course" if off else "on_course",
                value=now.now,
                expected=now.usual,
                low=low,
                high=high,
                score=(now.usual - now.now if falls else now.now - now.usual) / room,
                step=now.step,
                metric=metric,
                evidence=f"{metric} is {now.now:.4g}, usually {now.usual:.4g}: median of {past.NOW_ROWS} steps without evaluation or saving",
                false_alarm_rate=limit.false_alarm_rate,
            )
        ]
    return [
        Finding(rule="speed", state="cannot_tell", metric="mfu", evidence="neither MFU nor tokens per second nor step time has enough rows")
    ]


def _plain_steps(case: Case, series: Series) -> Series:
    """The rows that are neither at, nor right behind, an evaluation or a save."""
    saved = [step for step, _ in case.saves]
    busy = np.union1d(case.record.series(EVAL_LOSS).step, np.array(saved, dtype=np.int64))
    keep = ~np.isin(series.step, np.concatenate([busy, busy + 1]))
    return Series(series.step[keep], series.value[keep], series.time[keep])
