"""What a record can hold at all: known metric names, the range of each, and rules that are decided before any run."""

from __future__ import annotations

import math
from difflib import get_close_matches

from forerun.base.errors import RegistryError
from forerun.base.terms import BY_NAME
from forerun.registry import together

Range = tuple[float, float]

EVAL_PREFIXES = ("eval", "eval_with_drops")
EVAL_NAMES = ("macro_loss_nats", "macro_bits_per_byte", "loss_nats", "bits_per_byte")
NON_NEGATIVE: Range = (0.0, math.inf)  # derived: every term of the glossary is a count, a norm, a rate, a time or an entropy
ABOVE_ONE = ("load_imbalance",)  # derived: the most loaded expert holds at least the mean
UP_TO_ONE = ("mfu", "mfu_executed", "mfu_useful", "coverage", "loader_occupancy")


def check_metric(metric: str, where: str) -> None:
    """Raises: RegistryError when no record can hold a metric of that name."""
    if _term(metric):
        return
    known = [*BY_NAME, *(f"eval/{name}" for name in EVAL_NAMES[:2])]
    near = get_close_matches(metric, known, n=2) or get_close_matches(metric.rsplit("/", maxsplit=1)[-1], known, n=2)
    way_out = f"did you mean {' or '.join(near)}?" if near else "see docs/reference/glossary for the names"
    raise RegistryError(f"{where} names the metric {metric!r}, which no run records", hint=way_out)


def _term(metric: str) -> str:
    """Glossary name behind a metric: `grad_norm/routed`, `eval/macro_loss_nats`, `eval/<domain>/loss_nats`; empty when unknown."""
    parts = metric.split("/")
    if parts[0] in EVAL_PREFIXES:
        right = len(parts) >= 2 and parts[-1] in (EVAL_NAMES[:2] if len(parts) == 2 else EVAL_NAMES[2:])
        return parts[-1] if right else ""
    return parts[0] if parts[0] in BY_NAME and all(parts) else ""


def range_of(metric: str) -> Range:
    """Smallest and largest value the metric can take."""
    name = _term(metric)
    if "_fraction" in name or name in UP_TO_ONE:
        return 0.0, 1.0
    return (1.0, math.inf) if name in ABOVE_ONE else NON_NEGATIVE


def refuse_decided(tree: tuple, where: str, text: str) -> None:
    """Raises: RegistryError when a rule is never true, or always true, whatever a run records."""
    can_hold, can_fail = outcomes(tree)
    can_hold = can_hold and together.can_hold(tree, range_of)
    can_fail = can_fail and together.can_hold(tree, range_of, negated=True)
    if not can_hold or not can_fail:
        word = "never" if not can_hold else "always"
        raise RegistryError(f"{where}: the rule {text!r} is {word} true", hint="check its signs and limits, low before high")


def outcomes(tree: tuple) -> tuple[bool, bool]:
    """Whether a rule can be true and whether it can be false, each part judged by itself from the ranges of its metrics."""
    head = tree[0]
    if head in ("and", "or"):
        (left_true, left_false), (right_true, right_false) = outcomes(tree[1]), outcomes(tree[2])
        if head == "and":
            return left_true and right_true, left_false or right_false
        return left_true or right_true, left_false and right_false
    if head == "not":
        can_hold, can_fail = outcomes(tree[1])
        return can_fail, can_hold
    if head in ("any", "all"):
        return _compared(tree[2], range_of(tree[1]), number_range(tree[3]))
    if head == "inside":
        value, low, high = (number_range(part) for part in tree[1:])
        above, below = _compared(">=", value, low), _compared("<=", value, high)
        return above[0] and below[0] and low[0] <= high[1], above[1] or below[1]
    return _compared(tree[1], number_range(tree[2]), number_range(tree[3]))


def number_range(tree: tuple) -> Range:
    """Smallest and largest value a sum, product or reduction can take."""
    head = tree[0]
    if head == "number":
        return tree[1], tree[1]
    if head in ("+", "-"):
        (low, high), (other_low, other_high) = number_range(tree[1]), number_range(tree[2])
        return (low + other_low, high + other_high) if head == "+" else (low - other_high, high - other_low)
    if head == "*":
        corners = [_times(left, right) for left in number_range(tree[1]) for right in number_range(tree[2])]
        return min(corners), max(corners)
    if head == "/":
        (low, high), divisor = number_range(tree[1]), number_range(tree[2])
        return (low / divisor[0], high / divisor[0]) if divisor[0] == divisor[1] > 0 else (-math.inf, math.inf)
    return range_of(tree[1])


def _times(left: float, right: float) -> float:
    return 0.0 if left == 0 or right == 0 else left * right


def _compared(sign: str, left: Range, right: Range) -> tuple[bool, bool]:
    if sign in (">", ">="):
        return _compared({">": "<", ">=": "<="}[sign], right, left)
    if sign == "<":
        return left[0] < right[1], left[1] >= right[0]
    if sign == "<=":
        return left[0] <= right[1], left[1] > right[0]
    return left[0] <= right[1] and right[0] <= left[1], not left[0] == left[1] == right[0] == right[1]
