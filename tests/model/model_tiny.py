"""Small configs and packed batches that several model tests share."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from forerun.model.config import ModelConfig
from forerun.model.params import init_params

TINY = ModelConfig(
    vocab_size=96,
    d_model=32,
    num_layers=4,
    num_heads=4,
    d_head=8,
    num_kv_heads=2,
    num_global_kv_heads=1,
    window=6,
    num_experts=6,
    top_k=2,
    d_expert=16,
    d_latent=16,
    d_shared=16,
    gated_norm_rank=8,
)
TWO_LAYERS = replace(TINY, num_layers=2)


class Batch(NamedTuple):
    """The arrays of `PackedBatch`."""

    tokens: np.ndarray
    targets: np.ndarray
    segment_ids: np.ndarray
    positions: np.ndarray
    loss_mask: np.ndarray


@functools.cache
def params_of(config: ModelConfig, layer_loop: str = "unrolled"):
    """Parameters at the start, made in one compiled call."""
    return jax.jit(functools.partial(init_params, config, layer_loop=layer_loop))(jax.random.key(0))


def pack(rows: list[list[list[int]]], seq_len: int) -> Batch:
    """Documents of each row back to back, padding behind; a document's last token has no target."""
    shape = (len(rows), seq_len)
    tokens, targets, segments, positions = (np.zeros(shape, np.int32) for _ in range(4))
    mask = np.zeros(shape, np.float32)
    for row, documents in enumerate(rows):
        at = 0
        for number, document in enumerate(documents, start=1):
            here = slice(at, at + len(document))
            tokens[row, here], segments[row, here], positions[row, here] = document, number, np.arange(len(document))
            targets[row, at : at + len(document) - 1] = document[1:]
            mask[row, at : at + len(document) - 1] = 1
            at += len(document)
    return Batch(tokens, targets, segments, positions, mask)


def random_batch(config: ModelConfig, *, seed: int = 0, num_rows: int = 2, seq_len: int = 24) -> Batch:
    """Two documents and some padding in every row."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        first = int(rng.integers(4, seq_len - 8))
        second = int(rng.integers(3, seq_len - first))
        rows.append([rng.integers(1, config.vocab_size, size).tolist() for size in (first, second)])
    return pack(rows, seq_len)
