"""The promise against the record: kept, missed, or deviated, with the interval score of the prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from forerun.base.errors import RegistryError
from forerun.base.lab import Lab
from forerun.base.terms import spoken
from forerun.record.reader import open_run
from forerun.record.run import load_run
from forerun.record.series import RunRecord
from forerun.registry import ledger
from forerun.registry.changes import allowed_configs, amendments_of
from forerun.registry.experiment import Experiment, Prediction
from forerun.registry.register import Registration

LATE = 0.05  # assumed: a change may wait for the next checkpoint, a twentieth of the run by default
Answer = Literal["kept", "missed", "deviated", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a promise ended."""

    experiment: str
    registration: str
    run_id: str
    answer: Answer
    """`deviated` when the run was not the one promised: another config, or undeclared segments."""
    fraction_done: float
    outcome: float | None
    """Final value of the promised metric."""
    success: bool | None
    """Whether the success rule holds."""
    inside50: bool | None
    inside90: bool | None
    signed_error: float | None
    """outcome - point, in the metric's unit."""
    interval_score90: float | None
    """Width + 20 x the distance by which the outcome missed the 90% interval; lower is better."""
    stopped_by: tuple[str, ...]
    """Stop rules that hold."""
    deviations: tuple[str, ...]
    words: str
    """The verdict in one sentence."""


def run_of(lab: Lab, registration: Registration) -> Path:
    """The folder of the first run started under a promise. Raises: RegistryError when there is none."""
    started = runs_of(lab, registration)
    if started:
        return started[0]
    raise RegistryError(f"no run was started under {registration.experiment!r}", hint=f"`forerun train {registration.experiment}`")


def runs_of(lab: Lab, registration: Registration) -> list[Path]:
    """Folders of every run started under a promise, in the order they were started."""
    found = [(load_run(path.parent), path.parent) for path in sorted(lab.runs.glob("*/run.json"))]
    return [folder for info, folder in sorted(found, key=lambda pair: pair[0].created) if info.registration_id == registration.id]


class RecordHistory:
    """A run record as rules read it."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Fractions of the planned run and values."""
        series = self._record.series(metric)
        return np.asarray(series.step) / max(self._record.info.num_steps, 1), np.asarray(series.value)


def judge(lab: Lab, registration: Registration, run_dir: Path) -> Verdict:
    """Score a run against its promise; nothing is written."""
    record = open_run(run_dir)
    promise = registration.promise
    history = RecordHistory(record)
    done = max(record.last_step, 0) / max(record.info.num_steps, 1)
    values = history.values(promise.metric)[1]
    last = float(values[-1]) if len(values) else None
    outcome = last if last is not None and math.isfinite(last) else None
    deviations = _deviations(lab, registration, record)
    stopped_by = tuple(rule.text for rule in promise.stop_rules() if rule.judge(history).holds)
    scored = outcome if done >= 1 else None
    success = promise.success_rule().judge(history).holds if scored is not None else None
    if scored is None and (stopped_by or (done >= 1 and last is not None)):
        success = False  # its own rule ended it, or its last value is no number
    answer: Answer = "undecided"
    if deviations:
        answer = "deviated"
    elif success is not None:
        answer = "kept" if success else "missed"
    prediction = promise.prediction
    return Verdict(
        experiment=registration.experiment,
        registration=registration.id,
        run_id=record.info.run_id,
        answer=answer,
        fraction_done=min(done, 1.0),
        outcome=outcome,
        success=success,
        inside50=prediction.low50 <= scored <= prediction.high50 if scored is not None else None,
        inside90=prediction.low90 <= scored <= prediction.high90 if scored is not None else None,
        signed_error=scored - prediction.point if scored is not None else None,
        interval_score90=interval_score(prediction, scored) if scored is not None else None,
        stopped_by=stopped_by,
        deviations=deviations,
        words=_words(promise, answer, outcome, done, deviations, stopped_by),
    )


def record_verdict(lab: Lab, verdict: Verdict) -> ledger.Entry | None:
    """Chain a verdict into the ledger, unless the newest one about this run says the same."""
    body: dict[str, Any] = {"experiment": verdict.experiment, "verdict": verdict}
    known = [
        entry.body["verdict"] for entry in ledger.read(lab) if entry.kind == "verdict" and entry.body["experiment"] == verdict.experiment
    ]
    plain = ledger.plain(body)
    if known and known[-1] == plain["verdict"]:
        return None
    return ledger.append(lab, "verdict", plain)


def interval_score(prediction: Prediction, outcome: float, alpha: float = 0.1) -> float:
    """Width of the 90% interval + 2/alpha x the distance outside it (Gneiting & Raftery 2007, eq. 43)."""
    low, high = prediction.low90, prediction.high90
    return (high - low) + (2 / alpha) * (max(low - outcome, 0.0) + max(outcome - high, 0.0))


def _deviations(lab: Lab, registration: Registration, record: RunRecord) -> tuple[str, ...]:
    found = []
    if record.info.registration_id != registration.id:
        found.append(f"the run was started under {record.info.registration_id or 'no promise'}, not under {registration.id}")
    earlier = [folder.name for folder in runs_of(lab, registration) if folder.name != record.info.run_id][:1]
    if earlier and load_run(lab.run(earlier[0])).created < record.info.created:
        found.append(f"run {earlier[0]} was started under this promise before: the first one counts")
    num_steps = max(record.info.num_steps, 1)
    declared = [(entry.body["at_step"], entry.body["what"]) for entry in amendments_of(lab, registration.experiment)]
    declared += [(round(segment.at_fraction * num_steps), segment.change) for segment in registration.promise.segments]
    if record.info.config_digest not in allowed_configs(lab, registration):
        found.append("the run's config is neither the registered one nor declared by an amendment")
    for segment in record.info.segments:
        if not segment.changed:
            continue
        about = [step for step, what in declared if what == segment.changed]
        if not about:
            found.append(f"undeclared change at step {segment.first_step}: {segment.changed}")
        elif min(abs(segment.first_step - 1 - step) for step in about) > max(1, LATE * num_steps):
            found.append(f"change declared for step {about[0]} was made at step {segment.first_step}: {segment.changed}")
    return tuple(found)


def _words(
    promise: Experiment, answer: Answer, outcome: float | None, done: float, deviations: tuple[str, ...], stopped_by: tuple[str, ...]
) -> str:
    if answer == "deviated":
        return f"Deviated: {'; '.join(deviations)}."
    if answer == "missed" and done < 1:
        return f"Missed: ended at {done:.0%} by its own rule {stopped_by[0]}."
    if answer == "missed" and outcome is None:
        return f"Missed: the {spoken(promise.metric)} ended as not a number."
    if answer == "undecided" or outcome is None:
        return f"Undecided: the run is {done:.0%} done."
    prediction = promise.prediction
    where = "inside" if prediction.low90 <= outcome <= prediction.high90 else "outside"
    return (
        f"{answer.capitalize()}: the {spoken(promise.metric)} ended at {outcome:.4f}; promised {prediction.point:.4f}, "
        f"90% interval {prediction.low90:.4f} to {prediction.high90:.4f}, the outcome is {where} it."
    )
