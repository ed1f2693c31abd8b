"""`judge`: every rule on one run, one state, a checklist and a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.base.config import load_json
from forerun.record.series import RunRecord
from forerun.watch.band import band_of
from forerun.watch.case import Case, Limit, shipped_limits
from forerun.watch.checklist import checklist
from forerun.watch.diagnose import diagnose
from forerun.watch.report import Finding, Report, State
from forerun.watch.rules import alive, evals, finite, gradient, loss, machine, norms, plan, routing, speed, telemetry

Rule = Callable[[Case], list[Finding]]

RULES: tuple[Rule, ...] = (
    telemetry.telemetry,
    loss.loss_level,
    finite.nonfinite,
    loss.loss_course,
    evals.eval_shift,
    gradient.grad_spike,
    gradient.grad_shape,
    gradient.grad_group,
    gradient.norm_drift,
    norms.constant_norms,
    routing.routing,
    speed.speed,
    plan.learning_rate,
    plan.config,
    plan.segments,
    machine.memory_growth,
    machine.checkpoint,
    alive.heartbeat,
)

ESSENTIAL = ("loss_level", "telemetry")
"""Without these two the answer is "cannot tell", however healthy the rest looks."""


def judge(
    record: RunRecord,
    forecast: Mapping[str, Any] | None = None,
    *,
    rungs: Sequence[RunRecord] = (),
    now: float | None = None,
    limits: Mapping[str, Limit] | None = None,
) -> Report:
    """Say whether a run is on course.

    Args:
        forecast: the JSON of `forerun forecast`; without it the level of the loss cannot be judged.
        rungs: smaller healthy runs of the same recipe, for shapes over progress.
        now: Unix seconds of a live watch; leave out for a run that is judged afterwards or from inside.
        limits: by rule; the shipped ones unless calibrated on own rungs.
    """
    case = Case(
        record=record,
        band=band_of(dict(forecast)) if forecast is not None else None,
        rungs=rungs,
        config=_config_of(record),
        limits=limits or shipped_limits(),
        now=now,
    )
    findings = tuple(finding for rule in RULES for finding in rule(case))
    return Report(
        run_id=record.info.run_id,
        step=case.last_step,
        num_steps=case.num_steps,
        state=overall(findings),
        findings=findings,
        checklist=checklist(findings),
        diagnosis=diagnose(case, findings),
    )


def overall(findings: Sequence[Finding]) -> State:
    """Off course when any rule says so; cannot tell when an essential one cannot; else on course."""
    if any(finding.state == "off_course" for finding in findings):
        return "off_course"
    if any(finding.state == "cannot_tell" and finding.rule in ESSENTIAL for finding in findings):
        return "cannot_tell"
    return "on_course"


def _config_of(record: RunRecord) -> dict[str, Any]:
    folder: Path | None = getattr(record, "run_dir", None)
    path = folder / "config.json" if folder else None
    return load_json(path, dict) if path and path.exists() else {}
