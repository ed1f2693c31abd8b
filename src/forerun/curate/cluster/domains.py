"""From vectors to named domains in one call, with what was measured about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from forerun.base.errors import ConfigError
from forerun.curate.cluster.ask_names import Namer, NamerConfig
from forerun.curate.cluster.checks import adjusted_rand_index, intruder_test, word_judge
from forerun.curate.cluster.kmeans import Centroids, assign, train
from forerun.curate.cluster.merge import Domains, merge
from forerun.curate.cluster.names import DomainName, name_domains

if TYPE_CHECKING:
    from scipy import sparse

ROWS_PER_CENTROID = 512  # source: Marin trains 5,000 centroids on 2.56M rows
DOCUMENTS_PER_FINE = 24  # assumed: below about 20 documents a fine cluster follows noise
DOCUMENTS_PER_DOMAIN = 800  # assumed: a domain then still fills five quality buckets with 100 documents and more
LEAST_DOMAINS = 6  # assumed: fewer make no mixture worth searching
CONTRAST = (
    "contrast terms: log-odds with Dirichlet prior over documents holding a word; keywords and manual furniture left out; "
    "source named from 50% on"
)
CHECK_SAMPLE = 4000  # assumed: enough for an index good to 0.01, small enough to cost under a second


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """How many domains, and how they are found."""

    num_domains: int = 40
    """Most domains; small data gets fewer: one per 800 documents, but 6 where there are 6 fine clusters."""
    num_fine: int = 5000
    """Most fine clusters; small data gets one per 24 documents."""
    floor: float = 0.01
    """Least share of the documents a domain holds."""
    seed: int = 42
    """Of the k-means and the merge."""
    remove_mean: bool = True
    """Subtract the mean vector first: what all documents share says nothing about domains."""
    namer: NamerConfig | None = None
    """A chat endpoint that names the domains; none names them by contrast terms."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor * self.num_domains <= 1:
            raise ConfigError(
                f"cluster.floor x cluster.num_domains must be at most 1, got {self.floor * self.num_domains:g}", hint="lower one of them"
            )
        if self.num_domains < 1 or self.num_fine < self.num_domains:
            raise ConfigError(
                f"cluster.num_fine must be at least cluster.num_domains={self.num_domains} >= 1, got {self.num_fine}", hint="raise num_fine"
            )


@dataclass(frozen=True, eq=False)
class DomainModel:
    """Assigns vectors to domains; train once, copy the bytes, never retrain to reproduce."""

    mean: np.ndarray
    """float32 `[D]`, subtracted before the fine look-up."""
    fine: Centroids
    domains: Domains
    names: list[DomainName]
    report: dict[str, Any]

    def assign(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Domain index of each vector and the cosine to its fine centroid."""
        fine, cosine = assign(_centred(vectors, self.mean), self.fine.vectors)
        return self.domains.labels[fine], cosine

    def slugs(self, labels: np.ndarray) -> list[str]:
        """Folder names of domain indices."""
        return [self.names[label].slug for label in labels.tolist()]

    @property
    def titles(self) -> dict[str, str]:
        """Folder name to the name for people."""
        return {name.slug: name.title for name in self.names}


def find_domains(
    vectors: np.ndarray, texts: Iterable[str], sources: Sequence[str], config: ClusterConfig, *, profiles: sparse.csr_matrix | None = None
) -> DomainModel:
    """Cluster, merge, name and check.

    Args:
        vectors: unit rows of a sample in proportion to the sources.
        texts, sources: of the same documents.
        profiles: unit rows of word weights of the first documents, for the intruder test; without it the test is left out.
    """
    num_fine = int(np.clip(len(vectors) // DOCUMENTS_PER_FINE, 1, config.num_fine))
    num_domains = int(np.clip(len(vectors) // DOCUMENTS_PER_DOMAIN, min(LEAST_DOMAINS, num_fine), config.num_domains))
    mean = vectors.mean(axis=0) if config.remove_mean else np.zeros(vectors.shape[1], np.float32)
    rows = _centred(vectors, mean)
    sample = rows[_sample(len(rows), ROWS_PER_CENTROID * num_fine, config.seed)]
    fine = train(sample, min(num_fine, num_distinct(sample)), seed=config.seed)
    labels_fine, cosine = assign(rows, fine.vectors)
    weights = np.bincount(labels_fine, minlength=len(fine.vectors))
    domains = merge(fine.vectors, np.maximum(weights, 1e-9), num_domains, floor=config.floor, seed=config.seed)
    labels = domains.labels[labels_fine]
    names = name_domains(texts, sources, labels, int(labels.max()) + 1)
    report: dict[str, Any] = {
        "num_documents": len(vectors),
        "num_fine": len(fine.vectors),
        "num_domains": len(names),
        "mean_cosine_to_fine": float(cosine.mean()),
        "merge_loss": domains.loss,
        "least_fraction": float(domains.fractions.min()),
        "largest_fraction": float(domains.fractions.max()),
        "stability_adjusted_rand": _stability(rows, labels, num_fine, num_domains, config),
        "domains": [asdict(name) for name in names],
        "naming": CONTRAST,
    }
    if profiles is not None:
        report["intruder_test"] = intruder_test(labels[: len(profiles.indptr) - 1], word_judge(profiles)) | {
            "judge": "word overlap (TF-IDF)"
        }
    return DomainModel(mean.astype(np.float32), fine, domains, names, report)


def renamed(
    model: DomainModel, namer: NamerConfig, vectors: np.ndarray, text_at: Callable[[int], str], *, answers: Path, seed: int
) -> DomainModel:
    """The same domains, named by a model at an endpoint.

    Args:
        vectors, text_at: of the sample the domains were found in.
        answers: file that keeps what the model said.
    """
    labels, cosine = model.assign(vectors)
    names, test = Namer(namer, answers).named(model.names, text_at, labels, cosine, seed=seed)
    naming = f"by {namer.model} at an OpenAI-compatible endpoint, from excerpts and these: {model.report['naming']}"
    report = model.report | {"domains": [asdict(name) for name in names], "naming": naming, "names_test": test}
    return replace(model, names=names, report=report)


def num_distinct(rows: np.ndarray) -> int:
    """How many different rows there are: no more clusters than that can be filled."""
    return len({xxhash.xxh3_128_digest(row) for row in np.ascontiguousarray(rows)})


def _centred(vectors: np.ndarray, mean: np.ndarray) -> np.ndarray:
    moved = vectors - mean
    return (moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def _sample(total: int, wanted: int, seed: int) -> np.ndarray:
    if total <= wanted:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, wanted, replace=False))


def _stability(rows: np.ndarray, labels: np.ndarray, num_fine: int, num_domains: int, config: ClusterConfig) -> float:
    """Adjusted Rand index between these domains and those of another seed, on a sample."""
    others = rows[_sample(len(rows), 64 * num_fine, config.seed + 1)]
    other_fine = train(others, min(num_fine, num_distinct(others)), seed=config.seed + 1)
    sample = _sample(len(rows), CHECK_SAMPLE, config.seed)
    fine, _ = assign(rows[sample], other_fine.vectors)
    other = merge(other_fine.vectors, other_fine.weights, num_domains, floor=config.floor, seed=config.seed + 100)
    return adjusted_rand_index(labels[sample], other.labels[fine])
