"""The grade in an answer of a chat model: the expectation over its digits' probabilities, or what it wrote."""

from __future__ import annotations

import math
import re
from typing import Any

DIGITS = "12345"
WIDE_DIGITS = str.maketrans("０１２３４５６７８９", "0123456789")
NUMBER_WORDS = {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0}
SCALE = re.compile(r"\b[1-5]\s*(?:-|–|to|through|bis|à)\s*[1-5]\b|(?:/|\bout of|\bof|\bvon|\bsur)\s*(?:5|five)\b", re.IGNORECASE)
"""Mentions of the scale: `from 1 to 5`, `4/5`, `4 out of 5`; the 5 is no grade."""
NUMBER = r"(?<![\d.,])(?<![-−]\s)(?<![-−])(\d+(?:[.,]\d+)?)(?![\d%eE])(?![.,]\d)(?!\s*(?:/|out of|of|von|sur)\s*\d)"
"""A number that is not part of another, no share, and of no other scale than 1 to 5."""
NAMED = re.compile(
    rf"(?:grade|scor|rat|label|mark|quality|answer|give|note|评分|分数|得分)\w*\W*?(?:(?:is|as|it|this|the|document|text|a|an|of|be|to|would)\b\W*)*{NUMBER}",
    re.IGNORECASE,
)
ITEM = re.compile(r"^\s*\d\.\s+(?=\S)", re.MULTILINE)
FIRST = re.compile(rf"^[\s\W_]*{NUMBER}")
LEAST_MASS = 1e-4  # measured: digits hold 3 to 19% in 30 answers of SmolLM2-135M; assumed: far less where a model is about to think


def label_of(choice: Any) -> float | None:
    """The label in a choice of a chat completion, 1 to 5: expectation over digits where it is one, else the grade written, else nothing.

    What is thought before the answer does not count. Raises: ValueError, TypeError, KeyError or AttributeError when it is no choice.
    """
    positions = (choice.get("logprobs") or {}).get("content") or []
    weights = [_weights(position) for position in positions]
    answer = choice.get("message", {}).get("content") or ""
    written = grade_in(answer)
    if weights and not re.search(r"\d", answer):  # one word was asked for and it is not the digit; the digits may still be what was meant
        return _expected(weights[0]) if sum(weights[0].values()) >= LEAST_MASS else written
    if written is None:
        return None
    for position, digits in zip(reversed(positions), reversed(weights)):
        token = str(position.get("token", max(digits, key=lambda digit: digits[digit], default=""))).strip()
        if digits and token in DIGITS and token == f"{written:g}":
            return _expected(digits)
    return written


def grade_in(answer: str) -> float | None:
    """The grade that an answer states, 1 to 5: one that is called so, else the one it begins with, else the last number on the scale."""
    thought, _, rest = answer.rpartition("</think>")
    if "<think>" in rest and not thought:
        return None  # cut off while thinking
    text = rest.translate(WIDE_DIGITS).strip()
    word = text.strip(" .!*_\"'").lower()
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    text = SCALE.sub(" ", text)
    if len(ITEM.findall(text)) > 1:  # a numbered list, not an answer with a full stop
        text = ITEM.sub(" ", text)
    found = [*NAMED.finditer(text)][-1:] or [*FIRST.finditer(text)] or [*re.finditer(NUMBER, text)][-1:]
    value = float(found[0][1].replace(",", ".")) if found else math.nan
    return value if 1 <= value <= 5 else None


def _weights(position: Any) -> dict[str, float]:
    """Probability of each grade at a place of the answer: `3` and ` 3` are one."""
    weights: dict[str, float] = {}
    for entry in position.get("top_logprobs") or []:
        digit, logprob = entry["token"].strip(), entry["logprob"]
        if digit and digit in DIGITS and not math.isnan(logprob):
            weights[digit] = weights.get(digit, 0.0) + math.exp(min(0.0, logprob))
    return weights if sum(weights.values()) > 0 else {}


def _expected(weights: dict[str, float]) -> float:
    return sum(int(digit) * weight for digit, weight in weights.items()) / sum(weights.values())
