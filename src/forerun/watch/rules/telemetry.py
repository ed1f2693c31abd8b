"""Can the record be trusted at all? What is stale, frozen, renamed or missing makes the answer "cannot tell"."""

from __future__ import annotations

from difflib import get_close_matches

import numpy as np

from forerun.base import units
from forerun.record.series import Series
from forerun.watch.case import LOSS, Case
from forerun.watch.report import Finding
from forerun.watch.rules.machine import SILENT_S, SILENT_STEPS

FROZEN_ROWS = 20  # assumed: equal float32 losses in a row; two in a row already happen once in a million
STOPPED_ROWS = 20  # assumed: own intervals that a series may lag behind the run
NEW_NAME_WITHIN = 0.02  # assumed: share of the run between an old name's end and a new name's start


def telemetry(case: Case) -> list[Finding]:
    """One finding for everything that is wrong with the record, or one that says it is sound."""
    problems = [*_missing(case), *_stale(case), *_frozen(case), *_stopped(case)]
    if not problems:
        return [
            Finding(
                rule="telemetry",
                state="on_course",
                step=case.last_step,
                evidence="the series the verdict rests on are there, fresh and moving",
                false_alarm_rate=case.limits["telemetry"].false_alarm_rate,
            )
        ]
    return [
        Finding(
            rule="telemetry",
            state="cannot_tell",
            step=case.last_step,
            metric=metric,
            evidence=evidence,
            false_alarm_rate=case.limits["telemetry"].false_alarm_rate,
        )
        for metric, evidence in problems
    ]


def _missing(case: Case) -> list[tuple[str, str]]:
    if not case.record.metrics():
        return [(LOSS, "the run has no metrics yet")]
    needed = [case.band.metric] if case.band else []
    if not len(case.evals) or not case.band:
        needed = [LOSS, *needed]
    return [
        (metric, f"{metric} is not in the record{_near(metric, case.record.metrics())}")
        for metric in needed
        if not len(case.record.series(metric)) and not (case.band and metric == case.band.metric and case.last_step < case.band.first_step)
    ]


def _stale(case: Case) -> list[tuple[str, str]]:
    if case.now is None or case.finished:
        return []
    series = case.loss if len(case.loss) else case.evals
    times = series.time[np.isfinite(series.time)]
    if not len(times):
        return [(LOSS, "rows carry no time, so nothing says they are fresh")]
    usual = float(np.median(np.diff(times[-200:]))) if len(times) > 1 else 0.0
    age = case.now - float(times.max())
    if any(case.now - float(event["time"]) < SILENT_S for event in case.record.events("heartbeat")):
        return []
    allowed = max(SILENT_S, SILENT_STEPS * usual)
    return (
        [
            (
                LOSS,
                f"the last row is {units.duration(age)} old, one comes every {units.duration(usual)}: the record is stale or the run hangs",
            )
        ]
        if age > allowed
        else []
    )


def _frozen(case: Case) -> list[tuple[str, str]]:
    problems = []
    for metric in (LOSS, "grad_norm"):
        series = case.record.series(metric)
        tail = series.value[-FROZEN_ROWS:]
        if len(tail) == FROZEN_ROWS and np.ptp(tail) == 0 and np.ptp(series.value) > 0:
            since = int(series.step[np.flatnonzero(series.value != tail[-1])[-1] + 1])
            problems.append((metric, f"{metric} has been exactly {tail[-1]:.6g} since step {since:,}: frozen"))
    return problems


def _stopped(case: Case) -> list[tuple[str, str]]:
    """A series the verdict needs that was there and came to an end while others go on."""
    last = max((int(series.step[-1]) for name in case.record.metrics() if len(series := case.record.series(name))), default=-1)
    problems = []
    for metric in (LOSS, "grad_norm", *([case.band.metric] if case.band else ["eval/macro_loss_nats"])):
        series = case.record.series(metric)
        if len(series) < 3:
            continue
        lag, every = last - int(series.step[-1]), float(np.median(np.diff(series.step[-200:])))
        patience = STOPPED_ROWS if metric in (LOSS, "grad_norm") else 3
        if lag > patience * every and lag > 0.01 * last:
            problems.append(
                (metric, f"{metric} ends at step {series.step[-1]:,}, the record goes on to {last:,}{_successor(case, series, metric)}")
            )
    return problems


def _successor(case: Case, ended: Series, metric: str) -> str:
    """Names that begin where this one ends, as words: a rename."""
    room = max(NEW_NAME_WITHIN * case.last_step, 50)
    born = [
        name
        for name in case.record.metrics()
        if name != metric
        and len(series := case.record.series(name))
        and abs(int(series.step[0]) - int(ended.step[-1])) <= room
        and series.step[0] > ended.step[0]
    ]
    return f"; {born[0]} begins there: renamed?" if born else ""


def _near(metric: str, names: list[str]) -> str:
    near = get_close_matches(metric, names, n=1)
    return f"; did it become {near[0]}?" if near else ""
