"""`RECIPE.toml`: which sources make a data set, and the parameters of every stage. A folder of text is a recipe of defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from forerun.base.config import load_toml, with_overrides
from forerun.base.errors import ConfigError
from forerun.base.lab import Lab
from forerun.curate.build import BUILD_STAGES, BuildStage, build_store, build_until
from forerun.curate.build_identity import BuildConfig, located
from forerun.curate.engine.config import EngineConfig
from forerun.curate.ingest.source import Format, SourceFile, sources_in
from forerun.curate.text.minhash import PRESETS
from forerun.curate.text.pipeline import TEXT_STAGES, TextConfig, TextStage, clean, take_steps
from forerun.curate.text.walk import Walk
from forerun.loader.manifest import Manifest, Stated, Step, stated_of

Stage = TextStage | BuildStage
STAGES: tuple[Stage, ...] = (*TEXT_STAGES, *BUILD_STAGES)


@dataclass(frozen=True, kw_only=True)
class RecipeSource(Stated):
    """One source of documents."""

    name: str
    """Short name; documents carry it."""
    path: str
    """A file, a folder, a pattern with `*`, or a URL that fsspec opens; relative to the recipe."""
    licence: str
    """As stated by the source."""
    revision: str = ""
    """Version or commit; empty takes a digest of the documents."""
    format: Format = "by_name"
    """How to read the files; by default their names say it."""
    text_field: str = "text"
    """Field or column of the text."""
    id_field: str = ""
    """Field or column that names a document; empty takes the first there is of `id`, `source_id`, `path`, `url`."""
    licence_field: str = ""
    """Field or column of a document's own licence; empty: all have the source's."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A data set from start to end."""

    schema: Literal[1] = 1
    """Of this file."""
    name: str
    """Of the data set."""
    sources: tuple[RecipeSource, ...]
    """At least one."""
    evals: tuple[str, ...] = ()
    """Files or folders of evaluation items to keep out: task files of lm-eval-harness, or records; relative to the recipe."""
    evals_data: str = ""
    """Folder with the data sets that task files name; relative to the recipe."""
    text: TextConfig = field(default_factory=TextConfig)
    """Parameters of ingest to decontamination."""
    build: BuildConfig = field(default_factory=BuildConfig)
    """Parameters of embedding to store."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """Where the work runs; changes no byte of the result and is not part of its identity."""

    def __post_init__(self) -> None:
        names = [source.name for source in self.sources]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"sources must be one or more with different names, got {names}", hint="name each source once")
        if self.text.held_out_fraction != self.build.held_out_fraction:
            raise ConfigError(
                f"text.held_out_fraction must equal build.held_out_fraction={self.build.held_out_fraction}, got {self.text.held_out_fraction}",
                hint="documents held out must be the ones kept away from training",
            )


@dataclass(frozen=True, kw_only=True)
class Progressed:
    """How far a recipe was taken."""

    steps: tuple[Step, ...]
    """What each stage did."""
    report: dict[str, Any]
    """What the last stage says about itself."""
    manifest: Manifest | None = None
    """Of the finished store."""


def load_recipe(path: Path, *, overrides: list[str], preset: str = "") -> Recipe:
    """A recipe file, or the recipe of a folder; with changes from the command line.

    Args:
        overrides: `dotted.field=value`.
        preset: of near-duplicate search, `marin` or `fineweb`.
    """
    if path.is_dir():
        sources = tuple(
            RecipeSource(name=source.name, path=str(Path(source.path).resolve()), licence=source.licence, format=source.format)
            for source in sources_in(path)
        )
        recipe = Recipe(name=path.resolve().name, sources=sources)
    else:
        recipe = load_toml(path, Recipe)
    if preset:
        if preset not in PRESETS:
            raise ConfigError(f"there is no preset {preset!r}", hint=f"presets: {', '.join(PRESETS)}")
        recipe = replace(recipe, text=replace(recipe.text, fuzzy=PRESETS[preset]))
    return with_overrides(recipe, overrides) if overrides else recipe


def run_recipe(recipe: Recipe, folder: Path, lab: Lab, *, until: Stage | None = None) -> Progressed:
    """The stages of a recipe, to the end or up to one of them; unchanged input does no work, a killed run goes on.

    Args:
        folder: relative paths of the recipe start here.
    """
    files = _files(recipe, folder)
    evals = _evals(recipe, folder)
    if until in TEXT_STAGES:
        walk = Walk(lab.root / "work", recipe.engine, quiet=False)
        take_steps(walk, files, recipe.text, evals=evals, until=until)
        return Progressed(steps=tuple(walk.steps), report=walk.steps[-1].report)
    cleaned = clean(lab, files, recipe.text, evals=evals, engine=recipe.engine)
    build = located(recipe.build, folder)
    build_stage: BuildStage | None = next((stage for stage in BUILD_STAGES if stage == until), None)
    if build_stage is not None:
        report = build_until(
            lab, recipe.name, cleaned.partitions, cleaned.sources, build, build_stage, steps=cleaned.steps, engine=recipe.engine
        )
        return Progressed(steps=cleaned.steps, report=report)
    manifest = build_store(lab, recipe.name, cleaned.partitions, cleaned.sources, build, steps=cleaned.steps, engine=recipe.engine)
    return Progressed(steps=manifest.steps, report={}, manifest=manifest)


def _files(recipe: Recipe, folder: Path) -> list[SourceFile]:
    return [
        SourceFile(
            name=source.name,
            path=source.path if "://" in source.path else str(folder / source.path),
            licence=source.licence,
            revision=source.revision,
            format=source.format,
            text_field=source.text_field,
            id_field=source.id_field,
            licence_field=source.licence_field,
            **vars(stated_of(source)),
        )
        for source in recipe.sources
    ]


def _evals(recipe: Recipe, folder: Path) -> pa.Table | None:
    if not recipe.evals:
        return None
    from forerun.curate.text.evals import load_evals

    return load_evals([folder / path for path in recipe.evals], data=folder / recipe.evals_data if recipe.evals_data else None)
