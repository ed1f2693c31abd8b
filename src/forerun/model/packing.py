"""What documents packed into one sequence must not see of each other, computed once per batch and shared by all layers."""

# B sequences, S tokens per sequence, F rotated dims / 2, J taps - 1

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from forerun.model.config import ModelConfig


class PackedBatch(Protocol):
    """Sequences of documents back to back; any object with these arrays, `loader.batches.Batch` among them."""

    @property
    def tokens(self) -> Int[Array, "B S"]: ...

    @property
    def targets(self) -> Int[Array, "B S"]:
        """The token after each one, within its document."""
        ...

    @property
    def segment_ids(self) -> Int[Array, "B S"]:
        """Which document of the sequence a token belongs to; 0 is padding."""
        ...

    @property
    def positions(self) -> Int[Array, "B S"]:
        """Place within the document."""
        ...

    @property
    def loss_mask(self) -> Float[Array, "B S"]:
        """1 where the target is predicted."""
        ...


class Packing(NamedTuple):
    """Masks and angles of one batch."""

    visible: Bool[Array, "B S S"]
    """query, key: same document, key not later."""
    visible_in_window: Bool[Array, "B S S"]
    """As `visible`, and within the local layers' window."""
    cos: Float[Array, "B S F"]
    sin: Float[Array, "B S F"]
    same_document: Float[Array, "J B S 1"]
    """For each tap j >= 1: whether the token j places earlier belongs to the same document."""
    valid: Bool[Array, "B S"]
    """Not padding."""


def packing_of(segment_ids: Int[Array, "B S"], positions: Int[Array, "B S"], config: ModelConfig) -> Packing:
    """Masks, rotation angles and convolution masks for these documents."""
    seq_len = segment_ids.shape[1]
    place = jnp.arange(seq_len)
    distance = place[:, None] - place[None, :]
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    visible = same & (distance >= 0)
    half = config.num_rotated_dims // 2
    frequency = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / max(half, 1))
    angle = positions[..., None].astype(jnp.float32) * frequency
    return Packing(
        visible=visible,
        visible_in_window=visible & (distance < config.window) if config.window else visible,
        cos=jnp.cos(angle),
        sin=jnp.sin(angle),
        same_document=_same_document(segment_ids, config.short_conv_taps),
        valid=segment_ids > 0,
    )


def _same_document(segment_ids: Int[Array, "B S"], num_taps: int) -> Float[Array, "J B S 1"]:
    padded = jnp.pad(segment_ids, ((0, 0), (max(num_taps - 1, 0), 0)), constant_values=-1)
    seq_len = segment_ids.shape[1]
    earlier = [padded[:, num_taps - 1 - tap : num_taps - 1 - tap + seq_len] == segment_ids for tap in range(1, num_taps)]
    masks = jnp.stack(earlier) if earlier else jnp.zeros((0, *segment_ids.shape), bool)
    return masks[..., None].astype(jnp.float32)


@jax.checkpoint
def short_conv(x: Float[Array, "B S C"], taps: Float[Array, "J+1 C"], same_document: Float[Array, "J B S 1"]) -> Float[Array, "B S C"]:
    """Depthwise causal convolution that stops at document boundaries: sum over j of taps[j] * x[t - j]. Keeps only x for the backward pass."""
    taps = taps.astype(x.dtype)
    out = x * taps[0]
    for tap in range(1, taps.shape[0]):
        shifted = jnp.pad(x, ((0, 0), (tap, 0), (0, 0)))[:, : x.shape[1]]
        out = out + shifted * same_document[tap - 1].astype(x.dtype) * taps[tap]
    return out
