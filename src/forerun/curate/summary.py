"""A store in a few numbers: per domain, per cell, per document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow.compute as pc

from forerun.curate.remove import available_tokens
from forerun.loader.audit import cell_table, find_document, tokens_of
from forerun.loader.manifest import NUM_QUALITY_BUCKETS, Cell, Manifest
from forerun.loader.store import TokenStore


def store_summary(manifest: Manifest) -> dict[str, Any]:
    """Domains with their quality shares and enrichment, cells, sources, steps."""
    tokens: dict[str, np.ndarray] = {}
    for cell in manifest.cells:
        tokens.setdefault(cell.domain, np.zeros(NUM_QUALITY_BUCKETS))[cell.quality or 0] += available_tokens(manifest, cell)
    whole = sum(tokens.values(), np.zeros(NUM_QUALITY_BUCKETS))
    base = whole / max(whole.sum(), 1)
    domains = []
    for domain in sorted(tokens, key=lambda name: -tokens[name].sum()):
        share = tokens[domain] / max(tokens[domain].sum(), 1)
        domains.append(
            {
                "domain": domain,
                "title": manifest.domain_titles.get(domain, domain),
                "num_tokens": int(tokens[domain].sum()),
                "quality": share.tolist(),
                "enrichment": [float(s / b) if b else 0.0 for s, b in zip(share, base)],
            }
        )
    return {
        "name": manifest.name,
        "digest": manifest.digest,
        "num_tokens": int(whole.sum()),
        "num_removed": len(manifest.removed),
        "domains": domains,
        "cells": [
            {"name": cell.name, "num_documents": cell.num_documents, "num_tokens": available_tokens(manifest, cell)}
            for cell in manifest.cells
        ],
        "sources": [asdict(source) for source in manifest.sources],
        "steps": [asdict(step) for step in manifest.steps],
    }


def cell_summary(store: TokenStore, cell: Cell) -> dict[str, Any]:
    """Which sources make up a cell, by tokens."""
    table = cell_table(store, cell)
    grouped = table.group_by("source").aggregate([("num_tokens", "sum"), ("id", "count")])
    total = max(pc.sum(table["num_tokens"]).as_py() or 0, 1)
    sources = [
        {
            "source": row["source"],
            "num_documents": row["id_count"],
            "num_tokens": row["num_tokens_sum"],
            "share": row["num_tokens_sum"] / total,
        }
        for row in grouped.to_pylist()
    ]
    return {"cell": cell.name, "sources": sorted(sources, key=lambda row: -row["num_tokens"])}


def document_history(store: TokenStore, id: str) -> dict[str, Any]:
    """Where a document came from, what was decided about it, where it lies, and its text."""
    from tokenizers import Tokenizer

    found = find_document(store, id)
    source = next(source for source in store.manifest.sources if source.name == found.row["source"])
    removal = next((removal for removal in store.manifest.removed if removal.id == found.row["id"]), None)
    tokenizer = Tokenizer.from_file(str(store.tokenizer_path))
    return {
        **found.row,
        "licence": source.licence,
        "revision": source.revision,
        "cell": found.cell.name,
        "split": found.cell.split,
        "shard": found.cell.shards[found.shard].path,
        "steps_passed": ", ".join(step.name for step in store.manifest.steps),
        "removed": removal.reason if removal else "no",
        "text": tokenizer.decode(tokens_of(store, found).tolist(), skip_special_tokens=False),
    }
