"""Clean documents to a store: embed, find domains, learn quality, tokenise, write. The second half of the pipeline in one walk.

Input are partition files of deduplicated documents. Every stage works a partition at a time and leaves files in a work folder
named by the build's identity, so a killed build goes on where it stopped and a changed parameter starts afresh. Models are
trained on samples drawn by document id, so the number and order of partitions do not matter.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from forerun.base.config import load_json
from forerun.base.errors import ConfigError, DataError
from forerun.base.files import write_atomic, write_json
from forerun.base.lab import Lab
from forerun.base.progress import Progress
from forerun.curate.cluster.domains import ClusterConfig, DomainModel, find_domains
from forerun.curate.cluster.files import load_domains, save_domains
from forerun.curate.cluster.map import keep_map
from forerun.curate.embed.encoders import EmbedConfig, open_encoder
from forerun.curate.embed.quantize import QuantizationError, from_int8, to_int8
from forerun.curate.embed.tfidf import word_profiles
from forerun.curate.quality.files import load_quality, save_quality
from forerun.curate.quality.model import QualityConfig, QualityModel, fit_quality
from forerun.curate.steps import StepKey
from forerun.curate.store import StoreSpec, StoreWriter, held_out_mask
from forerun.curate.tokenise import Encoder, TokeniseConfig, end_of_document_id, train_tokenizer, vocab_size_of
from forerun.loader.manifest import Manifest, Source, Step, load_manifest

BuildStage = Literal["embed", "cluster", "quality", "tokenise", "store"]
BUILD_STAGES: tuple[BuildStage, ...] = ("embed", "cluster", "quality", "tokenise", "store")
STEP_CODE = {
    "embed": (
        *(f"forerun.curate.embed.{name}" for name in ("encoders", "endpoint", "onnx", "quantize", "static", "tfidf", "words")),
        "forerun.curate.growing",
    ),
    "cluster": tuple(f"forerun.curate.cluster.{name}" for name in ("checks", "domains", "kmeans", "merge", "names")),
    "quality": (
        *(f"forerun.curate.quality.{name}" for name in ("calibrate", "heuristic", "model", "statistics", "student", "teacher")),
        "forerun.curate.text.words",
    ),
    "tokenise": ("forerun.curate.tokenise",),
    "store": ("forerun.curate.build", "forerun.curate.store"),
}
VERSION = 2  # raised whenever a stage here would give other bytes for the same parameters
SAMPLE_DOCUMENTS = 200_000  # assumed: documents the models are trained on; about 1 GiB of text, the bound on memory
PROFILE_DOCUMENTS = 4000  # assumed: documents the intruder test draws from


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Parameters of the second half; all of them are part of the build's identity."""

    embed: EmbedConfig = field(default_factory=EmbedConfig)
    """Documents to vectors."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Vectors to domains."""
    quality: QualityConfig = field(default_factory=QualityConfig)
    """Documents to buckets."""
    tokenise: TokeniseConfig = field(default_factory=TokeniseConfig)
    """Text to ids."""
    held_out_fraction: float = 0.01
    """Share of documents kept for evaluation, by the hash of their content."""

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_fraction < 1:
            raise ConfigError(f"held_out_fraction must lie in 0..1, 1 excluded, got {self.held_out_fraction}", hint="0.01 is usual")


def build_store(
    lab: Lab,
    name: str,
    partitions: Sequence[Path],
    sources: Sequence[Source],
    config: BuildConfig,
    *,
    steps: Sequence[Step] = (),
    quiet: bool = False,
) -> Manifest:
    """A store of all documents in the partitions.

    Args:
        partitions: Parquet files with `id`, `source`, `source_id`, `text`; other columns are kept as scores. Ids are unique over all.
        sources: licence, revision and documents read of every source.
        steps: what happened before, for the manifest.
    Returns: the manifest; that of an earlier build with the same identity, without work, when its store is still there.
    """
    identity = identity_of(name, partitions, sources, config, steps)
    known = lab.store / ".built" / f"{identity}.json"
    if known.exists():
        digest = load_json(known, dict[str, str])["manifest"]
        if (lab.store / digest).is_dir() and (lab.manifests / f"{digest}.json").exists():
            return load_manifest(lab, digest)
    work = lab.store / f".build-{identity[:16]}"
    work.mkdir(parents=True, exist_ok=True)
    errors = _embed(partitions, config.embed, work, quiet)
    sample = _sample(partitions, work)
    domains = _domains(sample, config.cluster, work)
    quality = _quality(sample, domains, config.quality, work)
    tokenizer_json = _tokenizer(sample, config.tokenise, work)
    encoder = Encoder(tokenizer_json, sample["text"][:256].to_pylist())
    spec = StoreSpec(
        name=name,
        tokenizer_json=tokenizer_json,
        vocab_size=vocab_size_of(tokenizer_json),
        end_of_document=end_of_document_id(tokenizer_json, config.tokenise),
        sources=tuple(sources),
        domain_titles=domains.titles,
    )
    writer = StoreWriter(lab, spec, work / "store")
    with Progress("tokenise and store", len(partitions), "partitions", quiet=quiet) as progress:
        for index, path in enumerate(partitions):
            if not writer.has(index):
                writer.add(index, _ready(pq.read_table(path), _vectors(work, index), domains, quality, encoder, config.held_out_fraction))
            progress.advance(1)
    total = sum(pq.read_metadata(path).num_rows for path in partitions)
    writer.spec = replace(
        spec, steps=(*steps, *_own_steps(config, (_documents_digest(partitions),), total, errors, domains, quality, encoder))
    )
    manifest = writer.finish()
    keep_map(lab, manifest.digest, domains)
    write_json(known, {"manifest": manifest.digest})
    shutil.rmtree(work, ignore_errors=True)
    return manifest


def build_until(
    lab: Lab,
    name: str,
    partitions: Sequence[Path],
    sources: Sequence[Source],
    config: BuildConfig,
    stage: BuildStage,
    *,
    steps: Sequence[Step] = (),
    quiet: bool = False,
) -> dict[str, Any]:
    """The stages of `build_store` up to one of them, for looking at its report; the work stays for the build to go on with."""
    if stage == "store":
        manifest = build_store(lab, name, partitions, sources, config, steps=steps, quiet=quiet)
        return {"manifest": manifest.digest}
    work = lab.store / f".build-{identity_of(name, partitions, sources, config, steps)[:16]}"
    work.mkdir(parents=True, exist_ok=True)
    errors = _embed(partitions, config.embed, work, quiet)
    if stage == "embed":
        return {"encoder": config.embed.encoder, "quantization": errors.report()}
    sample = _sample(partitions, work)
    domains = _domains(sample, config.cluster, work)
    if stage == "cluster":
        return domains.report
    if stage == "quality":
        return _quality(sample, domains, config.quality, work).report
    encoder = Encoder(_tokenizer(sample, config.tokenise, work), sample["text"][:256].to_pylist())
    return {"engine": encoder.engine, "note": encoder.note}


def identity_of(name: str, partitions: Sequence[Path], sources: Sequence[Source], config: BuildConfig, steps: Sequence[Step] = ()) -> str:
    """What a build is: hash of the code's version, every parameter, the sources, the earlier steps and the bytes of the input."""
    key = StepKey(
        name="build",
        version=VERSION,
        parameters={"name": name, "config": config, "sources": list(sources), "steps": list(steps)},
        inputs=tuple(_input_digests(partitions)),
        modules=tuple(module for modules in STEP_CODE.values() for module in modules),
    )
    return key.identity


def _input_digests(partitions: Sequence[Path]) -> list[str]:
    """Content digests in sorted order: a store does not depend on how its input is cut into files only if the documents agree."""
    digests = []
    for path in partitions:
        sha = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                sha.update(piece)
        digests.append(sha.hexdigest())
    return sorted(digests)


def _documents_digest(partitions: Sequence[Path]) -> str:
    """Of the documents and where they came from, in any order and however they are cut into files."""
    total = 0
    for path in partitions:
        table = pq.read_table(path, columns=["id", "source", "source_id"])
        for row in zip(*(table[name].to_pylist() for name in table.column_names)):
            total += xxhash.xxh3_128_intdigest("\0".join(map(str, row)).encode("utf-8", "replace"))
    return f"{total % (1 << 128):032x}"


def _embed(partitions: Sequence[Path], config: EmbedConfig, work: Path, quiet: bool) -> QuantizationError:
    """Write int8 vectors of every partition; returns what int8 cost."""
    waiting = [index for index in range(len(partitions)) if not (work / f"vectors-{index:06d}.npy").exists()]
    if waiting:
        encoder = open_encoder(config, _texts(partitions)["text"])
        with Progress("embed", len(partitions), "partitions", done=len(partitions) - len(waiting), quiet=quiet) as progress:
            for index in waiting:
                codes, error = to_int8(encoder.encode(pq.read_table(partitions[index], columns=["text"])["text"]))
                write_json(work / f"quantization-{index:06d}.json", error)
                write_atomic(work / f"vectors-{index:06d}.npy", _npy(codes))
                progress.advance(1)
    errors = QuantizationError()
    for index in range(len(partitions)):
        errors += load_json(work / f"quantization-{index:06d}.json", QuantizationError)
    return errors


def _texts(partitions: Sequence[Path]) -> pa.Table:
    """At most `SAMPLE_DOCUMENTS` documents with the least ids, in id order: the same sample however the input is cut."""
    ids = pa.concat_tables(
        [
            pq.read_table(path, columns=["id"]).append_column("_at", pa.array(np.arange(pq.read_metadata(path).num_rows) + (index << 40)))
            for index, path in enumerate(partitions)
        ]
    )
    chosen = ids.sort_by("id").slice(0, SAMPLE_DOCUMENTS)
    place = np.asarray(chosen["_at"])
    parts = []
    for index, path in enumerate(partitions):
        rows = np.sort(place[place >> 40 == index] & ((1 << 40) - 1))
        if len(rows):
            parts.append(
                pq.read_table(path, columns=["id", "source", "text"])
                .take(pa.array(rows))
                .append_column("_at", pa.array(rows + (index << 40)))
            )
    if not parts:
        raise DataError("no document is left to build a store from", hint="read the drop reasons of the steps before")
    return pa.concat_tables(parts).sort_by("id")


def _sample(partitions: Sequence[Path], work: Path) -> pa.Table:
    """The training sample with its vectors, int8 rows in the column `vector`."""
    sample = _texts(partitions)
    place = np.asarray(sample["_at"])
    rows = None
    for index in range(len(partitions)):
        mine = place >> 40 == index
        if mine.any():
            codes = np.load(work / f"vectors-{index:06d}.npy", mmap_mode="r")
            rows = np.empty((len(place), codes.shape[1]), np.int8) if rows is None else rows
            rows[mine] = codes[place[mine] & ((1 << 40) - 1)]
    assert rows is not None
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    return sample.drop_columns(["_at"]).append_column("vector", vectors)


def _vectors_of(sample: pa.Table) -> np.ndarray:
    column = sample["vector"].combine_chunks()
    return from_int8(np.asarray(column.flatten()).reshape(sample.num_rows, -1))


def _domains(sample: pa.Table, config: ClusterConfig, work: Path) -> DomainModel:
    path = work / "domains.npz"
    if not path.exists():
        profiles = word_profiles(sample["text"][:PROFILE_DOCUMENTS])
        model = find_domains(_vectors_of(sample), sample["text"].to_pylist(), sample["source"].to_pylist(), config, profiles=profiles)
        save_domains(model, path)
    return load_domains(path)


def _quality(sample: pa.Table, domains: DomainModel, config: QualityConfig, work: Path) -> QualityModel:
    path = work / "quality.npz"
    if not path.exists():
        vectors = _vectors_of(sample)
        groups, _ = domains.assign(vectors)
        model = fit_quality(sample["id"].to_pylist(), sample["text"], vectors, groups, config, labels_file=work / "labels.jsonl")
        save_quality(model, path)
    return load_quality(path)


def _tokenizer(sample: pa.Table, config: TokeniseConfig, work: Path) -> str:
    if config.tokenizer:
        try:
            return Path(config.tokenizer).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"tokenise.tokenizer {config.tokenizer!r} cannot be read: {error.strerror}", hint="give a tokenizer.json"
            ) from None
    path = work / "tokenizer.json"
    if not path.exists():
        write_atomic(path, train_tokenizer(iter(sample["text"].to_pylist()), config).encode())
    return path.read_text(encoding="utf-8")


def _vectors(work: Path, index: int) -> np.ndarray:
    return from_int8(np.load(work / f"vectors-{index:06d}.npy"))


def _ready(
    documents: pa.Table, vectors: np.ndarray, domains: DomainModel, quality: QualityModel, encoder: Encoder, held_out_fraction: float
) -> pa.Table:
    """The columns a store needs, joined by position; the row counts must agree or the partition changed under us."""
    if documents.num_rows != len(vectors):
        raise DataError(
            f"a partition holds {documents.num_rows} documents but {len(vectors)} vectors",
            hint="its file changed during the build; run again",
        )
    labels, cosine = domains.assign(vectors)
    scores = quality.score(documents["text"], vectors)
    columns = {
        "domain": pa.array(domains.slugs(labels), pa.string()),
        "domain_cosine": pa.array(cosine, pa.float32()),
        "quality": pa.array(scores.bucket, pa.int8()),
        "quality_score": pa.array(scores.score, pa.float32()),
        "content_type": pa.array(scores.type_names, pa.string()),
        "held_out": held_out_mask(documents["id"], held_out_fraction),
        "num_bytes": pc.binary_length(documents["text"].cast(pa.large_binary())),
        "tokens": encoder.encode(documents["text"]),
    }
    table = documents.drop_columns(["text"])
    for column, values in columns.items():
        table = table.append_column(column, values)
    return table


def _own_steps(
    config: BuildConfig,
    inputs: tuple[str, ...],
    total: int,
    errors: QuantizationError,
    domains: DomainModel,
    quality: QualityModel,
    encoder: Encoder,
) -> list[Step]:
    reports = {
        "embed": (config.embed, {"encoder": config.embed.encoder, "quantization": errors.report()}),
        "cluster": (config.cluster, domains.report),
        "quality": (config.quality, quality.report),
        "tokenise": (config.tokenise, {"engine": encoder.engine, "note": encoder.note}),
    }
    steps: list[Step] = []
    before = inputs
    for name, (parameters, report) in reports.items():
        key = StepKey(name=name, version=VERSION, parameters=parameters, inputs=before, modules=STEP_CODE[name])
        before = (key.identity,)
        steps.append(Step(name=name, identity=key.identity, documents_in=total, documents_out=total, report=report))
    return steps


def _npy(array: np.ndarray) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
