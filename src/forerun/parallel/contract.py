"""What every expert transport takes and gives; `model/moe.py` knows this and no transport."""

# T tokens, d working width, K top_k, E experts, f feed-forward width of an expert

from __future__ import annotations

from typing import NamedTuple, Protocol

from jaxtyping import Array, Bool, Float, Int


class ExpertParams(NamedTuple):
    """The SwiGLU matrices of the routed experts of one layer: of all of them, or, inside a transport on a mesh, of one shard."""

    w_gate: Float[Array, "E d f"]
    w_up: Float[Array, "E d f"]
    w_down: Float[Array, "E f d"]


class Traffic(NamedTuple):
    """What happened to the assignments of one layer, over valid tokens of all devices; no gradient flows through it."""

    load: Int[Array, "E"]
    """Assignments per expert, before drops."""
    dropped: Int[Array, "E"]
    """Assignments per expert that no slot was left for."""
    dropped_of_row: Int[Array, "T"]
    """How many of each token's assignments were dropped."""
    rows_sent: Float[Array, ""]
    """Rows that left a device on the way to experts, padding of fixed buffers included; as many come back."""
    rows_executed: Float[Array, ""]
    """Expert rows computed, filled or not."""


class RunExperts(Protocol):
    """A transport with its settings bound: rows in, weighted sum of each row's experts out. A row's experts are all different."""

    def __call__(
        self,
        rows: Float[Array, "T d"],
        expert_index: Int[Array, "T K"],
        weight: Float[Array, "T K"],
        valid: Bool[Array, "T"],
        experts: ExpertParams,
    ) -> tuple[Float[Array, "T d"], Traffic]: ...
