"""All text stages in one walk: ingest, normalise, exact dedup, fuzzy dedup, decontamination; then partitions for the store.

Counts come from the files written. The work folder is named by the identity of everything that matters (parameters, code version,
bytes of the inputs), so a changed parameter starts afresh, an unchanged rerun does nothing, and a killed one goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import digest_of, file_digest, load_json
from forerun.base.errors import ConfigError, DataError
from forerun.base.files import storage_errors, write_json
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.curate.store import held_out_mask
from forerun.curate.text import decontaminate, survivors
from forerun.curate.text.fuzzy import near_duplicates, removal_report
from forerun.curate.text.ingest import SourceFile, ingest
from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.normalize import normalize
from forerun.loader.manifest import Source, Step

VERSION = 3  # raised whenever a stage here would decide otherwise for the same parameters
PARTITION_BYTES = 16 << 20  # assumed: small enough to work on a few at once in little memory


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Parameters of the first half; all of them are part of its identity."""

    fuzzy: MinHashConfig = field(default_factory=MinHashConfig)
    """Which documents are compared."""
    survivors: survivors.SurvivorConfig = field(default_factory=survivors.SurvivorConfig)
    """Which of them go."""
    decontaminate: decontaminate.DecontaminateConfig = field(default_factory=decontaminate.DecontaminateConfig)
    """Which documents hold evaluation text."""
    held_out_fraction: float = 0.01
    """Share of documents kept for evaluation, by the hash of their content."""
    min_document_bytes: int = 64
    """Shorter documents are dropped."""

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_fraction < 1:
            raise ConfigError(f"held_out_fraction must lie in 0..1, 1 excluded, got {self.held_out_fraction}", hint="0.01 is usual")
        if self.min_document_bytes < 1:
            raise ConfigError(
                f"min_document_bytes must be at least 1, got {self.min_document_bytes}", hint="1 keeps every document with text"
            )


@dataclass(frozen=True, kw_only=True)
class CleanText:
    """What the first half hands on."""

    partitions: tuple[Path, ...]
    """Parquet with `id`, `text`, `source`, `source_id`, by id; ids are unique over all."""
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    decisions: Path
    """Folder with `fuzzy.parquet` and `contaminated.parquet`: every removal with the document or item that explains it."""


def clean(lab: Lab, files: Sequence[SourceFile], config: TextConfig, *, evals: pa.Table | None = None, quiet: bool = False) -> CleanText:
    """Run the text stages over some sources.

    Args:
        evals: further evaluation items to keep out, `id` and `text`.
    Raises: DataError when no document is left, with the reasons.
    """
    files = sorted(files, key=lambda file: file.name)
    identity = digest_of(
        {
            "version": VERSION,
            "config": config,
            "inputs": [(file.name, file.licence, file.revision, _content_digest(file.path)) for file in files],
            "evals": digest_of(evals.to_pylist()) if evals is not None else "",
        }
    )
    work = lab.root / "work" / f"text-{identity[:16]}"
    done = work / "done.json"
    if not done.exists():
        with storage_errors(work), Progress("clean text", 6, "stages", quiet=quiet) as progress:
            work.mkdir(parents=True, exist_ok=True)
            _run(files, config, evals, work, identity, progress)
    outcome = load_json(done, dict)
    return CleanText(
        partitions=tuple(sorted(work.glob("part-*.parquet"))),
        sources=tuple(Source(**source) for source in outcome["sources"]),
        steps=tuple(Step(**step) for step in outcome["steps"]),
        decisions=work,
    )


def _run(files: Sequence[SourceFile], config: TextConfig, evals: pa.Table | None, work: Path, identity: str, progress: Progress) -> None:
    steps: list[Step] = []

    def close(name: str, before: int, table: pa.Table, dropped: Counter[str], report: dict | None = None) -> pa.Table:
        steps.append(
            Step(
                name=name,
                identity=digest_of({"step": name, "run": identity}),
                documents_in=before,
                documents_out=table.num_rows,
                dropped=dict(sorted(dropped.items())),
                report=report or {},
            )
        )
        progress.advance(1, note=f"{name}: {table.num_rows:,} of {before:,} documents kept")
        return table

    read = [ingest(file, top_level_only=any(other.path.parent == file.path for other in files)) for file in files]
    num_read = sum(source.num_read for source in read)
    dropped = sum((source.dropped for source in read), Counter())
    table = close("ingest", num_read, pa.concat_tables([source.documents for source in read]), dropped)
    before = table.num_rows
    table, num_blank = normalize(table)
    short = pc.less(pc.binary_length(table["text"].cast(pa.large_binary())), config.min_document_bytes)
    num_short = pc.sum(short).as_py() or 0
    table = close("normalize", before, table.filter(pc.invert(short)), +Counter(blank=num_blank, too_short=num_short))
    before = table.num_rows
    table, repeated = _exact(table)
    table = close("exact_dedup", before, table, +Counter(exact_duplicate=repeated))
    before = table.num_rows
    removed = near_duplicates(table, config.fuzzy, config.survivors)
    _write(removed, work / "fuzzy.parquet")
    table = close("fuzzy_dedup", before, _without(table, removed), +Counter(near_duplicate=removed.num_rows), removal_report(table["source"], removed))
    before = table.num_rows
    hits = _contaminated(table, evals, config)
    _write(hits, work / "contaminated.parquet")
    table = close("decontaminate", before, _without(table, hits), +Counter(contaminated=hits.num_rows))
    if not table.num_rows:
        reasons = ", ".join(f"{reason} {count}" for step in steps for reason, count in step.dropped.items())
        raise DataError(f"no document is left of {num_read} read", hint=f"dropped: {reasons or 'none read'}")
    _partition(table, work)
    progress.advance(1, note="partitions written")
    counts = Counter(table["source"].to_pylist())
    sources = [
        Source(
            name=file.name,
            licence=file.licence,
            revision=file.revision or _content_digest(file.path)[:16],
            num_documents_in=source.num_read,
            num_documents=counts[file.name],
            num_tokens=0,
        )
        for file, source in zip(files, read)
    ]
    write_json(work / "done.json", {"sources": sources, "steps": steps})


def _exact(table: pa.Table) -> tuple[pa.Table, int]:
    """The first of equal texts by source name, then by place; sorted by id."""
    order = pc.sort_indices(
        table.append_column("row", pa.array(np.arange(table.num_rows))),
        sort_keys=[("id", "ascending"), ("source", "ascending"), ("source_id", "ascending"), ("row", "ascending")],
    )
    ordered = table.take(order)
    ids = np.array(ordered["id"].to_pylist(), dtype=object)
    first = np.concatenate([[True], ids[1:] != ids[:-1]]) if len(ids) else np.zeros(0, bool)
    return ordered.filter(pa.array(first)), int((~first).sum())


def _contaminated(table: pa.Table, evals: pa.Table | None, config: TextConfig) -> pa.Table:
    """Training documents against the held-out ones and the given items; held-out documents themselves stay."""
    held = held_out_mask(table["id"], config.held_out_fraction)
    items = table.filter(held).select(["id", "text"])
    if evals is not None:
        items = pa.concat_tables([items, evals.select(["id", "text"]).cast(items.schema)])
    train = table.filter(pc.invert(held))
    return decontaminate.contaminated(train["id"].to_pylist(), train["source"].to_pylist(), train["text"], items, config.decontaminate)


def _without(table: pa.Table, rows: pa.Table) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["id"], rows["id"].combine_chunks())))


def _partition(table: pa.Table, work: Path) -> None:
    sizes = np.asarray(pc.binary_length(table["text"].cast(pa.large_binary())))
    number = np.cumsum(sizes) // PARTITION_BYTES
    for index, value in enumerate(np.unique(number)):
        rows = np.flatnonzero(number == value)
        _write(table.slice(int(rows[0]), len(rows)), work / f"part-{index:05d}.parquet")


def _write(table: pa.Table, path: Path) -> None:
    beside = path.with_suffix(".part")
    pq.write_table(table, beside, compression="zstd")
    beside.replace(path)


def _content_digest(path: Path) -> str:
    if path.is_file():
        return file_digest(path)
    return digest_of([(str(file.relative_to(path)), file_digest(file)) for file in sorted(path.rglob("*")) if file.is_file()])
