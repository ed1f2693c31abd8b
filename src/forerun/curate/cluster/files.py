"""A trained domain model as one file: trained once, its bytes copied, never trained again to reproduce."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from forerun.curate.arrays import write_arrays
from forerun.curate.cluster.domains import DomainModel
from forerun.curate.cluster.kmeans import Centroids
from forerun.curate.cluster.merge import Domains
from forerun.curate.cluster.names import DomainName


def save_domains(model: DomainModel, path: Path) -> None:
    """Write the model whole or not at all."""
    facts = {
        "mean_cosine": model.fine.mean_cosine,
        "loss": model.domains.loss,
        "seed": model.domains.seed,
        "names": [asdict(name) for name in model.names],
        "report": model.report,
    }
    write_arrays(
        path,
        mean=model.mean,
        vectors=model.fine.vectors,
        weights=model.fine.weights,
        labels=model.domains.labels,
        fractions=model.domains.fractions,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
    )


def load_domains(path: Path) -> DomainModel:
    """Read what `save_domains` wrote."""
    with np.load(path) as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        return DomainModel(
            mean=arrays["mean"],
            fine=Centroids(arrays["vectors"], arrays["weights"], facts["mean_cosine"]),
            domains=Domains(arrays["labels"], facts["loss"], facts["seed"], arrays["fractions"]),
            names=[DomainName(**(name | {"terms": tuple(name["terms"])})) for name in facts["names"]],
            report=facts["report"],
        )
