"""The near-duplicate set: a corpus and copies of its documents with 1, 2 and 4% of the words exchanged, in shuffled order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NOISE = (0.01, 0.02, 0.04)
COPIES = 1000  # of each noise level
LEAST_WORDS, MOST_WORDS = 60, 2000


def plant(corpus: Path, out: Path) -> None:
    """Write `text`, `source`, `of` (row of the original, or -1) and `noise`; once."""
    if out.exists():
        return
    rng = np.random.default_rng(0)
    table = pq.read_table(corpus, columns=["text", "source"])
    texts = table["text"].to_pylist()
    sizes = np.array([text.count(" ") for text in texts])
    chosen = rng.permutation(np.flatnonzero((sizes >= LEAST_WORDS) & (sizes <= MOST_WORDS)))[: COPIES * len(NOISE)]
    spare = " ".join(texts[row] for row in rng.permutation(len(texts))[:200]).split()
    made, of, noise = list(texts), [-1] * len(texts), [0.0] * len(texts)
    for number, row in enumerate(chosen.tolist()):
        share = NOISE[number % len(NOISE)]
        pieces = texts[row].split(" ")
        for place in np.flatnonzero(rng.random(len(pieces)) < share).tolist():
            pieces[place] = spare[rng.integers(len(spare))]
        made.append(" ".join(pieces))
        of.append(row)
        noise.append(share)
    sources = table["source"].to_pylist() + ["planted"] * len(chosen)
    order = rng.permutation(len(made))
    place = np.argsort(order)
    moved = [int(place[row]) if row >= 0 else -1 for row in of]
    shuffled = pa.table({"text": pa.array(made, pa.large_string()), "source": sources, "of": moved, "noise": noise}).take(pa.array(order))
    pq.write_table(shuffled, out, compression="zstd")


def recall(labels: np.ndarray, out: Path) -> list[float]:
    """Share of copies in the component of their original, by noise level."""
    table = pq.read_table(out / "planted.parquet", columns=["of", "noise"])
    of, noise = np.asarray(table["of"]), np.asarray(table["noise"])
    return [float(np.mean(labels[noise == share] == labels[of[noise == share]])) for share in NOISE]
