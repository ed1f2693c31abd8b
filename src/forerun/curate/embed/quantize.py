"""Vectors as int8, one byte a dimension, with the error measured on every call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RANGE = 0.3  # source: Marin's Harrier embeddings clip at 0.3 (#7998); unit vectors of 256 and more dimensions rarely exceed it
LEVELS = 127


@dataclass(frozen=True)
class QuantizationError:
    """What int8 cost, over the vectors of one call."""

    mean_cosine: float
    min_cosine: float
    clipped_fraction: float


def to_int8(vectors: np.ndarray, *, limit: float = RANGE) -> tuple[np.ndarray, QuantizationError]:
    """Unit vectors as int8 in steps of `limit / 127`, and how far that is from the originals."""
    scaled = np.rint(vectors * (LEVELS / limit))
    codes = np.clip(scaled, -LEVELS, LEVELS).astype(np.int8)
    back = from_int8(codes)
    filled = np.linalg.norm(vectors, axis=1) > 0
    cosine = (back * vectors).sum(axis=1)[filled]
    if not len(cosine):
        return codes, QuantizationError(1.0, 1.0, 0.0)
    return codes, QuantizationError(float(cosine.mean()), float(cosine.min()), float(np.mean(np.abs(scaled) > LEVELS)))


def from_int8(codes: np.ndarray) -> np.ndarray:
    """Unit vectors again, float32; the scale cancels."""
    vectors = codes.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
