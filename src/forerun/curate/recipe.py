"""`RECIPE.toml`: which sources make a data set, and the parameters of every stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from forerun.base.config import load_toml
from forerun.base.errors import ConfigError
from forerun.base.lab import Lab
from forerun.curate.build import BuildConfig, build_store
from forerun.curate.ingest.source import SourceFile, sources_in
from forerun.curate.text.pipeline import TextConfig, clean
from forerun.loader.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class RecipeSource:
    """One source of documents."""

    name: str
    """Short name; documents carry it."""
    path: str
    """A JSONL (plain, gzip, zstd) or Parquet file, or a folder of text; relative to the recipe."""
    licence: str
    """As stated by the source."""
    revision: str = ""
    """Version or commit; empty takes the content's digest."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A data set from start to end."""

    schema: Literal[1] = 1
    name: str
    """Of the data set."""
    sources: tuple[RecipeSource, ...]
    """At least one."""
    text: TextConfig = field(default_factory=TextConfig)
    """Parameters of ingest to decontamination."""
    build: BuildConfig = field(default_factory=BuildConfig)
    """Parameters of embedding to store."""

    def __post_init__(self) -> None:
        names = [source.name for source in self.sources]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"sources must be one or more with different names, got {names}", hint="name each source once")
        if self.text.held_out_fraction != self.build.held_out_fraction:
            raise ConfigError(
                f"text.held_out_fraction must equal build.held_out_fraction={self.build.held_out_fraction}, got {self.text.held_out_fraction}",
                hint="documents held out must be the ones kept away from training",
            )


def run_recipe(path: Path, lab: Lab) -> Manifest:
    """All stages of a recipe file, or of a folder of text with default parameters; unchanged input does no work."""
    if path.is_dir():
        files, name, text, build = sources_in(path), path.name, TextConfig(), BuildConfig()
    else:
        recipe = load_toml(path, Recipe)
        files = [
            SourceFile(name=source.name, path=path.parent / source.path, licence=source.licence, revision=source.revision)
            for source in recipe.sources
        ]
        missing = [file for file in files if not file.path.exists()]
        if missing:
            raise ConfigError(f"source {missing[0].name!r}: {missing[0].path} does not exist", hint="paths are relative to the recipe")
        name, text, build = recipe.name, recipe.text, recipe.build
    cleaned = clean(lab, files, text)
    return build_store(lab, name, cleaned.partitions, cleaned.sources, build, steps=cleaned.steps)
