"""Clean documents to a store: embed, find domains, learn quality, tokenise, write. The second half of the pipeline in one walk.

Input are partition files of deduplicated documents. Every stage works a partition at a time and leaves files in a work folder
named by the build's identity, so a killed build goes on where it stopped and a changed parameter starts afresh. Models are
trained on samples drawn by document id, so the number and order of partitions do not matter.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import xxhash

from forerun.base.config import file_digest, load_json
from forerun.base.errors import ConfigError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.curate.build_stages import domains_of, embedded, quality_of, spilled, tokenizer_of, training_sample
from forerun.curate.cluster.domains import ClusterConfig, DomainModel
from forerun.curate.cluster.map import keep_map
from forerun.curate.embed.encoders import EmbedConfig, weight_files
from forerun.curate.embed.quantize import QuantizationError
from forerun.curate.engine.config import EngineConfig
from forerun.curate.quality.model import QualityConfig, QualityModel
from forerun.curate.steps import StepKey, alone
from forerun.curate.store import StoreSpec, StoreWriter
from forerun.curate.tokenise import Encoder, TokeniseConfig
from forerun.curate.tokenizer_file import end_of_document_id, vocab_size_of
from forerun.loader.manifest import Manifest, Source, Step, load_manifest

BuildStage = Literal["embed", "cluster", "quality", "tokenise", "store"]
BUILD_STAGES: tuple[BuildStage, ...] = ("embed", "cluster", "quality", "tokenise", "store")
STEP_CODE = {
    "embed": (
        *(f"forerun.curate.embed.{name}" for name in ("encoders", "endpoint", "layout", "onnx", "quantize", "static", "tfidf", "words")),
        "forerun.curate.growing",
        "forerun.curate.patience",
    ),
    "cluster": tuple(f"forerun.curate.cluster.{name}" for name in ("ask_names", "checks", "domains", "kmeans", "merge", "names")),
    "quality": (
        *(
            f"forerun.curate.quality.{name}"
            for name in ("answer", "calibrate", "heuristic", "model", "report", "statistics", "student", "teacher")
        ),
        *(f"forerun.curate.text.{name}" for name in ("registers", "spelling", "words")),
    ),
    "tokenise": ("forerun.curate.tokenise", "forerun.curate.tokenizer_file"),
    "store": (
        "forerun.curate.build",
        *(f"forerun.curate.{name}" for name in ("build_stages", "build_tasks", "sample", "spill", "store")),
    ),
}
IN_FOLDERS = ("static", "onnx")
"""Encoders whose model is a path."""
VERSION = 2  # raised whenever a stage here would give other bytes for the same parameters


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
    engine: EngineConfig | None = None,
    quiet: bool = False,
) -> Manifest:
    """A store of all documents in the partitions.

    Args:
        partitions: Parquet files with `id`, `source`, `source_id`, `text`; other columns are kept as scores. Ids are unique over all.
        sources: licence, revision and documents read of every source.
        steps: what happened before, for the manifest.
        engine: where the work on partitions runs; it changes no byte of the store.
    Returns: the manifest; that of an earlier build with the same identity, without work, when its store is still there.
    """
    identity = identity_of(name, partitions, sources, config, steps)
    known = lab.store / ".built" / f"{identity}.json"
    if known.exists():
        digest = load_json(known, dict[str, str])["manifest"]
        if (lab.store / digest).is_dir() and (lab.manifests / f"{digest}.json").exists():
            return load_manifest(lab, digest)
    work = lab.store / f".build-{identity[:16]}"
    with alone(work):
        manifest = _built(lab, name, partitions, sources, config, steps, work, engine or EngineConfig(), quiet)
        write_json(known, {"manifest": manifest.digest})
        shutil.rmtree(work, ignore_errors=True)
    return manifest


def _built(
    lab: Lab,
    name: str,
    partitions: Sequence[Path],
    sources: Sequence[Source],
    config: BuildConfig,
    steps: Sequence[Step],
    work: Path,
    engine: EngineConfig,
    quiet: bool,
) -> Manifest:
    """The stages in order, each taking over what an earlier attempt left in the work folder."""
    errors = embedded(partitions, config.embed, work, engine, quiet)
    sample = training_sample(partitions, work)
    domains = domains_of(sample, config.cluster, work, lab.root / "work" / "labels")
    quality = quality_of(sample, domains, config.quality, work, lab.root / "work" / "labels")
    tokenizer_json = tokenizer_of(sample, config.tokenise, work)
    encoder = Encoder(tokenizer_json, sample["text"][:256].to_pylist())
    spec = StoreSpec(
        name=name,
        tokenizer_json=tokenizer_json,
        vocab_size=vocab_size_of(tokenizer_json),
        end_of_document=end_of_document_id(tokenizer_json, config.tokenise.end_of_document),
        sources=tuple(sources),
        domain_titles=domains.titles,
    )
    writer = StoreWriter(lab, spec, work / "store")
    spilled(partitions, writer, encoder.engine, config.held_out_fraction, work, engine, quiet)
    total = sum(pq.read_metadata(path).num_rows for path in partitions)
    writer.spec = replace(
        spec, steps=(*steps, *_own_steps(config, (_documents_digest(partitions),), total, errors, domains, quality, encoder))
    )
    manifest = writer.finish()
    keep_map(lab, manifest.digest, domains)
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
    engine: EngineConfig | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """The stages of `build_store` up to one of them, for looking at its report; the work stays for the build to go on with."""
    if stage == "store":
        manifest = build_store(lab, name, partitions, sources, config, steps=steps, engine=engine, quiet=quiet)
        return {"manifest": manifest.digest}
    work = lab.store / f".build-{identity_of(name, partitions, sources, config, steps)[:16]}"
    with alone(work):
        errors = embedded(partitions, config.embed, work, engine or EngineConfig(), quiet)
        if stage == "embed":
            return {"encoder": config.embed.encoder, "quantization": errors.report()}
        sample = training_sample(partitions, work)
        domains = domains_of(sample, config.cluster, work, lab.root / "work" / "labels")
        if stage == "cluster":
            return domains.report
        if stage == "quality":
            return quality_of(sample, domains, config.quality, work, lab.root / "work" / "labels").report
        encoder = Encoder(tokenizer_of(sample, config.tokenise, work), sample["text"][:256].to_pylist())
        return {"engine": encoder.engine, "note": encoder.note}


def identity_of(name: str, partitions: Sequence[Path], sources: Sequence[Source], config: BuildConfig, steps: Sequence[Step] = ()) -> str:
    """What a build is: hash of the code's version, every parameter, the sources, the earlier steps, the bytes of the input and of models."""
    key = StepKey(
        name="build",
        version=VERSION,
        parameters={"name": name, "config": _placeless(config), "sources": list(sources), "steps": list(steps)},
        inputs=(*_input_digests(partitions), *_model_digests(config)),
        modules=tuple(module for modules in STEP_CODE.values() for module in modules),
    )
    return key.identity


def _input_digests(partitions: Sequence[Path]) -> list[str]:
    """Content digests in sorted order: a store does not depend on how its input is cut into files only if the documents agree."""
    return sorted(file_digest(path) for path in partitions)


def located(config: BuildConfig, folder: Path) -> BuildConfig:
    """The same build with its models where they are: beside the recipe in `folder`, else from where the command runs; whole paths, for any worker."""

    def found(path: str) -> str:
        return str(((folder / path) if (folder / path).exists() else Path(path)).resolve()) if path else path

    embed = replace(config.embed, model=found(config.embed.model)) if config.embed.encoder in IN_FOLDERS else config.embed
    return replace(config, embed=embed, tokenise=replace(config.tokenise, tokenizer=found(config.tokenise.tokenizer)))


def _placeless(config: BuildConfig) -> BuildConfig:
    """The parameters as identities hold them: models by the names of their files, whose bytes count beside it, wherever they lie."""
    embed = replace(config.embed, model=Path(config.embed.model).name) if config.embed.encoder in IN_FOLDERS else config.embed
    return replace(config, embed=embed, tokenise=replace(config.tokenise, tokenizer=Path(config.tokenise.tokenizer).name))


def _model_digests(config: BuildConfig) -> list[str]:
    """Of the files that the config names: another model under the same path is another build. A missing one is refused where it is read."""
    return [*_digests(weight_files(config.embed)), *_digests([Path(config.tokenise.tokenizer)] if config.tokenise.tokenizer else [])]


def _digests(files: Sequence[Path]) -> list[str]:
    return [f"{path.name} {file_digest(path) if path.is_file() else 'missing'}" for path in files]


def _documents_digest(partitions: Sequence[Path]) -> str:
    """Of the documents and where they came from, in any order and however they are cut into files."""
    total = 0
    for path in partitions:
        table = pq.read_table(path, columns=["id", "source", "source_id"])
        for row in zip(*(table[name].to_pylist() for name in table.column_names)):
            total += xxhash.xxh3_128_intdigest("\0".join(map(str, row)).encode("utf-8", "replace"))
    return f"{total % (1 << 128):032x}"


def _own_steps(
    config: BuildConfig,
    inputs: tuple[str, ...],
    total: int,
    errors: QuantizationError,
    domains: DomainModel,
    quality: QualityModel,
    encoder: Encoder,
) -> list[Step]:
    files = {"embed": weight_files(config.embed), "tokenise": [Path(config.tokenise.tokenizer)] if config.tokenise.tokenizer else []}
    config = _placeless(config)
    reports = {
        "embed": (config.embed, {"encoder": config.embed.encoder, "quantization": errors.report()}),
        "cluster": (config.cluster, domains.report),
        "quality": (config.quality, quality.report),
        "tokenise": (config.tokenise, {"engine": encoder.engine, "note": encoder.note}),
    }
    steps: list[Step] = []
    before = inputs
    for name, (parameters, report) in reports.items():
        inputs = (*before, *_digests(files.get(name, [])))
        key = StepKey(name=name, version=VERSION, parameters=parameters, inputs=inputs, modules=STEP_CODE[name])
        before = (key.identity,)
        steps.append(Step(name=name, identity=key.identity, documents_in=total, documents_out=total, report=report))
    return steps
