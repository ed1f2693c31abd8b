"""Is the run what was planned: the learning rate on its schedule, the config the registered one, changes declared?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.base.config import digest_of
from forerun.watch.case import Case, finite
from forerun.watch.report import Finding

FROM_ZERO = 0.01  # assumed: of the steps reached before; a tracker's first row is seldom step 0
SCHEDULE_TOLERANCE = 0.02  # assumed: on top of one step of counting difference, which short runs show


def learning_rate(case: Case) -> list[Finding]:
    """Does the logged learning rate follow the schedule in the run's config?"""
    series = finite(case.record.series("learning_rate"))
    optim = case.config.get("optim")
    peak, shape = (optim.get("muonh_learning_rate"), optim.get("schedule")) if isinstance(optim, Mapping) else (None, None)
    if not len(series) or not isinstance(peak, int | float) or not isinstance(shape, Mapping) or not case.num_steps:
        return [
            Finding(
                rule="learning_rate",
                state="cannot_tell",
                metric="learning_rate",
                evidence="no learning rate or no config to compare it with",
            )
        ]
    near = [peak * _factor((series.step + by) / case.num_steps, shape) for by in (-1, 0, 1)]
    planned, least, most = near[1], np.min(near, axis=0), np.max(near, axis=0)
    after_warmup = series.step > 2 * shape.get("warmup_fraction", 0.0) * case.num_steps
    outside = np.maximum(least - series.value, series.value - most)
    away = np.where(after_warmup, outside / np.maximum(planned, 1e-12), 0.0)
    wrong = np.flatnonzero(away > SCHEDULE_TOLERANCE)
    row = int(wrong[0]) if len(wrong) else len(series) - 1
    off = bool(len(wrong)) and bool(wrong[-1] == len(series) - 1)
    evidence = f"learning rate {series.value[row]:.4g} at step {series.step[row]:,}, planned {planned[row]:.4g}"
    return [
        Finding(
            rule="learning_rate",
            state="off_course" if off else "on_course",
            value=float(series.value[row]),
            expected=float(planned[row]),
            low=float(least[row] - SCHEDULE_TOLERANCE * planned[row]),
            high=float(most[row] + SCHEDULE_TOLERANCE * planned[row]),
            step=int(series.step[row]),
            metric="learning_rate",
            evidence=evidence,
            false_alarm_rate=0.0,
        )
    ]


def config(case: Case) -> list[Finding]:
    """Is config.json the one the run says it runs?"""
    stated = case.record.info.config_digest
    if not stated or not case.config:
        return [Finding(rule="config", state="cannot_tell", evidence="the run states no config digest, or its config.json is absent")]
    actual = digest_of(dict(case.config))
    same = actual == stated
    words = f"config {stated[:12]}, as stated" if same else f"config.json has digest {actual[:12]}, the run states {stated[:12]}"
    if same and case.record.info.registration_id:
        words += f" and registered ({case.record.info.registration_id[:12]})"
    return [Finding(rule="config", state="on_course" if same else "off_course", evidence=words, false_alarm_rate=0.0)]


def segments(case: Case) -> list[Finding]:
    """Which declared changes widen the band, and whether a restart lost what was trained before."""
    lost = _from_zero(case)
    if lost:
        return [
            Finding(
                rule="segments",
                state="off_course",
                value=float(case.last_step),
                expected=float(lost),
                step=case.record.info.segments[-1].first_step,
                evidence=f"the last segment began at step {case.record.info.segments[-1].first_step:,} though the run had got to step {lost:,}",
                signals=("restart_from_zero",),
                false_alarm_rate=0.0,
            )
        ]
    restarts = len(case.record.info.segments) - 1 - len(case.changes)
    words = [f"step {change.first_step:,}: {change.kind or 'change'}, {change.changed}" for change in case.changes]
    words += [f"{restarts} restarts without a change"] if restarts > 0 else []
    return [
        Finding(
            rule="segments",
            state="on_course",
            value=float(len(case.changes)),
            step=case.changes[-1].first_step if case.changes else 0,
            evidence="; ".join(words) or "one segment, nothing declared",
            false_alarm_rate=0.0,
        )
    ]


def _from_zero(case: Case) -> int:
    """How far the run had got before its last segment began from (nearly) nothing; 0 when it did not, or has caught up."""
    chain = case.record.info.segments
    if len(chain) < 2 or chain[-1].changed:
        return 0
    reached = [int(event["from_step"]) for event in case.record.events("rewound")]
    reached += [int(event["step"]) for event in case.record.events("checkpoint_saved") if float(event["time"]) < chain[-1].time]
    before = max(reached, default=0)
    return before if chain[-1].first_step <= FROM_ZERO * before and case.last_step < before else 0


def _factor(fraction: np.ndarray, schedule: Mapping[str, Any]) -> np.ndarray:
    """Rate over peak at a share of the run: linear warm-up, then linear, cosine or held and decayed."""
    warmup, final = float(schedule.get("warmup_fraction", 0.01)), float(schedule.get("final_fraction", 0.05))
    kind = schedule.get("kind", "linear")
    rise = np.clip(fraction / warmup, 0, 1) if warmup > 0 else np.ones_like(fraction)
    begin = 1 - float(schedule.get("decay_fraction", 1.0)) if kind == "wsd" else warmup
    done = np.clip((fraction - begin) / max(1 - begin, 1e-9), 0, 1)
    fall = 0.5 * (1 + np.cos(np.pi * done)) if kind == "cosine" else 1 - done
    return rise * (final + (1 - final) * fall)
