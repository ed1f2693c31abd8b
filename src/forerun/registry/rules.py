"""Rules as people write them, scored by machine: `final(eval/macro_loss_nats) <= 3.21 and not any(grad_norm > 50)`.

The grammar is in `rule_text.py`; what a rule may say at all, in `possible.py`; scoring step by step, in `live.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from forerun.base.errors import RegistryError
from forerun.registry.possible import check_metric, refuse_decided
from forerun.registry.rule_text import Parser

_COMPARE: dict[str, Callable] = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
_REDUCE: dict[str, Callable[[np.ndarray], float]] = {
    "final": lambda values: float(values[-1]),
    "first": lambda values: float(values[0]),
    "min": lambda values: float(np.min(values)),
    "max": lambda values: float(np.max(values)),
    "mean": lambda values: float(np.mean(values)),
}


class History(Protocol):
    """What a rule reads; run records satisfy it."""

    def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Fractions of the run (0..1) and values, in order; both empty when the metric was not recorded."""
        ...


@dataclass(frozen=True)
class Outcome:
    """A rule's answer."""

    holds: bool | None
    """None when a metric it needs has no value yet."""
    missing: tuple[str, ...]
    """Those metrics."""


@dataclass(frozen=True)
class Rule:
    """A parsed rule."""

    text: str
    metrics: tuple[str, ...]
    """Metric names it reads, in order of appearance."""
    _tree: tuple

    def judge(self, history: History) -> Outcome:
        """Score the rule on what has been recorded so far."""
        missing = tuple(metric for metric in self.metrics if not len(history.values(metric)[1]))
        if missing:
            return Outcome(None, missing)
        return Outcome(bool(_evaluate(self._tree, history)), ())


def parse(text: str, *, where: str, names: Mapping[str, float] | None = None) -> Rule:
    """Read a rule.

    Args:
        where: field the rule stands in, named in errors.
        names: words that stand for numbers, such as `low90`.
    Raises: RegistryError for bad syntax, an unknown metric, or a rule that is true or false whatever a run records.
    """
    parser = Parser(text, where, names or {})
    tree = parser.rule()
    parser.expect_end()
    metrics = tuple(dict.fromkeys(parser.metrics))
    if not metrics:
        raise RegistryError(f"{where} must read at least one metric, got {text!r}", hint="for example final(eval/macro_loss_nats) <= 3.2")
    for metric in metrics:
        check_metric(metric, where)
    refuse_decided(tree, where, text)
    return Rule(text, metrics, tree)


def _evaluate(tree: tuple, history: History) -> bool | float:
    head = tree[0]
    if head == "or":
        return bool(_evaluate(tree[1], history)) or bool(_evaluate(tree[2], history))
    if head == "and":
        return bool(_evaluate(tree[1], history)) and bool(_evaluate(tree[2], history))
    if head == "not":
        return not _evaluate(tree[1], history)
    if head in ("any", "all"):
        answers = _COMPARE[tree[2]](history.values(tree[1])[1], _evaluate(tree[3], history))
        return bool(answers.any() if head == "any" else answers.all())
    if head == "inside":
        value, low, high = (float(_evaluate(part, history)) for part in tree[1:])
        return low <= value <= high
    if head == "compare":
        return bool(_COMPARE[tree[1]](_evaluate(tree[2], history), _evaluate(tree[3], history)))
    return _number(tree, history)


def _number(tree: tuple, history: History) -> float:
    head = tree[0]
    if head == "number":
        return tree[1]
    if head in _REDUCE:
        return _REDUCE[head](history.values(tree[1])[1])
    if head == "at":
        fractions, values = history.values(tree[1])
        return float(np.interp(_number(tree[2], history), fractions, values))
    left, right = (float(_evaluate(part, history)) for part in tree[1:])
    if head == "/":
        return left / right if right else math.nan
    return {"+": left + right, "-": left - right, "*": left * right}[head]
