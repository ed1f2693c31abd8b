"""What the watch says: findings, causes, one state. The JSON of `forerun watch --json`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["on_course", "off_course", "cannot_tell"]

EXIT_CODES: dict[State, int] = {"on_course": 0, "off_course": 1, "cannot_tell": 3}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule's answer with its evidence."""

    rule: str
    """Name of the alarm."""
    state: State
    """Of this rule alone."""
    value: float = math.nan
    """What was seen."""
    expected: float = math.nan
    """What a healthy run shows here."""
    low: float = math.nan
    """Below this the rule alarms; NaN when it has no lower limit."""
    high: float = math.nan
    """Above this the rule alarms; NaN when it has no upper limit."""
    score: float = math.nan
    """How far the value went towards the limit; over 1 alarms. NaN where the rule is yes or no."""
    step: int = -1
    """Where the value was seen, or where the alarm began; -1 before the first row."""
    metric: str = ""
    """The series judged."""
    evidence: str
    """One sentence."""
    signals: tuple[str, ...] = ()
    """What an alarm of this rule means to the diagnosis, beyond the rule's name."""
    false_alarm_rate: float = math.nan
    """Share of healthy replayed runs in which this rule alarms at any time; NaN when it was not measured."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One candidate explanation."""

    cause: str
    confidence: float
    """0..1, relative to the other candidates; the shares of one report sum to at most 1."""
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...]
    precedent: str
    """What others did in the same case, with the incident it is taken from."""
    next_measurement: str
    """What would separate this candidate from the others."""


@dataclass(frozen=True, kw_only=True)
class CheckItem:
    """One line of the health checklist."""

    item: str
    rules: tuple[str, ...]
    state: State
    value: float
    rule: str
    """The rule in words."""
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The answer to "is this run on course?"."""

    run_id: str
    step: int
    """Last step seen."""
    num_steps: int
    """Planned; 0 when unknown."""
    state: State
    findings: tuple[Finding, ...]
    checklist: tuple[CheckItem, ...] = ()
    diagnosis: tuple[Cause, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 on course, 1 off course, 3 cannot tell."""
        return EXIT_CODES[self.state]

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that say off course."""
        return tuple(finding for finding in self.findings if finding.state == "off_course")

    @property
    def where(self) -> str:
        """`step 1,200 of 4,000`, as far as is known."""
        if self.step < 0:
            return "no step yet"
        return f"step {self.step:,}" + (f" of {self.num_steps:,}" if self.num_steps else "")

    @property
    def reason(self) -> str:
        """Why the state is what it is; empty when there is nothing to say."""
        if self.state == "on_course":
            level = next((finding for finding in self.findings if finding.rule == "loss_level"), None)
            return level.evidence if level else ""
        reasons = self.alarms or tuple(finding for finding in self.findings if finding.state == "cannot_tell")
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{reasons[0].evidence}{more}" if reasons else ""

    def words(self) -> str:
        """One line for people: where the run is, the state and the reason for it."""
        return f"{self.where}: {self.state.replace('_', ' ')}" + (f"; {self.reason}" if self.reason else "")

    def as_json(self) -> dict[str, Any]:
        """Plain data; numbers that do not exist are null."""
        return {
            "schema": 1,
            "run_id": self.run_id,
            "step": self.step,
            "num_steps": self.num_steps,
            "state": self.state,
            "findings": [_plain(finding) for finding in self.findings],
            "checklist": [_plain(item) for item in self.checklist],
            "diagnosis": [_cause(cause) for cause in self.diagnosis],
        }


def _plain(part: Finding | CheckItem) -> dict[str, Any]:
    return {name: _number(value) for name, value in vars(part).items()}


def _cause(cause: Cause) -> dict[str, Any]:
    """`for` and `against` are words of the format that Python keeps for itself."""
    plain = dict(vars(cause))
    return {
        "cause": plain["cause"],
        "confidence": plain["confidence"],
        "for": list(plain["evidence_for"]),
        "against": list(plain["evidence_against"]),
        "precedent": plain["precedent"],
        "next_measurement": plain["next_measurement"],
    }


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return list(value) if isinstance(value, tuple) else value
