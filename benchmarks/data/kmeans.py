"""Bar 9: 5,000 spherical centroids on 200,000 noisy directions, against faiss with six full iterations.

usage: python benchmarks/data/kmeans.py CORPUS.parquet [--bars faiss,vectors] [--rounds 3]

`faiss` clusters synthetic directions of 384 dimensions (CORPUS is not read); `vectors` clusters the corpus's own document vectors, a
tenth as many, where a plain product with all centroids is cheap and no ratio is asked for but an objective not worse.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from side_by_side import Bar, facts_of, main, timed

PEERS = {"faiss": ["faiss-cpu==1.15.1", "numpy"], "faiss_vectors": ["faiss-cpu==1.15.1", "numpy"]}
NUM_ROWS, NUM_CENTROIDS, NUM_ITERATIONS = 200_000, 5000, 6
D_SYNTHETIC, NUM_CENTRES = 384, 6000
ROWS_PER_CENTROID = 24  # of the corpus's vectors: what small data gets


def directions() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((NUM_CENTRES, D_SYNTHETIC), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    noise = rng.standard_normal((NUM_ROWS, D_SYNTHETIC), np.float32) * np.float32(0.7 / np.sqrt(D_SYNTHETIC))
    rows = centres[rng.integers(0, NUM_CENTRES, NUM_ROWS)] + noise
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def vectors(out: Path) -> np.ndarray:
    rows = np.load(out / "vectors.npy")
    rows = rows - rows.mean(axis=0)
    return np.ascontiguousarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)


def prepare(options, out: Path) -> None:
    import pyarrow.parquet as pq

    from forerun.curate.embed.static import wordllama_encoder

    if not (out / "vectors.npy").exists():
        np.save(out / "vectors.npy", wordllama_encoder().encode(pq.read_table(options.corpus, columns=["text"])["text"]))


def objective(rows: np.ndarray, centroids: np.ndarray) -> float:
    """Mean cosine of the first rows to their true nearest centroid."""
    centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12)
    return float(
        np.mean([(rows[start : start + 2000] @ centroids.T).max(axis=1).mean() for start in range(0, min(len(rows), 20_000), 2000)])
    )


def _ours(rows: np.ndarray, num: int) -> dict:
    from forerun.curate.cluster.kmeans import train

    facts: dict = {}
    train(rows[:2000], 600, seed=0, num_passes=1)  # compiles
    with timed(facts):
        found = train(rows, num, seed=1)
    return facts | {"mean_cosine": objective(rows, found.vectors)}


def _faiss(rows: np.ndarray, num: int) -> dict:
    import faiss

    facts: dict = {}
    with timed(facts):
        kmeans = faiss.Kmeans(
            rows.shape[1], num, niter=NUM_ITERATIONS, seed=1, spherical=True, min_points_per_centroid=1, max_points_per_centroid=10**9
        )
        kmeans.train(rows)
    assert kmeans.centroids is not None
    return facts | {"mean_cosine": objective(rows, kmeans.centroids)}


def ours(options, out: Path) -> dict:
    return _ours(directions(), NUM_CENTROIDS)


def faiss(options, out: Path) -> dict:
    return _faiss(directions(), NUM_CENTROIDS)


def ours_vectors(options, out: Path) -> dict:
    rows = vectors(out)
    return _ours(rows, len(rows) // ROWS_PER_CENTROID)


def faiss_vectors(options, out: Path) -> dict:
    rows = vectors(out)
    return _faiss(rows, len(rows) // ROWS_PER_CENTROID)


def not_worse(mine: str, other: str):
    def holds(out: Path) -> tuple[bool, str]:
        one, two = (facts_of(out, side)["mean_cosine"] for side in (mine, other))
        return one >= two, f"mean cosine to the nearest centroid {one:.4f} against {two:.4f}"

    return holds


BARS = [
    Bar(name="faiss", ours="ours", peer="faiss", least=3, holds=not_worse("ours", "faiss")),
    Bar(name="vectors", ours="ours_vectors", peer="faiss_vectors", least=1, holds=not_worse("ours_vectors", "faiss_vectors")),
]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, faiss, ours_vectors, faiss_vectors)}, PEERS, prepare=prepare))
