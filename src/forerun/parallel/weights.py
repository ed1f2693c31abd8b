"""What all transports do the same way around the move: combine weights of survivors, and the account of what happened."""

# T tokens, K top_k

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.parallel.contract import Traffic
from forerun.parallel.decision import Admission
from forerun.parallel.shards import Axes, total


def renormalized(weight: Float[Array, "T K"], kept: Bool[Array, "T K"]) -> Float[Array, "T K"]:
    """Scale a token's surviving weights to the sum they had before drops; tokens that lost everything stay lost."""
    surviving = (weight * kept).sum(-1, keepdims=True)
    return weight * jnp.where(surviving > 0, weight.sum(-1, keepdims=True) / jnp.where(surviving > 0, surviving, 1), 0)


def traffic_of(
    admission: Admission, valid: Bool[Array, "T"], axes: Axes, *, rows_sent: Int[Array, ""] | int, rows_executed: Int[Array, ""] | int
) -> Traffic:
    """Counts over all devices from each device's own; `dropped_of_row` stays with the rows."""
    lost = valid[:, None] & ~admission.kept
    dropped = admission.load - admission.admitted[admission.own]
    rows: Any = (jnp.float32(rows_sent), jnp.float32(rows_executed))  # sums over devices may pass 2^31
    sums = total((admission.load, dropped, *rows), axes)
    load, lost_by_expert, sent, executed = jax.lax.stop_gradient(sums)
    return Traffic(load, lost_by_expert, lost.sum(1, dtype=jnp.int32), sent, executed)
