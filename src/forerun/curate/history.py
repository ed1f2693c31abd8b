"""One document's whole history: where it came from, every score and decision, its place, and the training steps that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import load_json
from forerun.base.errors import DataError, PlatformError
from forerun.base.lab import Lab
from forerun.curate.summary import document_history
from forerun.dashboard.atlas.book import Book, book_of
from forerun.dashboard.atlas.decisions import evidence, step_folder
from forerun.loader.audit import find_document
from forerun.loader.batches import Batches
from forerun.loader.store import TokenStore, open_store
from forerun.train.config import RunConfig

SHOWN_STEPS = 20
"""Steps listed of each run; all are counted."""


def explain(lab: Lab, manifest: str, document: str) -> dict[str, Any]:
    """What became of a document, in the store or dropped before it.

    Raises: DataError when no step of this data set ever saw an id with this beginning, or several documents have it.
    """
    store = open_store(lab, manifest)
    book = book_of(lab, store.manifest.digest)
    dropped = list(_dropped(lab, book, document))
    try:
        history = document_history(store, document)
    except DataError:
        if len({entry["id"] for entry in dropped}) != 1:
            raise
        return {"id": dropped[0]["id"], "in_store": False, "decisions": dropped, **_text_of(lab, book, dropped[0]["id"])}
    same = [entry for entry in dropped if entry["id"] == history["id"]]
    holds = [entry["id"] for entry in _rows(evidence(lab, book, "fuzzy_dedup", "decisions.parquet"), "kept_id", history["id"])]
    readings = [] if history["split"] != "train" or history["removed"] != "no" else list(_readings(lab, store, history["id"]))
    text = history.pop("text")
    return history | {"in_store": True, "decisions": same, "holds": holds, "read_by": readings, "text": text}


def _dropped(lab: Lab, book: Book, document: str) -> Iterator[dict[str, Any]]:
    """Every step's decision against documents whose id begins so, with what explains it."""
    for step in book.manifest.get("steps", []):
        folder = step_folder(lab, book, step["name"])
        for path in sorted(folder.glob("part-*.parquet")) if folder else []:
            if {"id", "reason"} <= set(pq.read_schema(path).names):
                table = pq.read_table(path, columns=["id", "reason"], filters=[("id", ">=", document), ("id", "<", document + "~")])
                for row in table.to_pylist():
                    if row["reason"] is not None:
                        yield {"step": step["name"], **row, **_because(lab, book, step["name"], row["id"])}
    parts = {
        entry
        for step in ("fuzzy_dedup", "decontaminate")
        if (folder := step_folder(lab, book, step))
        for entry in folder.glob("part-*.parquet")
    }
    if not parts:
        for step, file in (("fuzzy_dedup", "decisions.parquet"), ("decontaminate", "contaminated.parquet")):
            table = evidence(lab, book, step, file)
            for row in table.to_pylist() if table is not None else []:
                if row["id"].startswith(document):
                    yield {"step": step, **row}


def _because(lab: Lab, book: Book, step: str, id: str) -> dict[str, Any]:
    files = {"fuzzy_dedup": "decisions.parquet", "decontaminate": "contaminated.parquet"}
    rows = _rows(evidence(lab, book, step, files[step]), "id", id) if step in files else []
    return {name: value for name, value in rows[0].items() if name != "id"} if rows else {}


def _rows(table: pa.Table | None, column: str, value: str) -> list[dict[str, Any]]:
    return [] if table is None else table.filter(pc.equal(table[column], value)).to_pylist()


def _text_of(lab: Lab, book: Book, id: str) -> dict[str, str]:
    """The text of a dropped document, where the sample of evidence has it."""
    for step, file in (("fuzzy_dedup", "pairs.parquet"), ("decontaminate", "hits.parquet")):
        for row in _rows(evidence(lab, book, step, file), "id", id):
            return {"text": row["text"]}
    return {}


def _readings(lab: Lab, store: TokenStore, id: str) -> Iterator[dict[str, Any]]:
    """Runs on this data and the steps at which they read the document."""
    found = find_document(store, id)
    start = store.cells[found.cell.name].shard_starts[found.shard] + found.row["token_offset"]
    for path in sorted(lab.runs.glob("*/config.json")):
        config = _config(path)
        if config is None or config.data.manifest not in (store.manifest.digest, store.manifest.amends):
            continue
        train = config.train
        batches = Batches(store, config.data, num_steps=train.num_steps, batch_size=train.batch_size, seq_len=train.seq_len)
        steps = batches.steps_reading(found.cell.name, int(start), found.row["num_tokens"])
        yield {"run": path.parent.name, "num_steps": len(steps), "steps": steps[:SHOWN_STEPS]}


def _config(path: Path) -> RunConfig | None:
    """A run's config; None for runs of foreign trainers and of other versions."""
    try:
        if "data" not in json.loads(path.read_bytes()):
            return None
        return load_json(path, RunConfig)
    except (PlatformError, ValueError, OSError):
        return None
