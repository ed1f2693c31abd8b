"""From signals to ranked causes, with evidence for and against, what others did, and the measurement that would decide."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from forerun.watch.case import Case
from forerun.watch.report import Cause, Finding
from forerun.watch.signals import signals

UNKNOWN_WEIGHT = 1.0  # assumed: as much as one weak signal; keeps every confidence under 1
MAX_CAUSES = 5  # assumed: further candidates help nobody

UNKNOWN = "unknown cause"


@cache
def knowledge() -> dict[str, Any]:
    """`incidents.toml` as plain data."""
    return tomllib.loads((files("forerun.watch") / "incidents.toml").read_text(encoding="utf-8"))


def diagnose(case: Case, findings: Sequence[Finding]) -> tuple[Cause, ...]:
    """Candidates, the likeliest first; empty when nothing is wrong. "Unknown cause" is always one of them."""
    known = knowledge()
    seen = signals(case, findings, known["message"])
    wrong = any(finding.state == "off_course" for finding in findings)
    if not wrong and not set(seen) & {
        "record_stale",
        "time_gap",
        "restart_from_zero",
        "start_failed",
        "crashed",
        "link_error",
        "out_of_memory",
        "evicted",
    }:
        return ()
    scored = [(score, cause) for cause in known["cause"] if (score := _score(cause, seen)) > 0]
    total = sum(score for score, _ in scored) + UNKNOWN_WEIGHT
    incidents = {incident["id"]: incident for incident in known["incident"]}
    candidates = [_candidate(cause, score / total, seen, incidents) for score, cause in scored]
    candidates.append(_unknown(UNKNOWN_WEIGHT / total, seen, known["incident"], others=bool(scored)))
    return tuple(sorted(candidates, key=lambda cause: -cause.confidence)[:MAX_CAUSES])


def _score(cause: Mapping[str, Any], seen: Mapping[str, str]) -> float:
    if any(signal not in seen for signal in cause["needs"]):
        return 0.0
    gain = sum(weight for signal, weight in cause["for"].items() if signal in seen)
    return gain - sum(weight for signal, weight in cause["against"].items() if signal in seen)


def _candidate(cause: Mapping[str, Any], confidence: float, seen: Mapping[str, str], incidents: Mapping[str, Mapping[str, str]]) -> Cause:
    name = cause["name"] if cause["status"] == "known" else f"{UNKNOWN}: {cause['name']}"
    return Cause(
        cause=name,
        confidence=round(confidence, 3),
        evidence_for=tuple(seen[signal] for signal in cause["for"] if signal in seen),
        evidence_against=tuple(seen[signal] for signal in cause["against"] if signal in seen),
        precedent=" | ".join(_precedent(incidents[key]) for key in cause["precedents"][:2]),
        next_measurement=cause["next_measurement"],
    )


def _precedent(incident: Mapping[str, str]) -> str:
    return f"{incident['id']} ({incident['run']}, {incident['date_utc']}): {incident['decision']} [cause there: {incident['cause']}, {incident['cause_status']}; {incident['source']}]"


def _unknown(confidence: float, seen: Mapping[str, str], incidents: Sequence[Mapping[str, str]], *, others: bool) -> Cause:
    open_ended = sum(incident["cause_status"].startswith(("unknown", "partial")) for incident in incidents)
    return Cause(
        cause=UNKNOWN,
        confidence=round(confidence, 3),
        evidence_for=() if others else tuple(seen.values()),
        evidence_against=(),
        precedent=f"{open_ended} of the {len(incidents)} public incidents known here ended with an unknown or partly known cause",
        next_measurement="repeat the same steps from the last checkpoint on other machines: does it come back at the same step?",
    )
