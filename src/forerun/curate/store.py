"""Tokenised documents to a store: per cell, sorted by id, in shards, each document's provenance beside its tokens.

Two passes, both over files, so a kill loses at most the part being written. *Add* spills one run per input partition; *finish*
merges the runs of each cell in id order. The order of documents depends on their content only: any number of workers, any
partitioning and any input order give byte-identical shards. A store becomes visible when its manifest appears, last.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import load_json
from forerun.base.errors import DataError
from forerun.base.files import fsync_folder, storage_errors, write_atomic, write_json
from forerun.base.lab import Lab
from forerun.curate.spill import dtype_of, spill
from forerun.curate.tokenizer_file import lost_markers
from forerun.loader.manifest import Cell, Manifest, Shard, Source, Step

SHARD_TOKENS = 1 << 26  # assumed: 128 MiB of uint16 a file, large enough to stream, small enough to copy and check in seconds


@dataclass(frozen=True, kw_only=True)
class StoreSpec:
    """What a store needs to know besides its documents."""

    name: str
    """For people."""
    tokenizer_json: str
    """Hugging Face tokenizers file, as text."""
    vocab_size: int
    """Ids are below it."""
    end_of_document: int
    """Id appended to every document."""
    sources: tuple[Source, ...]
    """Licence, revision and documents read; what survived is counted here."""
    steps: tuple[Step, ...] = ()
    """What happened to the documents before."""
    domain_titles: Mapping[str, str] = field(default_factory=dict)
    """Domain folder name to its name for people."""
    shard_tokens: int = SHARD_TOKENS
    """Most tokens in a shard, unless one document is longer."""


class StoreWriter:
    """Builds one store inside `work`, a folder that a killed build leaves behind and the next one continues."""

    def __init__(self, lab: Lab, spec: StoreSpec, work: Path) -> None:
        self.lab, self.spec, self.work = lab, spec, work
        self.dtype = dtype_of(spec.vocab_size)

    def run_folder(self, partition: int) -> Path:
        """Where `spill` puts a partition; it is there when the partition was added before, wholly."""
        return self.work / "runs" / f"{partition:06d}"

    def add(self, partition: int, documents: pa.Table) -> None:
        """Spill one partition, as `spill`; any number of processes may call that for partitions of their own."""
        spill(self.run_folder(partition), documents, self.spec.vocab_size)

    def finish(self) -> Manifest:
        """Merge the runs into cells, write the manifest, drop the work folder. Continues where a killed call stopped."""
        runs = sorted((self.work / "runs").glob("*[0-9]"))
        tables = [pq.read_table(run / "docs.parquet") for run in runs]
        if not sum(table.num_rows for table in tables):
            raise DataError("no document is left for the store", hint="read the drop reasons of the steps before")
        starts = [np.concatenate([[0], np.cumsum(np.asarray(table["num_tokens"]))])[:-1] for table in tables]
        documents = pa.concat_tables(
            [
                table.append_column("_run", pa.array(np.full(table.num_rows, index, np.int32))).append_column("_start", pa.array(start))
                for index, (table, start) in enumerate(zip(tables, starts))
            ],
            promote_options="default",
        )
        documents = documents.sort_by([("held_out", "ascending"), ("domain", "ascending"), ("quality", "ascending"), ("id", "ascending")])
        _refuse_repeated(documents)
        spills = [np.memmap(run / "tokens.bin", self.dtype, "r") if (run / "tokens.bin").stat().st_size else None for run in runs]
        _refuse_lost_markers(tables, starts, spills, self.spec.tokenizer_json)
        cells = [self._cell(cell, spills) for cell in _cells_of(documents)]
        train = tuple(cell for cell in cells if cell.split == "train")
        held_out = tuple(cell for cell in cells if cell.split == "held_out")
        manifest = Manifest(
            name=self.spec.name,
            tokenizer_digest=hashlib.sha256(self.spec.tokenizer_json.encode()).hexdigest(),
            vocab_size=self.spec.vocab_size,
            dtype="uint16" if self.dtype.itemsize == 2 else "uint32",
            end_of_document=self.spec.end_of_document,
            sources=_counted(self.spec.sources, documents),
            cells=train,
            held_out=held_out,
            steps=self.spec.steps,
            domain_titles=dict(self.spec.domain_titles),
        )
        self._publish(manifest)
        return manifest

    def _cell(self, documents: pa.Table, spills: Sequence[np.ndarray | None]) -> Cell:
        """Write one cell's shards, or take them over when its ledger says they are whole."""
        first = {name: documents[name][0].as_py() for name in ("domain", "quality", "held_out")}
        name = first["domain"] if first["held_out"] else f"{first['domain']}/q{first['quality']}"
        path = f"held_out/{name}" if first["held_out"] else name
        ledger = self.work / "store" / path / "ledger.json"
        if ledger.exists():
            return load_json(ledger, Cell)
        lengths = np.asarray(documents["num_tokens"]) + 1
        shards = [
            self._shard(documents.slice(start, stop - start), f"{path}/shard-{index:05d}.bin", spills)
            for index, (start, stop) in enumerate(_cuts(lengths, self.spec.shard_tokens))
        ]
        cell = Cell(
            name=name,
            domain=first["domain"],
            quality=None if first["held_out"] else first["quality"],
            split="held_out" if first["held_out"] else "train",
            num_documents=sum(shard.num_documents for shard in shards),
            num_tokens=sum(shard.num_tokens for shard in shards),
            num_bytes=pc.sum(documents["num_bytes"]).as_py(),
            shards=tuple(shards),
        )
        write_json(ledger, cell)
        return cell

    def _shard(self, documents: pa.Table, path: str, spills: Sequence[np.ndarray | None]) -> Shard:
        out = self.work / "store" / path
        lengths = np.asarray(documents["num_tokens"])
        ends = np.cumsum(lengths + 1)
        ids = np.full(int(ends[-1]), self.spec.end_of_document, self.dtype)
        for run, start, length, end in zip(documents["_run"].to_pylist(), documents["_start"].to_pylist(), lengths.tolist(), ends.tolist()):
            spill = spills[run]
            if spill is not None:
                ids[end - 1 - length : end - 1] = spill[start : start + length]
        table = documents.drop_columns(["_run", "_start", "held_out", "num_tokens"])
        table = table.append_column("num_tokens", pa.array(lengths + 1)).append_column("token_offset", pa.array(ends - lengths - 1))
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd")
        shard = Shard(
            path=path,
            num_tokens=len(ids),
            num_documents=documents.num_rows,
            digest=hashlib.sha256(ids.tobytes()).hexdigest(),
            docs_digest=hashlib.sha256(docs := sink.getvalue()).hexdigest(),
        )
        write_atomic(out, ids.tobytes())
        write_atomic(self.work / "store" / shard.docs_path, docs.to_pybytes())
        return shard

    def _publish(self, manifest: Manifest) -> None:
        """Rename the finished store into place, then make it visible by writing its manifest."""
        built, target = self.work / "store", self.lab.store / manifest.digest
        write_atomic(built / "tokenizer.json", self.spec.tokenizer_json.encode())
        with storage_errors(target):
            for ledger in built.rglob("ledger.json"):
                ledger.unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() and not (self.lab.manifests / f"{manifest.digest}.json").exists():
                shutil.rmtree(target)
            if not target.exists():
                built.rename(target)
                fsync_folder(target.parent)
        write_json(self.lab.manifests / f"{manifest.digest}.json", manifest)
        shutil.rmtree(self.work, ignore_errors=True)


def write_store(
    lab: Lab,
    documents: Iterable[Mapping[str, object]],
    spec: StoreSpec,
) -> Manifest:
    """A store from documents in memory: mappings with the keys `spill.REQUIRED` and any scores. For tests, examples and small sets."""
    table = pa.Table.from_pylist([dict(document) for document in documents])
    table = table.set_column(table.column_names.index("quality"), "quality", table["quality"].cast(pa.int8()))
    table = table.set_column(table.column_names.index("tokens"), "tokens", table["tokens"].cast(pa.large_list(pa.int32())))
    work = lab.store / f".work-{hashlib.sha256(msgspec.json.encode([spec.name, table.num_rows])).hexdigest()[:8]}"
    shutil.rmtree(work, ignore_errors=True)
    writer = StoreWriter(lab, spec, work)
    writer.add(0, table)
    return writer.finish()


def _cells_of(documents: pa.Table) -> Iterable[pa.Table]:
    """Slices of one cell each, of documents sorted by cell; a held-out cell is a domain, whatever the quality."""
    held, domain, quality = (documents[name].to_numpy() for name in ("held_out", "domain", "quality"))
    changed = np.ones(documents.num_rows, bool)
    changed[1:] = (held[1:] != held[:-1]) | (domain[1:] != domain[:-1]) | ((quality[1:] != quality[:-1]) & ~held[1:])
    edges = [*np.flatnonzero(changed).tolist(), documents.num_rows]
    for start, stop in itertools.pairwise(edges):
        cell = documents.slice(start, stop - start)
        yield cell.sort_by("id") if held[start] else cell


def _cuts(lengths: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Document ranges of each shard: full shards, no document split."""
    cuts, start, total = [], 0, 0
    for index, length in enumerate(lengths.tolist()):
        if total and total + length > most:
            cuts.append((start, index))
            start, total = index, 0
        total += length
    return [*cuts, (start, len(lengths))]


def _refuse_repeated(documents: pa.Table) -> None:
    counts = pc.value_counts(documents["id"])
    repeated = [entry["values"].as_py() for entry in counts.filter(pc.greater(counts.field("counts"), 1))]
    if repeated:
        raise DataError(
            f"{len(repeated)} document ids occur twice, such as {repeated[0]}",
            hint="run exact deduplication over all sources before the store",
        )


def _refuse_lost_markers(
    tables: Sequence[pa.Table], starts: Sequence[np.ndarray], spills: Sequence[np.ndarray | None], tokenizer_json: str
) -> None:
    """Raises: DataError when some documents begin with a special token and others do not: a start marker was lost (incident D13)."""
    first = [spill[start[np.asarray(table["num_tokens"]) > 0]] for table, start, spill in zip(tables, starts, spills) if spill is not None]
    for name, share in lost_markers(np.concatenate(first) if first else np.zeros(0), tokenizer_json).items():
        raise DataError(
            f"{share:.1%} of the documents begin with {name}", hint="tokenise the others again: all must begin with it, or none"
        )


def _counted(sources: tuple[Source, ...], documents: pa.Table) -> tuple[Source, ...]:
    """Sources with what is in the store, counted from it."""
    rows = documents.group_by("source").aggregate([("id", "count"), ("num_tokens", "sum")]).to_pylist()
    by_name = {row["source"]: row for row in rows}
    undeclared = sorted(set(by_name) - {source.name for source in sources})
    if undeclared:
        raise DataError(f"documents come from {undeclared[0]!r}, which is not among the sources", hint="declare its licence and revision")
    counted = []
    for source in sorted(sources, key=lambda source: source.name):
        row = by_name.get(source.name, {"id_count": 0, "num_tokens_sum": 0})
        counted.append(replace(source, num_documents=row["id_count"], num_tokens=row["num_tokens_sum"] + row["id_count"]))
    return tuple(counted)


def held_out_mask(ids: pa.ChunkedArray | pa.Array, fraction: float) -> pa.Array:
    """Which documents are held out: those whose content hash falls in the first `fraction` of all hashes.

    The choice depends on the document alone, so it is the same in every build and survives added sources.
    """
    edge = f"{int(fraction * 0x1_0000_0000):09x}"
    return pa.array([f"0{document[:8]}" < edge for document in ids.to_pylist()], pa.bool_())
