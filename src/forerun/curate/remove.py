"""Taking one document out of a store that is already built: a tombstone in an amended manifest, the shards untouched.

The loader never shows a removed document to a model. Runs on the old manifest can still be replayed and explained; whoever
must also destroy the bytes deletes the old store and builds again.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.loader.audit import find_document
from forerun.loader.manifest import Cell, Manifest, Removal, load_manifest
from forerun.loader.store import open_store


def remove_document(lab: Lab, digest: str, id: str, reason: str) -> Manifest:
    """Write a manifest without the document and return it; the order of everything else does not change.

    Raises: DataError without a reason, or when the document is absent or was removed before.
    """
    if not reason.strip():
        raise DataError("a removal needs a reason", hint="--reason 'request of the author, 2026-11-30'")
    store = open_store(lab, digest)
    found = find_document(store, id)
    document = found.row["id"]
    if any(removal.id == document for removal in store.manifest.removed):
        raise DataError(f"document {document} was removed before", hint="`forerun data explain` shows the reason")
    removal = Removal(
        id=document,
        reason=reason.strip(),
        cell=found.cell.name,
        shard=found.shard,
        token_offset=found.row["token_offset"],
        num_tokens=found.row["num_tokens"],
    )
    amended = replace(store.manifest, removed=(*store.manifest.removed, removal), amends=store.manifest.store_digest)
    write_json(lab.manifests / f"{amended.digest}.json", amended)
    return amended


def returned(lab: Lab, manifest: Manifest) -> tuple[str, ...]:
    """Documents that were removed from some store of this lab and that this manifest reads: building again brings them back."""
    gone = {removal.id for path in lab.manifests.glob("*.json") for removal in load_manifest(lab, path.stem).removed}
    gone -= {removal.id for removal in manifest.removed}
    if not gone:
        return ()
    wanted, folder = pc.field("id").isin(sorted(gone)), lab.store / manifest.store_digest
    shards = (shard for cell in (*manifest.cells, *manifest.held_out) for shard in cell.shards)
    found = (pq.read_table(folder / shard.docs_path, columns=["id"], filters=wanted)["id"].to_pylist() for shard in shards)
    return tuple(sorted(id for ids in found for id in ids))


def available_tokens(manifest: Manifest, cell: Cell) -> int:
    """Tokens of a cell that may still be read."""
    return cell.num_tokens - sum(removal.num_tokens for removal in manifest.removed if removal.cell == cell.name)
