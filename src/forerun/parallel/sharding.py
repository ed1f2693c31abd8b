"""Where every parameter lives: a written-out table from leaf name to the dimension that is cut over a rack.

Experts are cut over `expert`. Other matrices are cut over (`data`, `expert`) along the first of the listed dimensions that divides
evenly; small vectors are whole everywhere. Nothing is cut over `replica`: each rack holds one copy. A leaf that no row names is an
error, never a default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from forerun.parallel.mesh import EXPERT_AXIS, RACK_AXES

Cut = Literal["expert", "rows_first", "columns_first", "whole"]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    pattern: str
    """Shell pattern on the leaf's name behind `layers/<i>/`; the first match counts."""
    cut: Cut
    """`expert`: experts over `expert`; `rows_first`, `columns_first`: that dimension of the matrix over the rack if it divides, else
    the other one; `whole`: not cut."""


TABLE: tuple[Row, ...] = (
    Row("embedding", "columns_first"),  # a look-up then touches no other device's rows
    Row("head", "columns_first"),
    Row("*/gain", "whole"),
    Row("attention/?_gain", "whole"),
    Row("*_norm/w_down", "rows_first"),
    Row("*_norm/w_up", "columns_first"),
    Row("attention/w_?", "rows_first"),
    Row("attention/head_gate", "whole"),
    Row("*/conv_*", "whole"),
    Row("feed_forward/w_router", "whole"),  # float32 at the highest precision; whole, so that its sums run in one order on every mesh
    Row("feed_forward/experts/*", "expert"),
    Row("feed_forward/latent/w_*", "rows_first"),
    Row("feed_forward/shared/*", "rows_first"),
)


def row_of(name: str) -> Row:
    """The line that places a leaf. Raises: KeyError when none does."""
    short = inside_layer(name)
    for row in TABLE:
        if fnmatchcase(short, row.pattern):
            return row
    raise KeyError(f"parallel/sharding.py has no row for parameter {name!r}")


def spec_of(name: str, shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """The partition of one parameter, or of an optimizer moment of its shape; leading layer axes of a scan are never cut."""
    cut = row_of(name).cut
    if cut == "whole":
        return PartitionSpec()
    if cut == "expert":
        return _cut_at(len(shape) - 3, EXPERT_AXIS)
    rack = math.prod(mesh.shape[axis] for axis in RACK_AXES)
    for dim in (-2, -1) if cut == "rows_first" else (-1, -2):
        if shape[dim] % rack == 0:
            return _cut_at(len(shape) + dim, RACK_AXES)
    return PartitionSpec()


def sharding_of(name: str, shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """`spec_of` on its mesh."""
    return NamedSharding(mesh, spec_of(name, shape, mesh))


def norm_sharding_of(name: str, shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """Of a leaf's kept norms, one number a matrix with the matrix dims left as 1: experts' norms lie with their experts."""
    per_expert = row_of(name).cut == "expert" and len(shape) >= 3 and shape[-3] % mesh.shape[EXPERT_AXIS] == 0
    return NamedSharding(mesh, _cut_at(len(shape) - 3, EXPERT_AXIS) if per_expert else PartitionSpec())


def _cut_at(dim: int, axes: str | tuple[str, ...]) -> PartitionSpec:
    return PartitionSpec(*(None,) * dim, axes)


def inside_layer(name: str) -> str:
    """The part of a leaf's path that is the same in every layer: what tables of parameters are written over."""
    parts = name.split("/")
    if parts[0] in ("layers", "dense_layers"):
        parts = parts[1:]
        if parts[0].isdigit():
            parts = parts[1:]
    return "/".join(parts)
