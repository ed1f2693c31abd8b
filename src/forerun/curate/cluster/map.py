"""Fine clusters as points on a map, kept beside the store for the atlas: place, weight, domain, nearest other domain, vector.

Places are the two leading principal axes of the fine centroids, each counted by its documents. Two axes hold only part of what
separates clusters; the share they hold is written with them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.files import replacing
from forerun.base.lab import Lab
from forerun.curate.cluster.domains import DomainModel

FILE = "fine.parquet"


def map_of(model: DomainModel) -> pa.Table:
    """One row a fine cluster: `fine, domain, num_sampled, x, y, nearest_domain, nearest_cosine, vector`.

    The vector is the unit centroid after the mean `mean` (schema metadata, float32 bytes) was subtracted.
    """
    vectors, weights = np.asarray(model.fine.vectors, np.float64), np.asarray(model.fine.weights, np.float64)
    labels = np.asarray(model.domains.labels)
    slugs = np.array([name.slug for name in model.names], object)
    place, explained = _plane(vectors, weights / max(weights.sum(), 1e-300))
    centre = np.stack([(vectors * weights[:, None])[labels == index].sum(axis=0) for index in range(len(slugs))])
    centre /= np.maximum(np.linalg.norm(centre, axis=1, keepdims=True), 1e-12)
    cosine = vectors @ centre.T
    cosine[np.arange(len(labels)), labels] = -np.inf
    nearest = cosine.argmax(axis=1)
    alone = len(slugs) < 2
    columns = {
        "fine": pa.array(np.arange(len(labels)), pa.int32()),
        "domain": pa.array(slugs[labels], pa.string()),
        "num_sampled": pa.array(weights.astype(np.int64)),
        "x": pa.array(place[:, 0], pa.float32()),
        "y": pa.array(place[:, 1], pa.float32()),
        "nearest_domain": pa.array([None] * len(labels) if alone else slugs[nearest], pa.string()),
        "nearest_cosine": pa.array([None] * len(labels) if alone else cosine.max(axis=1), pa.float32()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float32).ravel()), vectors.shape[1]),
    }
    mean = np.asarray(model.mean, "<f4").tobytes()
    return pa.table(columns).replace_schema_metadata({b"mean": mean, b"explained": f"{explained:.4f}".encode()})


def keep_map(lab: Lab, digest: str, model: DomainModel) -> None:
    """Write the map of a store's domains where the atlas looks for it."""
    with replacing(lab.atlas / digest / FILE) as beside:
        pq.write_table(map_of(model), beside, compression="zstd")


def _plane(vectors: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, float]:
    """Places `[F, 2]` and the share of the weighted variance they hold; signs are fixed, so the map does not flip between builds."""
    moved = vectors - share @ vectors
    _, sizes, axes = np.linalg.svd(moved * np.sqrt(share)[:, None], full_matrices=False)
    axes = axes[:2] if len(axes) >= 2 else np.vstack([axes, np.zeros((2 - len(axes), vectors.shape[1]))])
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)] + 1e-300)[:, None]
    power = sizes**2
    return moved @ axes.T, float(power[:2].sum() / max(power.sum(), 1e-300))
