"""What a build of a store is: its parameters, the code and the models that decide its bytes, and the identities made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import xxhash

from forerun.base.config import file_digest
from forerun.base.errors import ConfigError
from forerun.curate.cluster.domains import ClusterConfig
from forerun.curate.embed.encoders import EmbedConfig, weight_files
from forerun.curate.quality.model import QualityConfig
from forerun.curate.steps import StepKey
from forerun.curate.text.walk import WORDS_CODE
from forerun.curate.tokenise import TokeniseConfig
from forerun.loader.manifest import Source, Step

STEP_CODE = {
    "embed": (
        *(f"forerun.curate.embed.{name}" for name in ("encoders", "endpoint", "layout", "onnx", "quantize", "static", "tfidf", "words")),
        *(f"forerun.curate.{name}" for name in ("arrays", "growing", "patience", "tokenizer_file")),
        *WORDS_CODE,
    ),
    "cluster": (
        *(f"forerun.curate.cluster.{name}" for name in ("ask_names", "checks", "domains", "kmeans", "merge", "names")),
        *(f"forerun.curate.{name}" for name in ("patience", "quality.answer", "spill")),
    ),
    "quality": (
        *(
            f"forerun.curate.quality.{name}"
            for name in ("answer", "calibrate", "heuristic", "model", "report", "statistics", "student", "teacher")
        ),
        "forerun.curate.patience",
        *WORDS_CODE,
    ),
    "tokenise": ("forerun.curate.tokenise", "forerun.curate.tokenizer_file"),
    "store": (
        "forerun.curate.build",
        *(f"forerun.curate.{name}" for name in ("build_identity", "build_stages", "build_tasks", "sample", "spill", "store")),
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
    return _digests([*weight_files(config.embed), *_tokenizer_files(config)])


def _tokenizer_files(config: BuildConfig) -> list[Path]:
    return [Path(config.tokenise.tokenizer)] if config.tokenise.tokenizer else []


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


def own_steps(config: BuildConfig, partitions: Sequence[Path], total: int, reports: Mapping[str, dict[str, Any]]) -> list[Step]:
    """The stages of the build as the manifest lists them, each with the identity of what it made and with its report.

    Args:
        total: documents in the partitions; no stage here drops any.
        reports: stage to what it measured about itself.
    """
    stated = _placeless(config)
    parameters = {"embed": stated.embed, "cluster": stated.cluster, "quality": stated.quality, "tokenise": stated.tokenise}
    files = {"embed": weight_files(config.embed), "tokenise": _tokenizer_files(config)}
    steps: list[Step] = []
    before = (_documents_digest(partitions),)
    for name, report in reports.items():
        inputs = (*before, *_digests(files.get(name, [])))
        key = StepKey(name=name, version=VERSION, parameters=parameters[name], inputs=inputs, modules=STEP_CODE[name])
        before = (key.identity,)
        steps.append(Step(name=name, identity=key.identity, documents_in=total, documents_out=total, report=report))
    return steps
