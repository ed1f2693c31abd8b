"""Are the domains real: do other seeds find them, and can a judge that never saw the vectors tell an intruder?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy import sparse

NUM_COMPANIONS = 5  # assumed: as in word-intrusion tests (Chang et al. 2009): five that belong and one that does not


def adjusted_rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """Agreement of two labelings of the same documents: 1 when equal, 0 when independent. Source: Hubert and Arabie 1985."""
    table = np.zeros((int(first.max()) + 1, int(second.max()) + 1))
    np.add.at(table, (first, second), 1)
    pairs = (table * (table - 1) / 2).sum()
    rows, columns, total = table.sum(axis=1), table.sum(axis=0), len(first)
    in_rows, in_columns = (rows * (rows - 1) / 2).sum(), (columns * (columns - 1) / 2).sum()
    expected = in_rows * in_columns / max(total * (total - 1) / 2, 1)
    best = (in_rows + in_columns) / 2
    return 1.0 if best == expected else float((pairs - expected) / (best - expected))


Judge = Callable[[Sequence[int]], int]
"""Takes document indices, returns the position of the one that does not belong."""


def word_judge(profiles: sparse.csr_matrix) -> Judge:
    """A judge that sees only which words documents use: unit rows of word weights, not the vectors that made the domains."""

    def choose(documents: Sequence[int]) -> int:
        rows = profiles[list(documents)]
        return int((rows @ rows.T).toarray().sum(axis=1).argmin())

    return choose


def intruder_test(labels: np.ndarray, judge: Judge, *, num_trials: int = 300, seed: int = 0) -> dict[str, float]:
    """How often a judge finds the one document of another domain among five of one domain; chance is 1 in 6.

    Domains are drawn by their number of documents, so a catch-all domain cannot hide behind small clean ones.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    eligible = np.where(sizes >= NUM_COMPANIONS, sizes, 0).astype(float)
    if (eligible > 0).sum() < 2:
        return {"accuracy": 0.0, "chance": 1 / (NUM_COMPANIONS + 1), "num_trials": 0}
    members = [np.flatnonzero(labels == label) for label in range(len(sizes))]
    found = 0
    for _ in range(num_trials):
        home = int(rng.choice(len(sizes), p=eligible / eligible.sum()))
        outside = np.flatnonzero(labels != home)
        shown = np.append(rng.choice(members[home], NUM_COMPANIONS, replace=False), rng.choice(outside))
        order = rng.permutation(len(shown))
        found += int(order[judge(shown[order].tolist())] == NUM_COMPANIONS)
    return {"accuracy": found / num_trials, "chance": 1 / (NUM_COMPANIONS + 1), "num_trials": num_trials}
