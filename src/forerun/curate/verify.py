"""A store checked to the last byte against its manifest: digests, lengths, document boundaries, ids, tokenizer, provenance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from forerun.base.config import file_digest
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.curate.tokenizer_file import lost_markers
from forerun.loader.manifest import Cell, Manifest, Shard, load_manifest


@dataclass(frozen=True)
class Problem:
    """One thing that is not as the manifest says."""

    path: str
    what: str


@dataclass(frozen=True)
class Verification:
    """What was checked and what is wrong."""

    digest: str
    num_files: int
    num_documents: int
    num_tokens: int
    problems: tuple[Problem, ...]


def verify_store(lab: Lab, digest: str, *, quiet: bool = False) -> Verification:
    """Read every file of a store and compare it with the manifest. Problems are returned, all of them, not raised."""
    manifest = load_manifest(lab, digest)
    folder = lab.store / manifest.store_digest
    cells = (*manifest.cells, *manifest.held_out)
    problems: list[Problem] = []
    seen: set[str] = set()
    per_source: dict[str, tuple[int, int]] = {}
    first_ids: list[np.ndarray] = []
    problems += _tokenizer(folder, manifest)
    num_shards = sum(len(cell.shards) for cell in cells)
    with Progress("verify", num_shards, "shards", quiet=quiet) as progress:
        for cell in cells:
            for shard in cell.shards:
                problems += _shard(folder, cell, shard, manifest, seen, per_source, first_ids)
                progress.advance(1, note=shard.path)
            problems += _sums(cell)
    for source in manifest.sources:
        documents, tokens = per_source.get(source.name, (0, 0))
        if (documents, tokens) != (source.num_documents, source.num_tokens):
            problems.append(
                Problem(source.name, f"the store holds {documents} documents and {tokens} tokens of it, the manifest says otherwise")
            )
    problems += [Problem(removal.id, "is marked as removed but not in the store") for removal in manifest.removed if removal.id not in seen]
    problems += _lost_markers(folder, first_ids)
    problems += _strangers(folder, cells)
    return Verification(
        digest=manifest.digest,
        num_files=2 * num_shards + 1,
        num_documents=sum(cell.num_documents for cell in cells),
        num_tokens=sum(cell.num_tokens for cell in cells),
        problems=tuple(problems),
    )


def _tokenizer(folder: Path, manifest: Manifest) -> Iterator[Problem]:
    path = folder / "tokenizer.json"
    if not path.exists():
        yield Problem("tokenizer.json", "is missing")
    elif file_digest(path) != manifest.tokenizer_digest:
        yield Problem("tokenizer.json", "differs from its digest")


def _shard(
    folder: Path,
    cell: Cell,
    shard: Shard,
    manifest: Manifest,
    seen: set[str],
    per_source: dict[str, tuple[int, int]],
    first_ids: list[np.ndarray],
) -> Iterator[Problem]:
    for path, digest in ((shard.path, shard.digest), (shard.docs_path, shard.docs_digest)):
        if not (folder / path).exists():
            yield Problem(path, "is missing")
            return
        if file_digest(folder / path) != digest:
            yield Problem(path, "differs from its digest")
            return
    ids = np.fromfile(folder / shard.path, np.dtype(manifest.dtype).newbyteorder("<"))
    table = pq.read_table(folder / shard.docs_path)
    offsets, lengths = np.asarray(table["token_offset"]), np.asarray(table["num_tokens"])
    if len(ids) != shard.num_tokens or table.num_rows != shard.num_documents:
        yield Problem(shard.path, f"holds {len(ids)} tokens and {table.num_rows} documents, the manifest says otherwise")
    elif not np.array_equal(offsets, np.cumsum(lengths) - lengths) or lengths.sum() != len(ids):
        yield Problem(shard.docs_path, "offsets and lengths of the documents do not cover the tokens")
    elif not np.array_equal(np.flatnonzero(ids == manifest.end_of_document), offsets + lengths - 1):
        yield Problem(shard.path, "end-of-document tokens are not where the documents end")
    elif len(ids) and int(ids.max()) >= manifest.vocab_size:
        yield Problem(shard.path, f"holds id {int(ids.max())}, the vocabulary ends at {manifest.vocab_size}")
    filled = offsets[(lengths > 1) & (offsets < len(ids))]
    first_ids.append(ids[filled])
    names = table["id"].to_pylist()
    repeated = seen.intersection(names)
    if repeated or len(set(names)) != len(names):
        yield Problem(shard.docs_path, f"documents occur twice, such as {next(iter(repeated), names[0])}")
    seen.update(names)
    if set(table["domain"].to_pylist()) - {cell.domain}:
        yield Problem(shard.docs_path, "holds documents of another domain")
    for source, tokens in zip(table["source"].to_pylist(), lengths.tolist()):
        documents, total = per_source.get(source, (0, 0))
        per_source[source] = documents + 1, total + tokens


def _lost_markers(folder: Path, first_ids: list[np.ndarray]) -> Iterator[Problem]:
    """Special tokens that only some documents begin with."""
    path = folder / "tokenizer.json"
    if path.exists() and first_ids:
        for name, share in lost_markers(np.concatenate(first_ids), path.read_text(encoding="utf-8")).items():
            yield Problem("tokens", f"{share:.1%} of the documents begin with {name}: all must, or none")


def _sums(cell: Cell) -> Iterator[Problem]:
    documents, tokens = sum(shard.num_documents for shard in cell.shards), sum(shard.num_tokens for shard in cell.shards)
    if (documents, tokens) != (cell.num_documents, cell.num_tokens):
        yield Problem(cell.name, "its shards do not add up to its counts")


def _strangers(folder: Path, cells: tuple[Cell, ...]) -> Iterator[Problem]:
    """Files nobody accounts for: the rest of a broken copy, or tampering."""
    known = {"tokenizer.json"} | {path for cell in cells for shard in cell.shards for path in (shard.path, shard.docs_path)}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in known:
            yield Problem(name, "is not in the manifest")
