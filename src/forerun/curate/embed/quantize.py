"""Vectors as int8, one byte a dimension, with the error measured on every call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RANGE = 0.3  # source: Marin's Harrier embeddings end at 0.3 (#7998); unit vectors of 256 and more dimensions rarely exceed it
LEVELS = 127


@dataclass(frozen=True)
class QuantizationError:
    """What int8 cost, over some vectors."""

    num_vectors: int = 0
    sum_cosine: float = 0.0
    min_cosine: float = 1.0
    num_widened: int = 0
    """Vectors with an entry beyond `RANGE`, coded in wider steps: few dimensions, or one that outweighs the others."""

    def __add__(self, other: QuantizationError) -> QuantizationError:
        """Over both sets."""
        return QuantizationError(
            self.num_vectors + other.num_vectors,
            self.sum_cosine + other.sum_cosine,
            min(self.min_cosine, other.min_cosine),
            self.num_widened + other.num_widened,
        )

    def report(self) -> dict[str, float]:
        """Rounded, so that sums taken in another order read the same."""
        count = max(self.num_vectors, 1)
        return {
            "mean_cosine": round(self.sum_cosine / count, 6) if self.num_vectors else 1.0,
            "min_cosine": round(self.min_cosine, 5),
            "widened_fraction": round(self.num_widened / count, 6),
        }


def to_int8(vectors: np.ndarray) -> tuple[np.ndarray, QuantizationError]:
    """Unit vectors as int8, and how far that is from the originals.

    Steps are of `RANGE / 127`, or of the vector's largest entry / 127 where that is more: a clipped entry would turn the vector.
    """
    largest = np.abs(vectors).max(axis=1, initial=0)
    limit = np.maximum(largest, RANGE).astype(np.float32)
    codes = np.rint(vectors * (LEVELS / limit)[:, None]).astype(np.int8)
    cosine = (from_int8(codes) * vectors).sum(axis=1)[largest > 0].astype(np.float64)
    error = QuantizationError(
        num_vectors=len(cosine),
        sum_cosine=float(cosine.sum()),
        min_cosine=float(cosine.min(initial=1.0)),
        num_widened=int((largest > RANGE).sum()),
    )
    return codes, error


def from_int8(codes: np.ndarray) -> np.ndarray:
    """Unit vectors again, float32; the scale cancels."""
    vectors = codes.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
