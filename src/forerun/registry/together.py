"""Whether the parts of a rule can hold together: `final(x) < 3 and final(x) > 3`, `min(x) > 5 and max(x) < 4`, `x < 3 or x >= 3`.

A rule is spread into alternatives, each a list of comparisons that must all hold. A comparison that is linear in one reduction bounds
it; the bounds of one metric's reductions are tied by min <= final, first, mean, at <= max; an empty bound is a contradiction. What is
not linear is taken as possible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forerun.registry.rule_text import REDUCTIONS

OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
MOST_ALTERNATIVES = 4096  # assumed: a rule that spreads into more is taken as possible

Literal = tuple[str, tuple, tuple]
"""Sign, left and right value."""


@dataclass
class Bounds:
    """What a value is held to; an end is open when the value may not equal it."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    holes: tuple[float, ...] = ()

    def above(self, value: float, is_open: bool) -> None:
        """Raise the lower end."""
        if value > self.low or (value == self.low and is_open):
            self.low, self.low_open = value, is_open

    def below(self, value: float, is_open: bool) -> None:
        """Lower the upper end."""
        if value < self.high or (value == self.high and is_open):
            self.high, self.high_open = value, is_open

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        if self.low == self.high:
            return self.low_open or self.high_open or self.low in self.holes
        return self.low > self.high


def can_hold(tree: tuple, range_of: Callable[[str], tuple[float, float]], *, negated: bool = False) -> bool:
    """Whether some record makes the rule true (or false, when `negated`); True when this cannot be told."""
    alternatives = list(itertools.islice(_alternatives(tree, negated), MOST_ALTERNATIVES + 1))
    return len(alternatives) > MOST_ALTERNATIVES or any(_possible(literals, range_of) for literals in alternatives)


def _alternatives(tree: tuple, negated: bool) -> Iterator[list[Literal]]:
    head = tree[0]
    if head == "not":
        yield from _alternatives(tree[1], not negated)
    elif (head == "or") != negated and head in ("and", "or"):
        yield from _alternatives(tree[1], negated)
        yield from _alternatives(tree[2], negated)
    elif head in ("and", "or"):
        for left in _alternatives(tree[1], negated):
            for right in _alternatives(tree[2], negated):
                yield [*left, *right]
    elif head == "inside":
        yield from (
            [[("<", tree[1], tree[2])], [(">", tree[1], tree[3])]] if negated else [[(">=", tree[1], tree[2]), ("<=", tree[1], tree[3])]]
        )
    elif head in ("any", "all"):
        yield from _of_series(tree, negated)
    else:
        yield [(OPPOSITE[tree[1]] if negated else tree[1], tree[2], tree[3])]


def _of_series(tree: tuple, negated: bool) -> Iterator[list[Literal]]:
    """`any(m > v)` is `max(m) > v`, `all(m > v)` is `min(m) > v`; the negation of one is the other with the opposite sign."""
    head, metric, sign, limit = tree
    if negated:
        head, sign = ("all" if head == "any" else "any"), OPPOSITE[sign]
    if sign in ("==", "!="):
        smallest, largest = ("min", metric), ("max", metric)
        if head == "all" and sign == "==":
            yield [("==", smallest, limit), ("==", largest, limit)]
        else:  # any(m == v) says v lies between; any(m != v) and all(m != v) say nothing about bounds
            yield [("<=", smallest, limit), (">=", largest, limit)] if (head, sign) == ("any", "==") else []
        return
    largest_decides = (head == "any") == (sign in (">", ">="))
    yield [(sign, ("max" if largest_decides else "min", metric), limit)]


def _possible(literals: list[Literal], range_of: Callable[[str], tuple[float, float]]) -> bool:
    bounds: dict[tuple, Bounds] = {}
    for literal in literals:
        value, sign, limit = _isolated(*literal)
        if value is None:
            if not _compare(0.0, sign, limit):
                return False
        elif not _ordered(value, sign, limit):
            return False
        else:
            _hold(bounds.setdefault(value, Bounds()), sign, limit)
    _tie(bounds, range_of)
    return not any(bound.is_empty for bound in bounds.values())


def _isolated(sign: str, left: tuple, right: tuple) -> tuple[tuple | None, str, float]:
    """The comparison as `value sign number`. No value: `0 sign number`, decided already.

    A value is a reduction, or `("sum", (reduction, share), ...)` with the first share 1; what is not linear stands as it is.
    """
    combined = _linear(("-", left, right))
    if combined is None:
        return ("other", left, right), sign, 0.0
    shares, offset = combined
    kept = sorted((reduction, share) for reduction, share in shares.items() if share != 0)
    if not kept:
        return None, sign, -offset
    lead = kept[0][1]
    value = kept[0][0] if len(kept) == 1 else ("sum", *((reduction, share / lead) for reduction, share in kept))
    return value, sign if lead > 0 else TURNED[sign], -offset / lead


def _linear(tree: tuple) -> tuple[dict[tuple, float], float] | None:
    """(share of each reduction, constant) of a value linear in its reductions; None when it is not."""
    head = tree[0]
    if head == "number":
        return {}, tree[1]
    if head in REDUCTIONS or head == "at":
        return {tree: 1.0}, 0.0
    left, right = _linear(tree[1]), _linear(tree[2])
    if left is None or right is None:
        return None
    if head in ("+", "-"):
        return _scaled_sum(left, right, 1.0 if head == "+" else -1.0)
    if head == "*" and not left[0]:
        return _scaled_sum(({}, 0.0), right, left[1])
    if head == "*" and not right[0]:
        return _scaled_sum(({}, 0.0), left, right[1])
    if head == "/" and not right[0] and right[1] != 0:
        return _scaled_sum(({}, 0.0), left, 1 / right[1])
    return None


def _scaled_sum(
    left: tuple[dict[tuple, float], float], right: tuple[dict[tuple, float], float], scale: float
) -> tuple[dict[tuple, float], float]:
    reductions = {*left[0], *right[0]}
    return {one: left[0].get(one, 0.0) + scale * right[0].get(one, 0.0) for one in reductions}, left[1] + scale * right[1]


def _ordered(value: tuple, sign: str, limit: float) -> bool:
    """Whether a difference of two reductions of one metric can lie there: min is never above, max never below any other."""
    if value[0] != "sum" or len(value) != 3 or limit != 0:
        return True
    (left, _), (right, share) = value[1:]
    if share != -1 or left[1] != right[1]:
        return True
    if left[0] == "min" or right[0] == "max":
        return sign != ">"
    if left[0] == "max" or right[0] == "min":
        return sign != "<"
    return True


def _hold(bound: Bounds, sign: str, limit: float) -> None:
    if sign in (">", ">=", "=="):
        bound.above(limit, sign == ">")
    if sign in ("<", "<=", "=="):
        bound.below(limit, sign == "<")
    if sign == "!=":
        bound.holes = (*bound.holes, limit)


def _tie(bounds: dict[tuple, Bounds], range_of: Callable[[str], tuple[float, float]]) -> None:
    """Bring the metric's own range and the order of its reductions into the bounds."""
    reduced = [value for value in bounds if value[0] in REDUCTIONS or value[0] == "at"]
    for metric in {value[1] for value in reduced}:
        smallest, largest = bounds.setdefault(("min", metric), Bounds()), bounds.setdefault(("max", metric), Bounds())
        low, high = range_of(metric)
        smallest.above(low, False)
        largest.below(high, False)
        own = [bounds[value] for value in reduced if value[1] == metric]
        for bound in own:
            smallest.below(bound.high, bound.high_open)
            largest.above(bound.low, bound.low_open)
        for bound in (*own, largest, smallest):
            bound.above(smallest.low, smallest.low_open)
            bound.below(largest.high, largest.high_open)


def _compare(left: float, sign: str, right: float) -> bool:
    answers = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right, "==": left == right, "!=": left != right}
    return answers[sign]
