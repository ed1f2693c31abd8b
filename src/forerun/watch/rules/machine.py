"""The machines under the run: memory per host and checkpoints."""

from __future__ import annotations

import numpy as np

from forerun.base import units
from forerun.record.series import Series
from forerun.watch.case import Case, finite
from forerun.watch.report import Finding
from forerun.watch.rules import past

GROWTH = 0.05  # assumed: memory that grew by a twentieth over a window and keeps growing
WINDOWS = (1 / 3, 1 / 6)  # assumed: last shares of the rows that are looked at; a young leak is still flat in most of the longer one
TREND = 0.8  # assumed: rank correlation of memory with time that counts as steady growth
LATE_SAVES = 2.0  # assumed: intervals without a save
SLOW_SAVE = 3.0  # assumed: times the usual duration of a save


def memory_growth(case: Case) -> list[Finding]:
    """Does resident memory keep growing on some host?"""
    growing, judged = [], 0
    for host, logged in _hosts(case).items():
        series = finite(logged)
        begin = np.searchsorted(series.step, past.WARM_FRACTION * case.num_steps)
        windows = [
            rows for share in WINDOWS if len(rows := np.arange(max(int(len(series) * (1 - share)), begin), len(series))) >= past.MIN_PAST
        ]
        judged += bool(windows)
        grown = [found for rows in windows if (found := _growth(series.value[rows]))]
        if grown:
            before, now = max(grown, key=lambda found: found[1] / found[0])
            growing.append((now / before, host, now, before, int(series.step[windows[0][0]])))
    if not judged:
        return [
            Finding(rule="memory_growth", state="cannot_tell", metric="memory_gib", evidence="memory is not logged, or has too few rows")
        ]
    limit = case.limits["memory_growth"]
    if not growing:
        return [
            Finding(
                rule="memory_growth",
                state="on_course",
                step=case.last_step,
                metric="memory_gib",
                evidence=f"steady on {judged} hosts",
                false_alarm_rate=limit.false_alarm_rate,
            )
        ]
    factor, host, value, expected, step = max(growing)
    who = f"{host} and {len(growing) - 1} more" if len(growing) > 1 else host
    return [
        Finding(
            rule="memory_growth",
            state="off_course",
            value=value,
            expected=expected,
            high=expected * (1 + GROWTH),
            step=step,
            metric="memory_gib",
            evidence=f"memory grew {factor - 1:.0%} since step {step:,} on {who}; {judged - len(growing)} hosts are steady",
            signals=("memory_some_hosts" if judged > len(growing) else "memory_all_hosts",),
            false_alarm_rate=limit.false_alarm_rate,
        )
    ]


def _growth(value: np.ndarray) -> tuple[float, float] | None:
    """First and last median of ten when they grew and kept growing; else None."""
    medians = np.array([np.median(part) for part in np.array_split(value, 10)])
    trend = float(np.corrcoef(np.arange(10), np.argsort(np.argsort(medians)))[0, 1])
    grew = medians[-1] > medians[0] * (1 + GROWTH) and medians[-1] > medians[-3] and trend >= TREND
    return (float(medians[0]), float(medians[-1])) if grew else None


def checkpoint(case: Case) -> list[Finding]:
    """How old is the last save, did the last one fail, and did it take longer than usual?"""
    failures = case.record.events("checkpoint_failed")
    if not case.saves and not failures:
        return [Finding(rule="checkpoint", state="cannot_tell", evidence="no save is recorded")]
    last = max((step for step, _ in case.saves), default=0)
    failed = [event for event in failures if event["step"] >= last]
    if failed:
        reason = failed[-1].get("reason", "no reason recorded")
        return [
            Finding(
                rule="checkpoint",
                state="off_course",
                value=float(case.last_step - last),
                step=failed[-1]["step"],
                evidence=f"{len(failed)} saves failed since step {last:,}: {reason}",
                signals=("save_failed",),
                false_alarm_rate=0.0,
            )
        ]
    steps = [step for step, _ in case.saves]
    every = float(np.median(np.diff(steps))) if len(steps) >= 3 else np.nan
    age = case.last_step - last
    seconds = [took for _, took in case.saves if np.isfinite(took)]
    usual = float(np.median(seconds)) if seconds else np.nan
    if age > LATE_SAVES * every:
        evidence, meaning = f"the last save is {age:,} steps old, one is due every {every:,.0f}", ("save_overdue",)
    elif len(seconds) >= 4 and seconds[-1] > SLOW_SAVE * usual and seconds[-1] > usual + 10:
        evidence, meaning = f"the last save took {units.duration(seconds[-1])}, usually {units.duration(usual)}", ("save_slow",)
    else:
        evidence, meaning = f"saved at step {last:,}" + (f" in {units.duration(seconds[-1])}" if seconds else ""), ()
    return [
        Finding(
            rule="checkpoint",
            state="off_course" if meaning else "on_course",
            value=float(age),
            high=LATE_SAVES * every,
            step=last,
            evidence=evidence,
            signals=meaning,
            false_alarm_rate=0.0,
        )
    ]


def _hosts(case: Case) -> dict[str, Series]:
    """Memory per host: one writer each, or qualified names in one record."""
    hosts = {f"writer {number}": series for number, series in case.record.by_writer("memory_gib").items()}
    return hosts | {name.split("/", 1)[1]: case.record.series(name) for name in past.qualified(case, "memory_gib")}
