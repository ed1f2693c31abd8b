"""Held-out loss against its own course: a rise is judged by how much evaluations scatter."""

from __future__ import annotations

import numpy as np

from forerun.watch import detect
from forerun.watch.case import Case, finite
from forerun.watch.report import Finding
from forerun.watch.rules.loss import FIRST_FRACTION

MIN_EVALS = 6  # assumed: earlier evaluations that make a line and its scatter
LEAST_NOISE = 0.0016  # measured: relative scatter of a 535B run's macro loss about a smooth trend; smaller runs scatter as much
IN_A_ROW = 2  # assumed: one evaluation outside is noise or its own fault; the next one decides
COUNTED_EVALS = 20  # derived: evaluations of the replayed runs on which the limit was set
ALONE = 4.0  # assumed: times the others' move that make it one domain's matter


def eval_shift(case: Case) -> list[Finding]:
    """Has the held-out loss left its own course, up or down, for two evaluations?"""
    series = case.evals
    late = (series.step >= FIRST_FRACTION * case.num_steps) & (series.step > 0) & (series.value > 0)
    step, value = series.step[late], series.value[late]
    metric = case.eval_metric
    score, expected = np.zeros(len(step)), np.full(len(step), np.nan)
    for index in range(MIN_EVALS, len(step)):
        begin = max(index - 2 * MIN_EVALS, 0)
        for back in (0, 1):  # the eval before may be the first one outside: it must not be learned from
            stop = index - back
            if stop - begin < MIN_EVALS - 1:
                continue
            line, sd = _line(case, step[begin:stop], value[begin:stop], step[index])
            distance = (np.log(value[index]) - line) / sd
            if back == 0 or abs(distance) > abs(score[index]):
                score[index], expected[index] = distance, np.exp(line)
    if len(step) <= MIN_EVALS:
        return [
            Finding(
                rule="eval_shift",
                state="cannot_tell",
                metric=metric,
                evidence=f"{len(step)} evaluations; {MIN_EVALS + 1} are needed to know their scatter",
            )
        ]
    limit = case.limits["eval_shift"]
    score = score * detect.spent(limit.limit, np.arange(len(step)), COUNTED_EVALS)
    outside = np.where(np.abs(score) > limit.limit, np.sign(score), 0)
    rows = [row for row in range(1, len(step)) if outside[row] and outside[row] == outside[row - 1] and case.recent(int(step[row]))]
    late_rows = [row for row in range(1, len(step)) if case.recent(int(step[row])) and score[row] * score[row - 1] > 0]
    highest = max((float(np.abs(score[row - 1 : row + 1]).min()) for row in late_rows), default=0.0)
    row = rows[0] - 1 if rows else len(step) - 1
    evidence = f"held-out loss {value[row]:.4f} at step {step[row]:,}, its own course says {expected[row]:.4f}: score {score[row]:+.1f}, limit {limit.limit:.1f}"
    meaning: tuple[str, ...] = ()
    if rows:
        words, alone = _domain(case, int(step[row]))
        evidence += ", and again at the next evaluation" + words
        meaning = ("eval_one_domain",) if alone else ()
    elif outside[-1]:
        evidence += "; one evaluation only, the next one decides"
    return [
        Finding(
            rule="eval_shift",
            state="off_course" if rows else "on_course",
            value=float(value[row]),
            expected=float(expected[row]),
            score=highest / limit.limit,
            step=int(step[row]),
            metric=metric,
            evidence=evidence,
            signals=meaning,
            false_alarm_rate=limit.false_alarm_rate,
        )
    ]


def _line(case: Case, step: np.ndarray, value: np.ndarray, at: int) -> tuple[float, float]:
    """Extrapolate the log loss (its distance to the forecast, where there is one) in log step; value and its sd at `at`."""
    where = np.append(step, at).astype(float)
    forecast = case.band.through(where) if case.band else np.zeros(len(where))
    x, y = np.log(where[:-1]), np.log(value) - forecast[:-1]
    intercept, slope, noise = detect.line(x, y)
    noise = max(noise, LEAST_NOISE)
    ahead = np.log(where[-1]) - x.mean()
    sd = noise * np.sqrt(1 + 1 / len(x) + ahead**2 / max(((x - x.mean()) ** 2).sum(), 1e-12))
    return intercept + slope * ahead + forecast[-1], float(sd)


def _domain(case: Case, step: int) -> tuple[str, bool]:
    """The domain that moved most at an evaluation, as words, and whether it moved alone; empty when domains are not logged."""
    moves = {}
    for name in case.record.metrics():
        if name.startswith("eval/") and name.endswith("/loss_nats"):
            series = finite(case.record.series(name))
            row = int(np.searchsorted(series.step, step))
            if 1 <= row < len(series) and series.value[row - 1] > 0:
                moves[name.split("/")[1]] = float(series.value[row] / series.value[row - 1] - 1)
    if len(moves) < 2:
        return "", False
    worst = max(moves, key=lambda name: abs(moves[name]))
    others = float(np.median([abs(move) for name, move in moves.items() if name != worst]))
    return f"; most in {worst} ({moves[worst]:+.1%}, the others {others:.1%})", abs(moves[worst]) > ALONE * max(others, LEAST_NOISE)
