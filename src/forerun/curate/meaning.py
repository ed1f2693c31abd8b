"""Search by meaning: a topic encoded as the documents were, and the fine clusters nearest to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.errors import ConfigError, DataError
from forerun.base.lab import Lab
from forerun.curate.embed.encoders import EmbedConfig, open_encoder
from forerun.dashboard.atlas.book import NUM_QUALITIES, Book
from forerun.dashboard.atlas.domain_page import FINE_FILE

NEAR_SHARE = 0.05  # assumed: the nearest twentieth of the fine clusters, by documents, is what a topic is about
WITHOUT_MODEL = ("wordllama",)
"""Encoders that need nothing but their name; the others' folders and addresses are not in the manifest."""


def search_by_meaning(lab: Lab, book: Book, topic: str) -> dict[str, Any]:
    """Domains nearest to a topic: best cosine of a fine cluster, and the share of the domain in the nearest clusters.

    Raises: DataError when the data set kept no map of fine clusters; ConfigError when its encoder cannot be had by name.
    """
    path = lab.atlas / book.digest / FINE_FILE
    if not book.digest or not path.exists():
        raise DataError(f"{book.name} has no map of fine clusters", hint="search by words, or curate it again")
    name = str(book.reports.get("embed", {}).get("encoder", ""))
    if name not in WITHOUT_MODEL:
        raise ConfigError(
            f"{book.name} was embedded with {name or 'an unnamed encoder'}, which cannot be opened by name", hint="search by words"
        )
    fine = pq.read_table(path)
    mean = np.frombuffer((fine.schema.metadata or {})[b"mean"], "<f4")
    query = open_encoder(EmbedConfig(encoder="wordllama")).encode(pa.array([topic]))[0]
    if not query.any():
        raise DataError(f"the topic {topic!r} has no word the encoder knows", hint="use other words")
    moved = query - mean
    vectors = np.asarray(fine["vector"].combine_chunks().flatten(), np.float32).reshape(fine.num_rows, -1)
    cosine = vectors @ (moved / max(float(np.linalg.norm(moved)), 1e-12))
    weight = np.asarray(fine["num_sampled"], np.float64)
    order = np.argsort(-cosine, kind="stable")
    near = np.zeros(len(order), bool)
    near[order[np.cumsum(weight[order]) - weight[order] < NEAR_SHARE * weight.sum()]] = True
    domain = np.asarray(fine["domain"].to_pylist(), object)
    hits = []
    for slug in sorted(set(domain[near])):
        mine = domain == slug
        hits.append(
            {
                "domain": slug,
                "title": book.title(slug),
                "score": float(cosine[mine].max()),
                "share": float(weight[mine & near].sum() / max(weight[mine].sum(), 1e-300)),
                "q4_enrichment": book.enrichment(slug, NUM_QUALITIES - 1) if slug in book.grid else None,
            }
        )
    return {"topic": topic, "encoder": name, "domains": sorted(hits, key=lambda hit: -hit["score"])}
