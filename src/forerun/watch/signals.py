"""From findings and events to signals: the vocabulary that `incidents.toml` speaks. Each signal carries its evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.base import units
from forerun.watch.case import Case
from forerun.watch.report import Finding
from forerun.watch.rules.alive import SILENT_S

ERROR_EVENTS = ("error", "crash", "crashed", "checkpoint_failed", "startup_failed")
CRASHES = ("crash", "crashed")
NEAR_FRACTION = 0.02  # assumed: share of the steps so far within which two things happen together
EARLY_STEPS = 1000  # measured: one batch size of a public ladder went to NaN four times within 1,000 steps
GAP_FACTOR, GAP_S = 50.0, 600.0  # assumed: a pause between rows that no evaluation or save explains
RISE_ROWS, RISE, CONVEX = 20, 0.01, 1.5  # assumed: a drift is straight and gives 1; an exponential over two of its times gives 2.7
DIVERGED = 0.1  # assumed: natural log above its course; the largest declared change on record moved the train loss by 0.018
LOW_CPU = 0.75  # measured: a hung rack burned 0.6 of the CPU of the others

BY_RULE: Mapping[str, str] = {
    "grad_group": "grad_group",
    "norm_drift": "norm_drift",
    "constant_norms": "constant_norms_broken",
    "drop_fraction": "drops_up",
    "load_imbalance": "imbalance_up",
    "dead_experts": "dead_experts",
    "router_entropy": "entropy_down",
    "router_bias": "bias_up",
    "speed": "slow",
    "learning_rate": "learning_rate_off",
    "config": "config_off",
    "nonfinite": "nonfinite",
}
"""Rules whose alarm is one signal."""


def signals(case: Case, findings: Sequence[Finding], messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What is seen, by name, each with one sentence of evidence."""
    alarms = {finding.rule: finding for finding in findings if finding.state == "off_course"}
    seen = {BY_RULE[rule]: finding.evidence for rule, finding in alarms.items() if rule in BY_RULE}
    seen |= _loss(case, findings, alarms)
    seen |= _gradient(findings, alarms)
    seen |= _machines(case, findings)
    seen |= _messages(case, messages)
    seen |= _lineage(case, alarms, seen)
    return seen


def _loss(case: Case, findings: Sequence[Finding], alarms: Mapping[str, Finding]) -> dict[str, str]:
    seen = {}
    moved = [alarms[rule] for rule in ("loss_shift", "loss_drift") if rule in alarms]
    if moved:
        seen["train_level_moved"] = moved[0].evidence
        seen["loss_moved_up" if moved[0].value > moved[0].expected else "loss_moved_down"] = moved[0].evidence
    elif any(finding.rule == "loss_shift" and finding.state == "on_course" for finding in findings):
        seen["train_steady"] = "the train loss keeps its course"
    if "loss_drift" in alarms and alarms["loss_drift"].value > alarms["loss_drift"].expected:
        seen["loss_drift_up"] = alarms["loss_drift"].evidence
    if "loss_spike" in alarms and alarms["loss_spike"].value > alarms["loss_spike"].expected:
        seen["loss_unstable"] = alarms["loss_spike"].evidence
    if moved and "loss_moved_up" in seen and _still_rising(case, moved[0]):
        seen["loss_diverges"] = "the train loss goes on rising away from its course"
    seen |= _evals(case, findings, alarms)
    nonfinite = alarms.get("nonfinite")
    if nonfinite and nonfinite.step <= EARLY_STEPS:
        seen["nonfinite_early"] = f"not finite by step {nonfinite.step:,}"
    if nonfinite or "loss_diverges" in seen:
        seen["diverging"] = nonfinite.evidence if nonfinite else seen["loss_diverges"]
    return seen


def _evals(case: Case, findings: Sequence[Finding], alarms: Mapping[str, Finding]) -> dict[str, str]:
    seen = {}
    shift, level = alarms.get("eval_shift"), alarms.get("loss_level")
    if shift:
        seen["eval_moved"] = shift.evidence
        if shift.value < shift.expected:
            seen["eval_moved_down"] = shift.evidence
    began = min((alarms[rule].step for rule in ("loss_shift", "loss_drift") if rule in alarms), default=0)
    if (
        not shift
        and any(finding.rule == "eval_shift" and finding.state == "on_course" for finding in findings)
        and (case.evals.step > began).sum() >= 2
    ):
        seen["eval_steady"] = "the held-out loss keeps its course"
    if level:
        seen["level_off"] = level.evidence
        seen["level_above" if level.value > level.expected else "level_below"] = level.evidence
    return seen


def _gradient(findings: Sequence[Finding], alarms: Mapping[str, Finding]) -> dict[str, str]:
    seen = {}
    spikes = {finding.metric: finding for finding in findings if finding.rule == "grad_spike" and finding.state == "off_course"}
    if spikes:
        seen["grad_spike"] = next(iter(spikes.values())).evidence
    update = spikes.get("update_norm")
    later = [spikes[name].step for name in ("grad_norm",) if name in spikes] + [
        alarms[name].step for name in ("loss_spike", "loss_shift") if name in alarms
    ]
    if update and all(update.step <= step for step in later):
        seen["update_first"] = update.evidence + ", before gradient and loss"
    return seen


def _machines(case: Case, findings: Sequence[Finding]) -> dict[str, str]:
    seen = {signal: finding.evidence for finding in findings if finding.state != "on_course" for signal in finding.signals}
    if "memory_some_hosts" in seen and case.saves:
        seen["memory_after_saves"] = "the growing hosts are part of a run that saves"
    for event in case.record.events("stalled"):
        if case.recent(int(event["step"])):
            words = f"rank {event.get('rank', 0)} made no progress for {units.duration(float(event.get('after_s', 0)))} in {event.get('phase', 'an unknown phase')} and was ended"
            seen["no_progress"] = words
    return seen | _uneven_ranks(case)


def _uneven_ranks(case: Case) -> dict[str, str]:
    """Ranks whose heartbeat reports much less CPU, or another collective counter, than the rest."""
    cpu, counter = {}, {}
    for event in case.record.events("heartbeat"):
        if "cpu" in event:
            cpu[event.get("rank", 0)] = float(event["cpu"])
        if "collectives" in event:
            counter[event.get("rank", 0)] = int(event["collectives"])
    seen = {}
    if len(cpu) >= 2:
        usual = float(np.median(list(cpu.values())))
        low = [rank for rank, value in cpu.items() if value < LOW_CPU * usual]
        if low:
            seen["low_cpu_rank"] = f"ranks {low[:4]} use {cpu[low[0]] / usual:.1f} of the others' CPU"
    if len(set(counter.values())) > 1:
        behind = min(counter, key=lambda rank: counter[rank])
        seen["counters_differ"] = (
            f"collective counters differ: rank {behind} is at {counter[behind]:,}, others at {max(counter.values()):,}"
        )
    return seen


def _messages(case: Case, messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Error texts as signals. What a dying job prints while it is torn down, and barrier time-outs, say nothing of the cause."""
    seen: dict[str, str] = {}
    for event in case.record.events():
        if event["kind"] not in ERROR_EVENTS or event.get("phase") == "teardown" or not case.recent(int(event["step"])):
            continue
        text = str(event.get("message", event.get("reason", "")))
        if event["kind"] in CRASHES:
            seen.setdefault("crashed", f"crashed at step {event['step']:,}" + (f": {text}" if text else ""))
        if event["kind"] == "startup_failed":
            seen.setdefault("start_failed", f"start failed: {text}")
        for message in messages:
            if re.search(message["pattern"], text):
                if not message.get("ignore"):
                    seen.setdefault(message["signal"], f"{event['kind']} at step {event['step']:,}: {text}")
                break
    return seen


def _lineage(case: Case, alarms: Mapping[str, Finding], seen: Mapping[str, str]) -> dict[str, str]:
    found = {}
    segments = case.record.info.segments
    if len(segments) > 1:
        found["restarted"] = f"segment {len(segments)} began at step {segments[-1].first_step:,}"
    if "train_level_moved" in seen:
        step = min(alarms[rule].step for rule in ("loss_shift", "loss_drift") if rule in alarms)
        near = [change for change in case.changes if abs(change.first_step - step) <= max(NEAR_FRACTION * case.last_step, 50)]
        for change in near:
            found["declared_data" if change.kind == "data" else "declared_systems"] = (
                f"declared at step {change.first_step:,}: {change.changed}"
            )
        if not near:
            found["undeclared"] = f"no change is declared near step {step:,}"
    if any(name in seen for name in ("drops_up", "imbalance_up", "dead_experts", "entropy_down")):
        found["routing_worse"] = next(seen[name] for name in ("dead_experts", "imbalance_up", "drops_up", "entropy_down") if name in seen)
    return found | _gap(case)


def _gap(case: Case) -> dict[str, str]:
    time, step = case.loss.time, case.loss.step
    if len(time) < 20 or not np.isfinite(time).all():
        return {}
    pause = np.diff(time)
    longest = int(np.argmax(pause))
    if pause[longest] > max(GAP_FACTOR * float(np.median(pause)), GAP_S, SILENT_S) and case.recent(int(step[longest + 1])):
        return {"time_gap": f"{units.duration(pause[longest])} between steps {step[longest]:,} and {step[longest + 1]:,}"}
    return {}


def _still_rising(case: Case, shift: Finding) -> bool:
    """Since the alarm the loss has left its course by a further percent, faster in the second half than in the first, or is far above it."""
    after = case.loss.step >= shift.step
    if after.sum() < 3 * RISE_ROWS or shift.expected <= 0:
        return False
    course = np.log(shift.expected) + (
        case.band.through(case.loss.step[after]) - case.band.through(np.array([shift.step])) if case.band else 0.0
    )
    away = np.log(np.maximum(case.loss.value[after], 1e-9)) - course
    middle = len(away) // 2
    first, half, last = (
        float(np.median(part)) for part in (away[:RISE_ROWS], away[middle - RISE_ROWS // 2 : middle + RISE_ROWS // 2], away[-RISE_ROWS:])
    )
    return last > DIVERGED or (last - first > RISE and last - half > CONVEX * (half - first))
