"""The loss against the forecast: its level at the evaluations, and steps, drifts and spikes of the train loss."""

from __future__ import annotations

import numpy as np

from forerun.base import units
from forerun.record.series import Series
from forerun.watch import detect
from forerun.watch.case import Case, finite, frozen_since
from forerun.watch.report import Finding

NUM_IN_A_ROW = 3  # assumed: evaluations outside before the level alarms; one noisy evaluation does not
RATE_SHARE = (
    0.04  # measured: log loss moves by up to 0.027 per log learning rate on 12 public cosine and decay curves, about 0.04 after steps
)
ALARM_ROWS = {"loss_shift": 5, "loss_drift": 250, "loss_spike": 3}
"""Assumed: rows whose median an alarm shows. A step of 1% alarms after 5 to 30 rows; a drift shows over half the slow average's memory only."""
FIRST_FRACTION = 0.05  # derived: forecasts start at 5% of training, and so do the detectors


def loss_level(case: Case) -> list[Finding]:
    """Is the held-out loss where the forecast said, within what its interval and the declared changes allow?"""
    rule = "loss_level"
    if case.band is None:
        return [Finding(rule=rule, state="cannot_tell", evidence="there is no forecast to compare the held-out loss with")]
    evals = case.evals
    expected = case.band.expected(evals.step.astype(float))
    there = ~np.isnan(expected)
    if not there.any():
        first = f"{case.band.first_step:,.0f}"
        return [
            Finding(
                rule=rule,
                state="cannot_tell",
                metric=case.eval_metric,
                evidence=f"no evaluation at or after step {first}, where the forecast begins",
            )
        ]
    step, value, expected = evals.step[there], evals.value[there], expected[there]
    residual = np.log(value / expected)
    sd = case.band.sd(step.astype(float), residual, case.changes)
    limit = case.limits[rule]
    outside = np.abs(residual) > limit.limit * sd
    needed = min(NUM_IN_A_ROW, len(step))
    off = bool(outside[-needed:].all()) and len(step) >= 2
    score = float((np.abs(residual) / (limit.limit * sd))[-needed:].min())
    began = int(step[_start_of_run(outside)]) if off else int(step[-1])
    side = np.array([1.0, -1.0])
    at_end = case.band.sd(np.repeat(step[-1], 2).astype(float), side, case.changes)
    low, high = expected[-1] * np.exp(-limit.limit * at_end[1]), expected[-1] * np.exp(limit.limit * at_end[0])
    direction = "above" if residual[-1] > 0 else "below"
    evidence = f"held-out loss {value[-1]:.4f}, {units.percent(abs(residual[-1]), 2)} {direction} the forecast {expected[-1]:.4f} (allowed {low:.3f} to {high:.3f})"
    if off:
        evidence += f", outside at {int(outside[-needed:].sum())} evaluations in a row"
    return [
        Finding(
            rule=rule,
            state="off_course" if off else "on_course",
            value=float(value[-1]),
            expected=float(expected[-1]),
            low=float(low),
            high=float(high),
            score=score,
            step=began,
            metric=case.eval_metric,
            evidence=evidence,
            false_alarm_rate=limit.false_alarm_rate,
        )
    ]


def loss_course(case: Case) -> list[Finding]:
    """Does the train loss step, drift or spike away from its own course? Three rules on one residual."""
    series = case.loss
    names = ("loss_shift", "loss_drift", "loss_spike")
    since = frozen_since(series)
    if since is not None:
        evidence = f"train loss is frozen since step {since:,}: what it seems to do says nothing about the run"
        return [Finding(rule=name, state="cannot_tell", metric="loss_nats", step=since, evidence=evidence) for name in names]
    scores = {name: np.zeros(len(series)) for name in names}
    expected = np.full(len(series), np.nan)
    for stretch in case.stretches(series):
        part = Series(series.step[stretch], series.value[stretch], series.time[stretch])
        found = course_scores(part, case)
        for name in names:
            scores[name][stretch] = found[name]
        expected[stretch] = found["expected"]
    judged = ~np.isnan(expected)
    if not judged.any():
        evidence = f"{len(series)} rows of train loss; the first {detect.MIN_ROWS} after {units.percent(FIRST_FRACTION, 0)} of the run are learned from"
        return [Finding(rule=name, state="cannot_tell", metric="loss_nats", evidence=evidence) for name in names]
    return [_course_finding(case, name, series, scores[name], expected) for name in names]


def course_scores(series: Series, case: Case) -> dict[str, np.ndarray]:
    """Per row the score of each rule and the expected loss (NaN where nothing is known yet)."""
    size = len(series)
    scores = {name: np.zeros(size) for name in ("loss_shift", "loss_drift", "loss_spike")}
    expected = np.full(size, np.nan)
    late = (series.step >= FIRST_FRACTION * case.num_steps) & (series.value > 0) & (series.step > 0)
    step = series.step[late].astype(float)
    forecast = _forecast_through(case, step)
    residual = np.log(series.value[late]) - forecast
    baseline = detect.baseline_of(np.log(step), residual, from_row=case.first_row_needed(step))
    follows = np.nan_to_num(RATE_SHARE * _rate_moved(case, step))
    over = detect.standardised(residual - np.maximum(follows, 0), baseline)
    under = detect.standardised(residual - np.minimum(follows, 0), baseline)
    one_row = np.sqrt(1 + baseline.line_sd**2 + (detect.SPIKE_SD / baseline.scale) ** 2)
    found = {
        "loss_shift": _beyond(detect.ewma_score(over, baseline, detect.FAST), detect.ewma_score(under, baseline, detect.FAST)),
        "loss_drift": _beyond(detect.ewma_score(over, baseline, detect.SLOW), detect.ewma_score(under, baseline, detect.SLOW)),
        "loss_spike": detect.three_in_a_row(_beyond(over, under) / one_row),
    }
    for name, score in found.items():
        scores[name][late] = np.nan_to_num(score) * detect.spent(case.limits[name].limit, np.arange(len(step)))
    expected[late] = np.exp(baseline.expected + forecast)
    return {**scores, "expected": expected}


def _beyond(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """How far above the highest, or below the lowest, course that a moved learning rate allows; 0 between them.

    Taken of averages, not of rows: noise about one edge would leave its outer half, which looks like a shift.
    """
    return np.maximum(over, 0) + np.minimum(under, 0)


def _rate_moved(case: Case, step: np.ndarray) -> np.ndarray:
    """Per row the natural log by which the learning rate has left its own line; the loss is bound to follow. Zeros with a forecast.

    With a forecast the schedule is in the band, and a loss that moves is an alarm; a schedule that is wrong is another rule's alarm.
    """
    rate = finite(case.record.series("learning_rate"))
    rate = Series(rate.step[rate.value > 0], rate.value[rate.value > 0], rate.time[rate.value > 0])
    if case.band is not None or len(rate) < detect.MIN_ROWS or not len(step):
        return np.zeros(len(step))
    value = np.interp(step, rate.step.astype(float), np.log(rate.value))
    return value - detect.baseline_of(np.log(step), value, from_row=case.first_row_needed(step)).expected


def _forecast_through(case: Case, step: np.ndarray) -> np.ndarray:
    """Log forecast at each step, flat outside its range; zeros without one: the baseline then follows the loss itself."""
    if case.band is None:
        return np.zeros(len(step))
    return case.band.through(step)


def _course_finding(case: Case, name: str, series: Series, score: np.ndarray, expected: np.ndarray) -> Finding:
    limit = case.limits[name]
    over = np.abs(score) > limit.limit
    alarms = np.flatnonzero(over)
    current = alarms[series.step[alarms] >= case.recent_from]
    row = _start_of_run(over[: current[0] + 1]) if len(current) else len(series) - 1
    recent = np.abs(score[series.step >= case.recent_from])
    value, usual = _about(series, expected, row, ALARM_ROWS[name]) if len(current) else (float(series.value[row]), float(expected[row]))
    words = {"loss_shift": "shifted", "loss_drift": "drifted", "loss_spike": "spiked"}[name]
    if len(current):
        worst = current[np.argmax(np.abs(score[current]))]
        evidence = (
            f"train loss {words} {'up' if score[row] > 0 else 'down'} from step {series.step[row]:,}: "
            f"{value:.4f} where {usual:.4f} was expected ({np.log(value / usual):+.1%}), "
            f"score {abs(score[worst]):.1f} over limit {limit.limit:.1f} at step {series.step[worst]:,}"
        )
    elif len(alarms):
        evidence = f"train loss {words} at step {series.step[alarms[0]]:,}, over since step {series.step[alarms[-1]]:,}; no score over {limit.limit:.1f} since"
    else:
        evidence = f"largest score of late {recent.max():.1f}, limit {limit.limit:.1f}"
    return Finding(
        rule=name,
        state="off_course" if len(current) else "on_course",
        value=value,
        expected=usual,
        score=float(recent.max() / limit.limit),
        step=int(series.step[row]),
        metric="loss_nats",
        evidence=evidence,
        false_alarm_rate=limit.false_alarm_rate,
    )


def _about(series: Series, expected: np.ndarray, row: int, num_rows: int) -> tuple[float, float]:
    """Median loss and median expectation of the last rows up to this one: one noisy row may lie on the other side."""
    rows = slice(max(row + 1 - num_rows, 0), row + 1)
    known = ~np.isnan(expected[rows])
    return float(np.median(series.value[rows][known])), float(np.median(expected[rows][known]))


def _start_of_run(flags: np.ndarray) -> int:
    """Index where the unbroken stretch of true at the end begins."""
    clear = np.flatnonzero(~flags)
    return int(clear[-1]) + 1 if len(clear) else 0
