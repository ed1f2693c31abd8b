"""The first half of the pipeline: ingest, normalise, exact dedup, filters, fuzzy dedup, decontamination; then partitions for the store.

Every stage leaves its files in a folder named by its identity, so a changed parameter starts afresh from that stage on, an
unchanged run does nothing, and a killed one goes on with the parts that are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import plain
from forerun.base.errors import ConfigError, DataError
from forerun.base.files import storage_errors
from forerun.base.lab import Lab
from forerun.curate.engine.config import EngineConfig
from forerun.curate.ingest.records import IngestConfig
from forerun.curate.ingest.source import SourceFile
from forerun.curate.steps import StepFolder, StepKey, alone
from forerun.curate.text.attributes import part_name
from forerun.curate.text.compare import decontaminate_step, fuzzy_step
from forerun.curate.text.decontaminate import DecontaminateConfig
from forerun.curate.text.exact import ExactConfig
from forerun.curate.text.filters import FilterConfig
from forerun.curate.text.gather import RawSource, ingest, normalize_step
from forerun.curate.text.minhash import MinHashConfig
from forerun.curate.text.normalize import NormalizeConfig
from forerun.curate.text.survivors import SurvivorConfig
from forerun.curate.text.walk import (
    RULES_CODE,
    SHARED_CODE,
    STAGES,
    WORDS_CODE,
    Attribute,
    Walk,
    attribute_step,
    num_partitions,
    part_tasks,
)
from forerun.loader.manifest import Source, Step, stated_of

TextStage = Literal["ingest", "normalize", "exact_dedup", "filters", "fuzzy_dedup", "decontaminate"]
EXACT_CODE = (*SHARED_CODE, "forerun.curate.text.exact")
FILTER_CODE = (*SHARED_CODE, *WORDS_CODE, *RULES_CODE, "forerun.curate.text.filters")
TEXT_STAGES: tuple[TextStage, ...] = ("ingest", "normalize", "exact_dedup", "filters", "fuzzy_dedup", "decontaminate")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Parameters of the first half; each is part of the identity of the stage that reads it."""

    ingest: IngestConfig = field(default_factory=IngestConfig)
    """How bytes become documents."""
    normalize: NormalizeConfig = field(default_factory=NormalizeConfig)
    """How a text is spelled, and cut into partitions."""
    exact: ExactConfig = field(default_factory=ExactConfig)
    """Whose copy of equal texts stays."""
    filters: FilterConfig = field(default_factory=FilterConfig)
    """Language, licence, personal data; off by default."""
    fuzzy: MinHashConfig = field(default_factory=MinHashConfig)
    """Which documents are compared."""
    survivors: SurvivorConfig = field(default_factory=SurvivorConfig)
    """Which of them go."""
    decontaminate: DecontaminateConfig = field(default_factory=DecontaminateConfig)
    """Which documents hold evaluation text."""
    held_out_fraction: float = 0.01
    """Share of documents kept for evaluation, by the hash of their content."""

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_fraction < 1:
            raise ConfigError(f"held_out_fraction must lie in 0..1, 1 excluded, got {self.held_out_fraction}", hint="0.01 is usual")


@dataclass(frozen=True, kw_only=True)
class CleanText:
    """What the first half hands on."""

    partitions: tuple[Path, ...]
    """Parquet with `id`, `text`, `source`, `source_id`, `licence`, by id; ids are unique over all."""
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    evidence: dict[str, Path]
    """Step to the file that explains each of its removals."""


def clean(
    lab: Lab,
    files: Sequence[SourceFile],
    config: TextConfig,
    *,
    evals: pa.Table | None = None,
    engine: EngineConfig | None = None,
    quiet: bool = False,
) -> CleanText:
    """Run the text stages over some sources.

    Args:
        evals: further evaluation items to keep out, `id` and `text`.
        engine: where the work runs; it changes no byte of the result.
    Raises: DataError when no document is left, with the reasons.
    """
    walk = Walk(lab.root / "work", engine or EngineConfig(), quiet)
    done = take_steps(walk, files, config, evals=evals)
    assert done is not None
    return done


def take_steps(
    walk: Walk, files: Sequence[SourceFile], config: TextConfig, *, evals: pa.Table | None = None, until: TextStage | None = None
) -> CleanText | None:
    """The stages in order, up to one of them or to the end; `walk.steps` says what each did. None when it stopped early."""
    names = [file.name for file in files]
    unknown = [name for name in (*config.exact.source_order, *config.survivors.exempt_sources) if name not in names]
    if unknown:
        raise ConfigError(
            f"source {unknown[0]!r} is named by a stage but is not among the sources", hint=f"sources: {', '.join(sorted(names))}"
        )
    with alone(walk.root), storage_errors(walk.root):
        raw = ingest(walk, sorted(files, key=lambda file: file.name), config.ingest)
        if until == "ingest":
            return None
        partitions = normalize_step(walk, raw, config.normalize)
        if until == "normalize":
            return None
        attributes = [_marked(walk, "exact_dedup", "exact_part", config.exact, EXACT_CODE, partitions, [])]
        if until == "exact_dedup":
            return None
        if config.filters.is_on:
            attributes.append(_marked(walk, "filters", "filter_part", config.filters, FILTER_CODE, partitions, attributes))
        if until == "filters":
            return None
        _require_documents(walk, raw)
        attributes.append(fuzzy_step(walk, partitions, attributes, config.fuzzy, config.survivors))
        if until == "fuzzy_dedup":
            return None
        attributes.append(decontaminate_step(walk, partitions, attributes, config.decontaminate, config.held_out_fraction, evals))
        if until == "decontaminate":
            return None
        return _passed(walk, raw, partitions, attributes, with_language=bool(config.filters.languages))


def _marked(
    walk: Walk, name: str, task: str, parameters: object, modules: tuple[str, ...], partitions: Attribute, earlier: Sequence[Attribute]
) -> Attribute:
    """A stage that looks at one partition at a time."""
    key = StepKey(
        name=name,
        version=1,
        parameters=parameters,
        inputs=(partitions.outcome.digest, *(one.outcome.digest for one in earlier)),
        modules=modules,
    )
    return attribute_step(walk, key, partitions, earlier, f"{STAGES}:{task}", {"config": plain(parameters)}, light=name == "exact_dedup")


def _passed(
    walk: Walk, raw: Sequence[RawSource], partitions: Attribute, attributes: Sequence[Attribute], *, with_language: bool
) -> CleanText:
    """Write the documents that nothing dropped. Not a step of the manifest: it decides nothing."""
    key = StepKey(
        name="passed",
        version=1,
        parameters={"with_language": with_language},
        inputs=(partitions.outcome.digest, *(one.outcome.digest for one in attributes)),
        modules=SHARED_CODE,
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    names = [part_name(index) for index in range(num_partitions(partitions))]
    if outcome is None:
        path = folder.prepare()
        tasks = part_tasks(folder, partitions, attributes, f"{STAGES}:pass_part", {"with_language": with_language})
        aside = walk.run("write partitions", tasks, path, light=True)
        if aside:
            raise DataError(f"{min(aside)} {aside[min(aside)]}", hint="lower normalize.partition_bytes, or use a machine with more memory")
        rows = sum(pq.read_metadata(path / name).num_rows for name in names)
        outcome = folder.finish(names, documents_in=rows, documents_out=rows, dropped={}, report={"sources": _per_source(path, names)})
    if not outcome.documents_out:
        reasons = ", ".join(f"{reason} {count}" for step in walk.steps for reason, count in step.dropped.items())
        raise DataError(
            f"no document is left of {sum(one.num_documents_in for one in raw)} read", hint=f"dropped: {reasons or 'none read'}"
        )
    by_name = {step.name: StepFolder(walk.root, one.folder.key).path for step, one in zip(walk.steps[2:], attributes)}
    evidence = {"normalize": partitions.folder.path / "dropped.parquet"}
    evidence |= {
        name: by_name[name] / file for name, file in (("fuzzy_dedup", "decisions.parquet"), ("decontaminate", "contaminated.parquet"))
    }
    return CleanText(
        partitions=tuple(folder.path / name for name in names),
        sources=tuple(_source(one, outcome.report["sources"].get(one.source.name, 0)) for one in raw),
        steps=tuple(walk.steps),
        evidence=evidence,
    )


def _require_documents(walk: Walk, raw: Sequence[RawSource]) -> None:
    """Raises: DataError when the last step left nothing."""
    if not walk.steps[-1].documents_out:
        reasons = ", ".join(f"{reason} {count}" for step in walk.steps for reason, count in step.dropped.items())
        raise DataError(
            f"no document is left of {sum(one.num_documents_in for one in raw)} read", hint=f"dropped: {reasons or 'none read'}"
        )


def _per_source(path: Path, names: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        for entry in pc.value_counts(pq.read_table(path / name, columns=["source"])["source"]).to_pylist():
            counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    return dict(sorted(counts.items()))


def _source(raw: RawSource, num_documents: int) -> Source:
    return Source(
        name=raw.source.name,
        licence=raw.source.licence,
        revision=raw.source.revision or raw.documents_digest[:16],
        num_documents_in=raw.num_documents_in,
        num_documents=num_documents,
        num_tokens=0,
        **vars(stated_of(raw.source)),
    )
