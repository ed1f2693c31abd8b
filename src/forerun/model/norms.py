"""RMSNorm and the low-rank gate that follows it."""

# ... leading dims, D width, R rank of the gate

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from forerun.kernels.grouped_matmul import silu

Params = dict[str, Array]


def rms_norm(x: Float[Array, "... D"], gain: Float[Array, "D"] | None, eps: float) -> Float[Array, "... D"]:
    """Scale rows to unit mean square, statistics in float32, then by the gain if there is one; dtype of x."""
    return _rms_norm(x, gain, eps)


def gated_norm(x: Float[Array, "... D"], params: Params, eps: float) -> Float[Array, "... D"]:
    """RMSNorm, then times sigmoid(silu(u W_down) W_up) of its own result u, when the parameters hold a gate."""
    normed = rms_norm(x, params["gain"], eps)
    if "w_down" not in params:
        return normed
    inner = silu(normed @ params["w_down"].astype(x.dtype))
    return _gated(normed, inner @ params["w_up"].astype(x.dtype))


@functools.partial(jax.checkpoint, static_argnums=(2,))
def _rms_norm(x, gain, eps):
    wide = x.astype(jnp.float32)
    normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + eps)
    return (normed if gain is None else normed * gain).astype(x.dtype)


@jax.checkpoint
def _gated(normed, gate):
    return normed * jax.nn.sigmoid(gate)
