"""Why documents were dropped, from the folders of the steps that dropped them: pairs, contamination, and reviews by people.

A step's folder is `work/<step>/<first 16 digits of its identity>/`, so a manifest finds exactly the decisions it was made by.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.base.files import storage_errors
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import Book
from forerun.registry.calibration import wilson

IDENTITY_DIGITS = 16
NUM_BINS = 20
REVIEWS = "reviews.jsonl"
REMOVED, KEPT = "removed", "kept"

Judgement = Literal["same", "different", "unsure"]
JUDGEMENTS: tuple[Judgement, ...] = ("same", "different", "unsure")
"""Is the content of the first text held by the second? `same`: dropping the first loses nothing."""


def step_folder(lab: Lab, book: Book, name: str) -> Path | None:
    """Folder of one step of this data set; None when the step did not run or its folder is gone."""
    for step in book.manifest.get("steps", []):
        if step["name"] == name:
            path = lab.root / "work" / name / str(step["identity"])[:IDENTITY_DIGITS]
            return path if path.is_dir() else None
    return None


def evidence(lab: Lab, book: Book, step: str, file: str) -> pa.Table | None:
    """A table of a step's folder; None when it is not there. Raises: DataError when it cannot be read."""
    folder = step_folder(lab, book, step)
    if folder is None or not (folder / file).exists():
        return None
    path = folder / file
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="delete the step's folder and run `forerun curate` again") from None


@dataclass(frozen=True)
class Pair:
    """A document and the kept one that holds its content, or nearly does."""

    id: str
    kind: str
    """`removed`, or `kept` for a near miss."""
    row: Mapping[str, Any]

    @property
    def key(self) -> str:
        """In addresses: a document is in one removed and one kept pair at most."""
        return f"{self.kind}-{self.id}"


def pairs(lab: Lab, book: Book) -> list[Pair]:
    """The sampled pairs with their texts, removed ones first, then near misses; by containment, least sure first."""
    folder = step_folder(lab, book, "fuzzy_dedup")
    path = folder / "pairs.parquet" if folder else None
    return list(_pairs(path, path.stat().st_mtime_ns)) if path is not None and path.exists() else []


@lru_cache(maxsize=4)
def _pairs(path: Path, changed: int) -> tuple[Pair, ...]:
    found = [Pair(str(row["id"]), str(row["kind"]), row) for row in _read(path, changed).to_pylist()]

    def order(pair: Pair) -> tuple[bool, float, str]:
        sure = pair.row["containment"]
        return pair.kind != REMOVED, sure if pair.kind == REMOVED else -sure, pair.id

    return tuple(sorted(found, key=order))


@dataclass(frozen=True)
class Histogram:
    """How many decisions fall in each of equal bins of a score from 0 to 1."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def histogram(scores: np.ndarray) -> Histogram:
    """Counts in `NUM_BINS` bins; a score of 1 is in the last."""
    counts, edges = np.histogram(np.clip(np.nan_to_num(scores), 0, 1), bins=NUM_BINS, range=(0, 1))
    return Histogram(tuple(float(edge) for edge in edges), tuple(int(count) for count in counts))


@dataclass(frozen=True)
class Rate:
    """A share measured on reviewed pairs, with its 95% interval."""

    num_reviewed: int
    num_wrong: int
    share: float
    low: float
    high: float


def review(lab: Lab, book: Book, pair: Pair, judgement: Judgement, reviewer: str) -> None:
    """Keep one person's judgement of a pair; a later one of the same person replaces it when rates are taken."""
    path = lab.atlas / book.digest / REVIEWS
    line = {"schema": 1, "kind": pair.kind, "id": pair.id, "judgement": judgement, "reviewer": reviewer, "time": round(time.time(), 3)}
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")


def reviews(lab: Lab, book: Book) -> dict[tuple[str, str], dict[str, str]]:
    """(kind, id) to reviewer to judgement. Lines that were cut off are left out."""
    path = lab.atlas / book.digest / REVIEWS
    found: dict[tuple[str, str], dict[str, str]] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
            if entry["judgement"] in JUDGEMENTS:
                found.setdefault((entry["kind"], entry["id"]), {})[str(entry["reviewer"])] = entry["judgement"]
        except (ValueError, KeyError, TypeError):
            continue
    return found


def rates(lab: Lab, book: Book) -> dict[str, Rate]:
    """`removed`: share of removals that lose content. `kept`: share of near misses that could have gone. Unsure ones do not count.

    Where reviewers differ the majority decides; a tie counts as unsure.
    """
    found: dict[str, Rate] = {}
    votes = {pair: _majority(said) for pair, said in reviews(lab, book).items()}
    for kind, wrong in ((REMOVED, "different"), (KEPT, "same")):
        decided = [vote for (of, _), vote in votes.items() if of == kind and vote != "unsure"]
        bad = sum(vote == wrong for vote in decided)
        if decided:
            low, high = wilson(bad, len(decided))
            found[kind] = Rate(len(decided), bad, bad / len(decided), low, high)
    return found


def _majority(said: Mapping[str, str]) -> str:
    counts = {judgement: list(said.values()).count(judgement) for judgement in ("same", "different")}
    if math.isclose(counts["same"], counts["different"]):
        return "unsure"
    return max(counts, key=lambda judgement: counts[judgement])
