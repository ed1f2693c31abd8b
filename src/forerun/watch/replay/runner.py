"""Replays: how many healthy runs each alarm disturbs, how many planted incidents it finds, and how many steps later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.watch.case import MEMORY_FRACTION, Limit, shipped_limits
from forerun.watch.course import judge
from forerun.watch.replay.healthy import Noise, Run, healthy_run
from forerun.watch.replay.incidents import Incident
from forerun.watch.report import Finding, Report, State

WATCHES = (
    0.005,
    0.02,
    0.05,
    0.09,
    0.14,
)  # assumed: shares of the run after the incident at which the watch looks; the last sees two evaluations
EXACT = ("loss_shift", "loss_drift", "loss_spike", "grad_spike", "nonfinite")
"""Rules whose finding names the step at which the alarm began."""
BEGIN = (0.3, 0.8)  # assumed: incidents begin uniformly in this part of the run


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """What the alarms did on healthy runs."""

    num_runs: int
    num_steps: int
    any_alarm: float
    """Share of runs with an alarm of any rule at any time."""
    by_rule: dict[str, float]
    """Share of runs, per rule."""
    scores: dict[str, list[float]]
    """Per rule, each run's highest score; over 1 alarmed."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the watch said to one class of incident."""

    incident: str
    num_runs: int
    detected: float
    """Share of runs in which the state was right in time: off course, or cannot tell where the record is at fault."""
    median_delay: float
    """Steps from the incident to the first alarm, over the detected runs; NaN when none was."""
    first_rule: str
    """The rule that was first most often."""
    diagnosed: float
    """Share of runs whose first or second candidate is right; NaN when the class has no cause to name."""
    named: float
    """Share of runs in which the right parameter group was named; NaN where there is none."""


def replay_healthy(
    seeds: Iterable[int],
    num_steps: int,
    *,
    noise: Noise | None = None,
    limits: Mapping[str, Limit] | None = None,
    done: Callable[[], None] = lambda: None,
) -> Healthy:
    """Judge healthy runs as a live watch would: often enough that no alarm is forgotten in between."""
    limits = limits or shipped_limits()
    looks = np.arange(1, 0, -MEMORY_FRACTION)[::-1]
    alarmed: list[set[str]] = []
    scores: dict[str, list[float]] = {}
    for seed in seeds:
        run = healthy_run(seed, num_steps, noise=noise)
        seen: set[str] = set()
        best: dict[str, float] = {}
        for look in looks:
            report = judge(run.record(int(look * num_steps)), run.forecast, limits=limits)
            for finding in report.findings:
                if finding.state == "off_course" or (finding.rule == "telemetry" and finding.state == "cannot_tell"):
                    seen.add(finding.rule)
                if finding.score == finding.score:
                    best[finding.rule] = max(best.get(finding.rule, -np.inf), finding.score)
        alarmed.append(seen)
        done()
        for rule, score in best.items():
            scores.setdefault(rule, []).append(score)
    rules = sorted(set().union(*alarmed) | set(scores))
    by_rule = {rule: float(np.mean([rule in seen for seen in alarmed])) for rule in rules}
    return Healthy(
        num_runs=len(alarmed),
        num_steps=num_steps,
        any_alarm=float(np.mean([bool(seen) for seen in alarmed])),
        by_rule=by_rule,
        scores=scores,
    )


def replay_incident(
    incident: Incident, seeds: Sequence[int], num_steps: int, *, noise: Noise | None = None, limits: Mapping[str, Limit] | None = None
) -> Found:
    """Plant one class in many runs and watch each until it is found, then once more to diagnose."""
    limits = limits or shipped_limits()
    delays, rules, right, named = [], [], [], []
    for seed in seeds:
        rng = np.random.default_rng(seed + 1_000_003)
        run = healthy_run(seed, num_steps, noise=noise)
        at = int(rng.uniform(*BEGIN) * num_steps)
        at = incident.plant(run, at, rng) or at
        delay, rule, report = _watched(run, incident, at, limits)
        delays.append(delay)
        rules.append(rule)
        if incident.causes:
            first_two = [cause.cause for cause in report.diagnosis[:2]]
            right.append(any(cause.startswith(wanted) for cause in first_two for wanted in incident.causes))
        planted = next((event["group"] for event in run.events if event["kind"] == "planted"), None)
        if planted:
            metrics = [
                finding.metric
                for finding in report.findings
                if finding.rule in ("grad_group", "norm_drift") and finding.state == "off_course"
            ]
            named.append(bool(metrics) and all(metric.endswith(f"/{planted}") for metric in metrics))
    found = np.isfinite(delays)
    fired = [rule for rule, hit in zip(rules, found) if hit]
    return Found(
        incident=incident.name,
        num_runs=len(delays),
        detected=float(found.mean()),
        median_delay=float(np.median(np.array(delays)[found])) if found.any() else float("nan"),
        first_rule=max(sorted(set(fired)), key=fired.count) if fired else "",
        diagnosed=float(np.mean(right)) if right else float("nan"),
        named=float(np.mean(named)) if named else float("nan"),
    )


def _watched(run: Run, incident: Incident, at: int, limits: Mapping[str, Limit]) -> tuple[float, str, Report]:
    """Delay of the first right answer (infinite when there is none), the rule that gave it, and the last report."""
    wanted: State = "off_course" if incident.clean_telemetry else "cannot_tell"
    before = _answers(judge(run.record(at), run.forecast, limits=limits), wanted) if not run.last_step else []
    known = {finding.rule for finding in before}
    delay, rule = float("inf"), ""
    for share in (0.0,) if run.last_step else WATCHES:
        if np.isfinite(delay) and share != WATCHES[-1]:
            continue
        last = run.last_step or min(at + int(share * run.num_steps), run.num_steps)
        report = judge(run.record(last), run.forecast, now=run.now, limits=limits)
        if np.isfinite(delay):
            continue
        answers = [
            finding for finding in _answers(report, wanted) if (finding.step >= at if finding.rule in EXACT else finding.rule not in known)
        ]
        if answers:
            first = min(answers, key=lambda finding: _delay(finding, at, last))
            delay, rule = _delay(first, at, last), first.rule
        elif incident.passing and report.diagnosis:
            delay, rule = float(last - at), "diagnosis"
    return delay, rule, report


def _answers(report: Report, wanted: State) -> list[Finding]:
    """The findings that say what is right to say: an alarm, or a record that cannot be trusted."""
    return [finding for finding in report.findings if finding.state == wanted and (wanted == "off_course" or finding.rule == "telemetry")]


def _delay(finding: Finding, at: int, last: int) -> float:
    """Steps from the incident to the alarm; rules that do not name the step of the alarm count from when the watch looked."""
    return float(finding.step - at if finding.rule in EXACT and finding.step >= at else last - at)
