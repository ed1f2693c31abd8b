"""Numbers with their meaning: every number on a page says, on hover, what it is, in which unit, and all its digits."""

from __future__ import annotations

import json
import math

from forerun.dashboard.html import Markup, Piece, tag
from forerun.dashboard.page_terms import entry_of, known_entry


def number(value: float | int | None, term: str, shown: str | None = None) -> Markup:
    """A value with its glossary entry as hover text; absent values are a dash.

    Args:
        term: metric name or glossary entry.
        shown: how it is written; 4 significant digits by default.
    """
    meaning = hover(term)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return tag("span", "–", title=f"not measured. {meaning}", class_="n")
    written = shown if shown is not None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return tag("data", written, value=repr(value), title=meaning, class_="n")


def percent(fraction: float | None, term: str) -> Markup:
    """A share in whole percent; absent when it is not known."""
    return number(fraction, term, None if fraction is None else f"{fraction:.0%}")


def place(step: int, num_steps: int) -> tuple[Piece, ...]:
    """`at step 1,200 of 4,000`, inside a sentence; without the end where nobody said how many steps there will be."""
    end = (" of ", number(num_steps, "num_steps")) if num_steps else ()
    return " at step ", number(max(step, 0), "step"), *end


def digits(value: float | int, shown: str | None = None) -> Markup:
    """A value in a column whose head, made by `heading`, says what it is."""
    return tag("data", shown if shown is not None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}", value=repr(value))


def hover(term: str) -> str:
    """What a glossary entry says, on one line. An unknown name is our own mistake."""
    entry = entry_of(term)
    unit = f" ({entry.unit})" if entry.unit else ""
    better = f" {entry.better.capitalize()} is better." if entry.better else ""
    return f"{entry.name}{unit}: {entry.definition}.{better}"


def hover_of_metric(metric: str) -> str:
    """What a logged metric is; a name the glossary does not know is a stranger's, told as such."""
    entry = known_entry(metric)
    return f"{metric}: {hover(entry.name).partition(': ')[2]}" if entry else f"{metric}: as this run logged it; not in the glossary"


def sentence(words: Piece, metric: str) -> Markup:
    """A sentence with numbers of one metric in it: what they are is its hover text."""
    return tag("span", words, title=hover_of_metric(metric))


def terms(*names: str) -> str:
    """Names with what they mean, as JSON: what a script of the page says about the numbers it works out."""
    return json.dumps({name: hover(name) for name in names})


def heading(label: Piece, term: str, up: str = "") -> Markup:
    """A column head or label that leads to its glossary entry, for those who cannot hover."""
    return tag("a", label, href=f"{up}glossary.html#{entry_of(term).name}", title=hover(term), class_="term")
