"""Clean documents to a store: embed, find domains, learn quality, tokenise, write. The second half of the pipeline in one walk.

Input are partition files of deduplicated documents. Every stage works a partition at a time and leaves files in a work folder
named by the build's identity, so a killed build goes on where it stopped and a changed parameter starts afresh. Models are
trained on samples drawn by document id, so the number and order of partitions do not matter.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from forerun.base.config import load_json
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.curate.build_identity import BuildConfig, identity_of, own_steps
from forerun.curate.build_stages import domains_of, embedded, quality_of, spilled, tokenizer_of, training_sample
from forerun.curate.cluster.map import keep_map
from forerun.curate.engine.config import EngineConfig
from forerun.curate.steps import alone
from forerun.curate.store import StoreSpec, StoreWriter
from forerun.curate.tokenise import Encoder
from forerun.curate.tokenizer_file import end_of_document_id, vocab_size_of
from forerun.loader.manifest import Manifest, Source, Step, load_manifest

BuildStage = Literal["embed", "cluster", "quality", "tokenise", "store"]
BUILD_STAGES: tuple[BuildStage, ...] = ("embed", "cluster", "quality", "tokenise", "store")


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
    reports = {
        "embed": {"encoder": config.embed.encoder, "quantization": errors.report()},
        "cluster": domains.report,
        "quality": quality.report,
        "tokenise": {"engine": encoder.engine, "note": encoder.note},
    }
    writer.spec = replace(spec, steps=(*steps, *own_steps(config, partitions, total, reports)))
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
