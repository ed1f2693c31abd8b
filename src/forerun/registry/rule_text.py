"""From the text of a rule to its tree. Nothing is evaluated as Python.

    rule       = term { "or" term } ;  term = part { "and" part } ;  part = "not" part | "(" rule ")" | comparison
    comparison = value sign value | "inside(" value "," value "," value ")" | ("any" | "all") "(" metric sign value ")"
    sign       = "<" | "<=" | ">" | ">=" | "==" ;  value = sums and products of numbers, names and reductions
    reduction  = ("final" | "first" | "min" | "max" | "mean") "(" metric ")" | "at(" metric "," fraction ")"

A metric name may contain `/`; division needs spaces around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from forerun.base.errors import RegistryError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|(?P<name>[A-Za-z_]\w*(?:/[\w.\-]+)*)|(?P<op><=|>=|==|[-+*<>(),]|(?<=\s)/(?=\s)))"
)
COMPARISONS = ("<", "<=", ">", ">=", "==")
REDUCTIONS = ("final", "first", "min", "max", "mean")
WORDS = (*REDUCTIONS, "at", "inside", "any", "all", "and", "or", "not")
LONGEST = 500  # assumed: a rule people can read; bounds the depth of the tree
MOST_BRACKETS = 12  # derived: a bracket may be read twice, so 2^12 readings at worst


class Parser:
    """Reads one rule. `rule()` gives its tree; `metrics` then lists the names it reads, repeats included.

    Args:
        where: field the rule stands in, named in errors.
        names: words that stand for numbers, such as `low90`.
    """

    def __init__(self, text: str, where: str, names: Mapping[str, float]) -> None:
        self._where, self._text, self._names, self.metrics = where, text, names, []
        if len(text) > LONGEST or text.count("(") > MOST_BRACKETS:
            raise self._wrong(f"more than {LONGEST} characters or {MOST_BRACKETS} brackets")
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
        """The tree: tuples that start with the operator."""
        return self._chain("or", lambda: self._chain("and", self._negation))

    def expect_end(self) -> None:
        """Raises: RegistryError when something follows the rule."""
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
        if sign not in COMPARISONS:
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
        if text in self._names:
            self._next += 1
            return ("number", self._names[text])
        if text in REDUCTIONS or text == "at":
            self._next += 1
            self._need("(")
            metric = self._metric()
            fraction: tuple = ()
            if text == "at":
                self._need(",")
                fraction = (self._sum(),)
            self._need(")")
            return (text, metric, *fraction)
        raise self._wrong(f"expected a number or one of {', '.join([*REDUCTIONS, 'at'])}, found {text or 'the end'!r}")

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
