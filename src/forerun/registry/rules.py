"""Rules as people write them, scored by machine: `final(eval/macro_loss_nats) <= 3.21 and not any(grad_norm > 50)`.

    rule       = term { "or" term } ;  term = part { "and" part } ;  part = [ "not" ] ( comparison | "any(" series-comparison ")" | ... )
    comparison = value ( "<" | "<=" | ">" | ">=" | "==" ) value ;  value = sums and products of numbers and reductions
    reduction  = final(m) first(m) min(m) max(m) mean(m) at(m, fraction) inside(value, low, high)

Nothing is evaluated as Python. A metric name may contain `/`; division needs spaces around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from forerun.base.errors import RegistryError
from forerun.base.terms import BY_NAME, term_of

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|(?P<name>[A-Za-z_]\w*(?:/[\w.\-]+)*)|(?P<op><=|>=|==|[-+*<>(),]|(?<=\s)/(?=\s)))"
)
_COMPARE: dict[str, Callable] = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
_REDUCE: dict[str, Callable[[np.ndarray], float]] = {
    "final": lambda values: float(values[-1]),
    "first": lambda values: float(values[0]),
    "min": lambda values: float(np.min(values)),
    "max": lambda values: float(np.max(values)),
    "mean": lambda values: float(np.mean(values)),
}
WORDS = (*_REDUCE, "at", "inside", "any", "all", "and", "or", "not")


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


def parse(text: str, *, where: str) -> Rule:
    """Read a rule.

    Args:
        where: field the rule stands in, named in errors.
    Raises: RegistryError for bad syntax, an unknown metric, or a rule without any metric, which is always or never true.
    """
    parser = _Parser(text, where)
    tree = parser.rule()
    parser.expect_end()
    metrics = tuple(dict.fromkeys(parser.metrics))
    if not metrics:
        raise RegistryError(f"{where} must read at least one metric, got {text!r}", hint="for example final(eval/macro_loss_nats) <= 3.2")
    for metric in metrics:
        check_metric(metric, where)
    _refuse_impossible(tree, where, text)
    return Rule(text, metrics, tree)


def check_metric(metric: str, where: str) -> None:
    """Raises: RegistryError when no record can hold a metric of that name."""
    if term_of(metric) is None and not metric.startswith(("eval/", "eval_with_drops/")):
        near = [name for name in BY_NAME if name.startswith(metric[:4])]
        raise RegistryError(
            f"{where} names the metric {metric!r}, which no run records", hint=f"near names: {', '.join(near) or 'see the glossary'}"
        )


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self._where, self._text, self.metrics = where, text, []
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._wrong(f"cannot read {text[place:].strip()[:20]!r}")
            self._tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            place = match.end()
        self._next = 0

    def rule(self) -> tuple:
        return self._chain("or", lambda: self._chain("and", self._negation))

    def expect_end(self) -> None:
        if self._next < len(self._tokens):
            raise self._wrong(f"unexpected {self._tokens[self._next][1]!r}")

    def _chain(self, word: str, part: Callable[[], tuple]) -> tuple:
        tree = part()
        while self._take(word):
            tree = (word, tree, part())
        return tree

    def _negation(self) -> tuple:
        if self._take("not"):
            return ("not", self._negation())
        for word in ("any", "all"):
            if self._peek() == word:
                self._next += 1
                self._need("(")
                metric = self._metric()
                compare, limit = self._comparison_sign(), self._sum()
                self._need(")")
                return (word, metric, compare, limit)
        if self._peek() == "inside":
            self._next += 1
            self._need("(")
            value = self._sum()
            self._need(",")
            low = self._sum()
            self._need(",")
            high = self._sum()
            self._need(")")
            return ("inside", value, low, high)
        if self._peek() == "(":
            start, known = self._next, len(self.metrics)
            self._next += 1
            try:
                tree = self.rule()
                self._need(")")
                return tree
            except RegistryError:  # it was a bracketed number, not a bracketed rule
                self._next = start
                del self.metrics[known:]
        left = self._sum()
        return ("compare", self._comparison_sign(), left, self._sum())

    def _comparison_sign(self) -> str:
        sign = self._peek()
        if sign not in _COMPARE:
            raise self._wrong(f"expected a comparison, found {sign or 'the end'!r}")
        self._next += 1
        return sign

    def _sum(self) -> tuple:
        tree = self._product()
        while self._peek() in ("+", "-"):
            tree = (self._any(), tree, self._product())
        return tree

    def _product(self) -> tuple:
        tree = self._atom()
        while self._peek() in ("*", "/"):
            tree = (self._any(), tree, self._atom())
        return tree

    def _atom(self) -> tuple:
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        if text == "-":
            self._next += 1
            return ("-", ("number", 0.0), self._atom())
        if text == "(":
            self._next += 1
            tree = self._sum()
            self._need(")")
            return tree
        if kind == "number":
            self._next += 1
            return ("number", float(text))
        if text in _REDUCE or text == "at":
            self._next += 1
            self._need("(")
            metric = self._metric()
            fraction: tuple = ()
            if text == "at":
                self._need(",")
                fraction = (self._sum(),)
            self._need(")")
            return (text, metric, *fraction)
        raise self._wrong(f"expected a number or one of {', '.join([*_REDUCE, 'at'])}, found {text or 'the end'!r}")

    def _metric(self) -> str:
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        if kind != "name" or text in WORDS:
            raise self._wrong(f"expected a metric name, found {text or 'the end'!r}")
        self._next += 1
        self.metrics.append(text)
        return text

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _any(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _take(self, text: str) -> bool:
        found = self._peek() == text
        self._next += found
        return found

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(f"expected {text!r}, found {self._peek() or 'the end'!r}")

    def _wrong(self, problem: str) -> RegistryError:
        return RegistryError(f"{self._where}: {problem} in the rule {self._text!r}", hint="for example final(eval/macro_loss_nats) <= 3.2")


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


def _refuse_impossible(tree: tuple, where: str, text: str) -> None:
    """`inside` with its limits swapped, and chains like `x < 1 and x > 2` of one reduction, can never hold."""
    bounds: dict[tuple, list[float]] = {}
    for part in _conjuncts(tree):
        if part[0] == "inside" and part[2][0] == part[3][0] == "number" and part[2][1] > part[3][1]:
            raise RegistryError(f"{where}: inside() has its low limit {part[2][1]:g} above its high limit {part[3][1]:g}", hint="swap them")
        if part[0] == "compare" and part[3][0] == "number":
            low, high = bounds.setdefault(part[2], [-math.inf, math.inf])
            if part[1] in ("<", "<=", "=="):
                high = min(high, part[3][1])
            if part[1] in (">", ">=", "=="):
                low = max(low, part[3][1])
            bounds[part[2]] = [low, high]
            if low > high:
                raise RegistryError(
                    f"{where}: the rule {text!r} can never be true", hint=f"it asks for a value above {low:g} and below {high:g}"
                )


def _conjuncts(tree: tuple) -> list[tuple]:
    return [*_conjuncts(tree[1]), *_conjuncts(tree[2])] if tree[0] == "and" else [tree]


def recorded(values: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> History:
    """A history from plain arrays of fractions and values."""

    class _Arrays:
        def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
            return values.get(metric, (np.empty(0), np.empty(0)))

    return _Arrays()
