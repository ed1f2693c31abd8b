"""Can the record be trusted at all? What is stale, frozen, renamed or missing makes the answer "cannot tell"."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from forerun.base import units
from forerun.record.series import Series
from forerun.watch.case import LOSS, Case, dated, frozen_since
from forerun.watch.report import Finding
from forerun.watch.rules.alive import SILENT_S, last_time, silence_allowed, step_interval

STOPPED_ROWS, STOPPED_EVALS = 20, 3  # assumed: own intervals that a series may lag behind the run
NEW_NAME_WITHIN = 0.02  # assumed: share of the run between an old name's end and a new name's start


@dataclass(frozen=True)
class Problem:
    """One reason not to trust the record."""

    metric: str
    evidence: str
    signal: str


def telemetry(case: Case) -> list[Finding]:
    """One finding for everything that is wrong with the record, or one that says it is sound."""
    rate = case.limits["telemetry"].false_alarm_rate
    problems = [*_missing(case), *_stale(case), *_frozen(case), *_stopped(case)]
    if not problems:
        sound = "the series the verdict rests on are there, fresh and moving"
        if not dated(case.record):
            sound = "the series the verdict rests on are there and moving; rows carry no time: judged as they stand, not as live"
        return [Finding(rule="telemetry", state="on_course", step=case.last_step, evidence=sound, false_alarm_rate=rate)]
    return [
        Finding(
            rule="telemetry",
            state="cannot_tell",
            step=case.last_step,
            metric=problem.metric,
            evidence=problem.evidence,
            signals=(problem.signal,),
            false_alarm_rate=rate,
        )
        for problem in problems
    ]


def _missing(case: Case) -> list[Problem]:
    names = case.record.metrics()
    if not names:
        return [Problem(LOSS, "the run has no metrics yet", "record_missing")]
    expects_evals = case.band is not None and case.last_step >= case.band.first_step
    needed = [case.eval_metric] if expects_evals else []
    if not len(case.evals):
        needed.append(LOSS)
    return [
        Problem(metric, f"{metric} is not in the record{_near(metric, names)}", "record_missing")
        for metric in needed
        if metric not in names
    ]


def _stale(case: Case) -> list[Problem]:
    if case.now is None or case.finished:
        return []
    series = case.loss if len(case.loss) else case.evals
    if not len(series):
        return []
    if np.isnan(last_time(series)):
        words = "rows carry no time, so nothing says they are fresh: log one, or judge the record as it stands with --once or --afterwards"
        return [Problem(LOSS, words, "record_undated")]
    if any(case.now - float(event["time"]) < SILENT_S for event in case.record.events("heartbeat")):
        return []
    age = case.now - last_time(series)
    if age > silence_allowed(series) and any(
        case.now - float(event["time"]) < SILENT_S for event in case.record.events("tracker_heartbeat")
    ):
        words = f"the tracker is alive but its history stands at step {case.last_step:,} for {units.duration(age)}: a replay below its high-water mark, or a hang"
        return [Problem(LOSS, words, "record_high_water")]
    words = f"the last row is {units.duration(age)} old, one comes every {units.duration(step_interval(series))}: the record is stale or the run hangs"
    return [Problem(LOSS, words, "record_stale")] if age > silence_allowed(series) else []


def _frozen(case: Case) -> list[Problem]:
    problems = []
    for metric in (LOSS, "grad_norm"):
        series = case.record.series(metric)
        since = frozen_since(series)
        if since is not None:
            words = f"{metric} has been exactly {series.value[-1]:.6g} since step {since:,}: frozen"
            problems.append(Problem(metric, words, "record_frozen"))
    return problems


def _stopped(case: Case) -> list[Problem]:
    """A series the verdict needs that was there and came to an end while others go on."""
    last = max((int(series.step[-1]) for name in case.record.metrics() if len(series := case.record.series(name))), default=-1)
    problems = []
    for metric, patience in (
        (LOSS, STOPPED_ROWS),
        ("grad_norm", STOPPED_ROWS),
        (case.eval_metric, STOPPED_EVALS),
    ):
        series = case.record.series(metric)
        if len(series) < 3:
            continue
        lag, every = last - int(series.step[-1]), float(np.median(np.diff(series.step[-200:])))
        if lag <= every or lag <= 0.01 * last:
            continue
        successor = _successor(case, series, metric)
        if lag > patience * every or successor:
            words = f"{metric} ends at step {series.step[-1]:,}, the record goes on to {last:,}{successor}"
            problems.append(Problem(metric, words, "record_stopped"))
    return problems


def _successor(case: Case, ended: Series, metric: str) -> str:
    """A name that begins where this one ends, as words: a rename."""
    room = max(NEW_NAME_WITHIN * case.last_step, 2 * float(np.median(np.diff(ended.step))))
    for name in case.record.metrics():
        series = case.record.series(name)
        if name != metric and len(series) and abs(int(series.step[0]) - int(ended.step[-1])) <= room and series.step[0] > ended.step[0]:
            return f"; {name} begins there: renamed?"
    return ""


def _near(metric: str, names: list[str]) -> str:
    near = get_close_matches(metric, names, n=1)
    return f"; did it become {near[0]}?" if near else ""
