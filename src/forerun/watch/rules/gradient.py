"""Gradient and parameter norms: spikes, the shape over progress against the rungs, and the one group that grows."""

from __future__ import annotations

import numpy as np

from forerun.record.series import Series
from forerun.watch import detect
from forerun.watch.case import Case, finite
from forerun.watch.report import Finding
from forerun.watch.rules import past
from forerun.watch.rules.loss import FIRST_FRACTION

GRID = 200  # assumed: points over the steps seen so far at which norms are compared; each is a median of the rows around it
LOOK_BACK = 0.75  # assumed: growth is measured since this share of the steps seen so far
IN_A_ROW = 3  # assumed: grid points that must agree
SHAPE_MARGIN = 0.35  # assumed: natural log by which growth may leave the range of the rungs; rungs of one ladder differ by 20%


def grad_spike(case: Case) -> list[Finding]:
    """Do gradient or update norms jump away from their course for three steps in a row?"""
    found = []
    for metric in ("grad_norm", "update_norm"):
        series = finite(case.record.series(metric))
        late = (series.step >= FIRST_FRACTION * case.num_steps) & (series.value > 0) & (series.step > 0)
        if late.sum() < 2 * detect.MIN_ROWS:
            continue
        step, value = series.step[late], np.log(series.value[late])
        baseline = detect.baseline_of(np.log(step), value, from_row=case.first_row_needed(step))
        limit = case.limits["grad_spike"]
        score = detect.three_in_a_row(detect.standardised(value, baseline)) * detect.spent(limit.limit, np.arange(len(step)))
        alarms = np.flatnonzero(score > limit.limit)
        current = alarms[step[alarms] >= case.recent_from]
        row = current[0] if len(current) else len(step) - 1
        highest = max(float(score[step >= case.recent_from].max(initial=0.0)), 0.0)
        words = f"jumped at step {step[row]:,}" if len(current) else f"largest score of late {highest:.1f}, limit {limit.limit:.1f}"
        found.append(
            Finding(
                rule="grad_spike",
                state="off_course" if len(current) else "on_course",
                value=float(np.exp(value[row])),
                expected=float(np.exp(baseline.expected[row])),
                score=highest / limit.limit,
                step=int(step[row]),
                metric=metric,
                evidence=f"{metric} {words}",
                false_alarm_rate=limit.false_alarm_rate,
            )
        )
    return found or [Finding(rule="grad_spike", state="cannot_tell", metric="grad_norm", evidence="too few rows of grad_norm")]


def grad_shape(case: Case) -> list[Finding]:
    """Does the gradient norm grow over progress as it did on the rungs? Its level differs with width and is not compared."""
    fractions, growth = _growth(case, "grad_norm")
    if not len(growth):
        return [Finding(rule="grad_shape", state="cannot_tell", metric="grad_norm", evidence="too few rows of grad_norm")]
    limit = case.limits["grad_shape"]
    rungs = _rung_growth(case, "grad_norm", fractions)
    if rungs is None:
        return [
            Finding(
                rule="grad_shape",
                state="cannot_tell",
                value=float(np.exp(growth[-1])),
                step=case.last_step,
                metric="grad_norm",
                evidence=f"grew {np.expm1(growth[-1]):+.0%} since {LOOK_BACK:.0%} of the steps so far; no rungs to compare the shape with",
                false_alarm_rate=limit.false_alarm_rate,
            )
        ]
    low, high = rungs
    over = np.maximum(growth - high, low - growth) > SHAPE_MARGIN
    off = bool(over[-IN_A_ROW:].all()) and len(over) >= IN_A_ROW
    return [
        Finding(
            rule="grad_shape",
            state="off_course" if off else "on_course",
            value=float(np.exp(growth[-1])),
            expected=float(np.exp((low[-1] + high[-1]) / 2)),
            low=float(np.exp(low[-1] - SHAPE_MARGIN)),
            high=float(np.exp(high[-1] + SHAPE_MARGIN)),
            score=float((np.maximum(growth - high, low - growth) / SHAPE_MARGIN)[-IN_A_ROW:].min()),
            step=case.last_step,
            metric="grad_norm",
            evidence=f"gradient norm is {np.exp(growth[-1]):.2f} times its value at {LOOK_BACK:.0%} of the steps so far; rungs there: {np.exp(low[-1]):.2f} to {np.exp(high[-1]):.2f}",
            false_alarm_rate=limit.false_alarm_rate,
        )
    ]


def grad_group(case: Case) -> list[Finding]:
    """Does one parameter group's gradient grow while the others do not? The group is named."""
    return [_group_finding(case, "grad_group", "grad_norm", "gradient norm")]


def norm_drift(case: Case) -> list[Finding]:
    """Does one parameter group's norm drift away while the others do not? The group is named."""
    return [_group_finding(case, "norm_drift", "param_norm", "parameter norm")]


def _group_finding(case: Case, rule: str, metric: str, words: str) -> Finding:
    names = past.qualified(case, metric)
    curves = {name: growth for name in names if len(growth := _growth(case, name)[1])}
    limit = case.limits[rule]
    length = min(map(len, curves.values()), default=0)
    if length < IN_A_ROW:
        return Finding(rule=rule, state="cannot_tell", metric=metric, evidence=f"no {words} per group, or too few rows of it")
    growths = np.array([curve[-length:] for curve in curves.values()])
    fractions = _growth(case, next(iter(curves)))[0][-length:]
    excess = growths - np.median(growths, axis=0) if len(curves) >= 3 else growths
    for index, name in enumerate(curves):
        shape = _rung_growth(case, name, fractions)
        if shape is not None:
            excess[index] = growths[index] - shape[1]
    history = excess[:, : -IN_A_ROW * 2] if length > IN_A_ROW * 4 else excess
    usual = np.min([_spread(part) for part in np.array_split(history, 2, axis=1) if part.shape[1]], axis=0)
    score = excess / np.maximum(usual, 0.04)[:, None]  # assumed: 4% is the least spread a norm's median shows
    recent = max(int(length * 0.1), IN_A_ROW)
    sustained = np.lib.stride_tricks.sliding_window_view(score[:, -recent:], IN_A_ROW, axis=1).min(axis=2).max(axis=1)
    worst = int(sustained.argmax())
    name, off = list(curves)[worst], bool(sustained[worst] > limit.limit)
    value = float(np.exp(excess[worst, -recent:].max()))
    share = _share_of_square(case, metric, name)
    evidence = (
        f"{words} of {name.split('/', 1)[1]} grew {value - 1:+.0%} against the other groups since {LOOK_BACK:.0%} of the steps so far"
    )
    evidence += f"; it holds {share:.0%} of the squared norm" if np.isfinite(share) else ""
    return Finding(
        rule=rule,
        state="off_course" if off else "on_course",
        value=value,
        expected=1.0,
        score=float(sustained[worst] / limit.limit),
        high=float(np.exp(limit.limit * max(usual[worst], 0.04))),
        step=case.last_step,
        metric=name,
        evidence=evidence,
        false_alarm_rate=limit.false_alarm_rate,
    )


def _spread(excess: np.ndarray) -> np.ndarray:
    """Robust scatter of each curve; the calmer half of its past counts, because a slow growth fills the other half."""
    return 1.4826 * np.median(np.abs(excess - np.median(excess, axis=1, keepdims=True)), axis=1)


def _growth(case: Case, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Fractions of the run and the log growth of the smoothed metric since `LOOK_BACK` of the steps until then."""
    return _growth_of(finite(case.record.series(metric)), case.num_steps or case.last_step)


def _growth_of(series: Series, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    keep = (series.value > 0) & (series.step >= FIRST_FRACTION * num_steps)
    step, value = series.step[keep].astype(float), np.log(series.value[keep])
    width = max(len(step) // GRID, 5)
    if len(step) < 2 * detect.MIN_ROWS:
        return np.empty(0), np.empty(0)
    whole = len(step) // width * width
    smooth = np.median(value[-whole:].reshape(-1, width), axis=1)
    middle = step[-whole:].reshape(-1, width).mean(axis=1)
    there = middle * LOOK_BACK >= middle[0]
    return middle[there] / num_steps, smooth[there] - np.interp(middle[there] * LOOK_BACK, middle, smooth)


def _rung_growth(case: Case, metric: str, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Lowest and highest growth of any rung at these fractions; None when fewer than two rungs have the metric."""
    curves = []
    for rung in case.rungs:
        at, growth = _growth_of(finite(rung.series(metric)), rung.info.num_steps)
        if len(growth):
            curves.append(np.interp(fractions, at, growth))
    return (np.min(curves, axis=0), np.max(curves, axis=0)) if len(curves) >= 2 else None


def _share_of_square(case: Case, metric: str, name: str) -> float:
    total, part = finite(case.record.series(metric)), finite(case.record.series(name))
    return (part.last / total.last) ** 2 if len(total) and len(part) and total.last > 0 else float("nan")
