"""Who is still alive: heartbeats per rank and phase, and progress of steps. Only a live watch can tell."""

from __future__ import annotations

import math

import numpy as np

from forerun.base import units
from forerun.record.series import Series
from forerun.watch.case import Case
from forerun.watch.report import Finding, State

SILENT_S, SILENT_STEPS = 300.0, 20.0  # measured: a 535B run's pager warns at 300 s; slower runs get 20 of their own steps
STALLED_S = 900.0  # measured: the same run's watchdog kills after 900 s without progress


def heartbeat(case: Case) -> list[Finding]:
    """Does every rank still report, and do steps still come?"""
    if case.broken_off:
        reason = str(case.broken_off.get("message") or case.broken_off.get("reason") or "")
        words = f"ended by {case.broken_off['kind']} at step {case.last_step:,}" + (f" of {case.num_steps:,}" if case.num_steps else "")
        return [_finding(case, "off_course", words + (f": {reason}" if reason else ""))]
    if case.now is None or case.finished:
        return [_finding(case, "on_course", "the run has ended" if case.finished else "judged afterwards, nothing can be late")]
    beats = _last_beats(case)
    age = case.now - last_time(case.loss)
    allowed = silence_allowed(case.loss)
    silent = {rank: case.now - when for rank, (when, _) in beats.items() if case.now - when > allowed}
    if not beats:
        return [
            _finding(
                case, "on_course" if age <= allowed else "cannot_tell", f"ranks do not report; the last step is {_ago(age)}", age, allowed
            )
        ]
    if len(silent) == len(beats):
        return [_finding(case, "cannot_tell", f"no rank reports; the last step is {_ago(age)}", age, allowed)]
    if silent:
        rank = max(silent, key=lambda name: silent[name])
        words = f"{len(silent)} of {len(beats)} ranks are silent; {rank} for {units.duration(silent[rank])}{_phase(beats[rank][1])}"
        return [_finding(case, "off_course", words, silent[rank], allowed, ("rank_silent",))]
    stalled = max(STALLED_S, SILENT_STEPS * step_interval(case.loss))
    if age > stalled:
        phases = "/".join(sorted({phase for _, phase in beats.values() if phase}))
        return [
            _finding(
                case,
                "off_course",
                f"no step for {units.duration(age)} while all ranks report{_phase(phases)}",
                age,
                stalled,
                ("no_progress",),
            )
        ]
    return [_finding(case, "on_course", f"{len(beats)} ranks report; the last step is {_ago(age)}", age, stalled)]


def silence_allowed(series: Series) -> float:
    """Seconds without news that still are ordinary for a run of this pace."""
    return max(SILENT_S, SILENT_STEPS * step_interval(series))


def step_interval(series: Series) -> float:
    """Median seconds between the last logged rows; 0 when rows carry no time."""
    times = series.time[np.isfinite(series.time)][-200:]
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def last_time(series: Series) -> float:
    """Unix seconds of the newest row; NaN when rows carry no time."""
    times = series.time[np.isfinite(series.time)]
    return float(times.max()) if len(times) else math.nan


def _last_beats(case: Case) -> dict[str, tuple[float, str]]:
    """Per rank, when it last reported and the phase it was in."""
    return {
        f"rank {event.get('rank', 0)}": (float(event["time"]), str(event.get("phase", ""))) for event in case.record.events("heartbeat")
    }


def _finding(
    case: Case, state: State, evidence: str, value: float = math.nan, high: float = math.nan, signals: tuple[str, ...] = ()
) -> Finding:
    return Finding(
        rule="heartbeat", state=state, value=value, high=high, step=case.last_step, evidence=evidence, signals=signals, false_alarm_rate=0.0
    )


def _phase(phase: str) -> str:
    return f" in {phase}" if phase else ""


def _ago(age: float) -> str:
    return f"{units.duration(age)} old" if np.isfinite(age) else "of unknown age"
