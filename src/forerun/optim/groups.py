"""Which parameter moves how: a written-out table from leaf name to rule and to the group its norms are logged under.

Source of the assignment: reference model-and-training 2.3. A leaf that no row names is an error, never a default.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from forerun.optim.paths import named_leaves
from forerun.parallel.sharding import inside_layer

Rule = Literal["muonh", "adamh", "adam"]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    pattern: str
    """Shell pattern on the leaf's name behind `layers/<i>/`; the first match counts."""
    rule: Rule
    group: str
    """For norms, learning rates and weight decay."""


TABLE: tuple[Row, ...] = (
    Row("embedding", "adam", "embedding"),
    Row("head", "adamh", "head"),
    Row("*/gain", "adam", "gains"),
    Row("attention/?_gain", "adam", "gains"),
    Row("*_norm/w_down", "muonh", "gated_norm"),
    Row("*_norm/w_up", "muonh", "gated_norm"),
    Row("attention/w_?", "muonh", "attention"),
    Row("attention/head_gate", "adam", "head_gate"),
    Row("*/conv_*", "adam", "short_conv"),
    Row("feed_forward/w_router", "adam", "router"),
    Row("feed_forward/experts/*", "muonh", "routed"),
    Row("feed_forward/latent/w_*", "muonh", "latent"),
    Row("feed_forward/shared/*", "muonh", "shared"),
)


def row_of(name: str) -> Row:
    """The line that governs a leaf. Raises: KeyError when none does."""
    short = inside_layer(name)
    for row in TABLE:
        if fnmatchcase(short, row.pattern):
            return row
    raise KeyError(f"optim/groups.py has no row for parameter {name!r}")


def assignment(params: Any) -> dict[str, Row]:
    """The governing line of every leaf, by name."""
    return {name: row_of(name) for name in named_leaves(params)}


def table(params: Any) -> str:
    """The assignment as text, equal leaves of different layers merged: pattern, rule, group, number of leaves and of parameters."""
    merged: dict[tuple[str, str, str], list[int]] = {}
    for name, leaf in named_leaves(params).items():
        row = row_of(name)
        merged.setdefault((inside_layer(name), row.rule, row.group), []).append(leaf.size)
    lines = [f"{'parameter':40} {'rule':6} {'group':12} {'leaves':>6} {'num_params':>12}"]
    lines += [f"{name:40} {rule:6} {group:12} {len(sizes):6d} {sum(sizes):12d}" for (name, rule, group), sizes in sorted(merged.items())]
    return "\n".join(lines)
