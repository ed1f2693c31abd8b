"""`forerun curate`: documents to a token store, whole or stage by stage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Documents to a token store, with a reason for every document dropped. Example: forerun curate run my-texts --lab my-lab",
)
RecipeArgument = Annotated[Path, typer.Argument(help="RECIPE.toml, or a folder of text, HTML, JSONL, Parquet, WARC or Arrow files")]
PresetOption = Annotated[str, typer.Option(help="near-duplicate search: marin (26 x 11, characters) or fineweb (14 x 8, words)")]
WorkersOption = Annotated[int, typer.Option(min=0, help="worker processes; 0 keeps the recipe's")]
RunnerOption = Annotated[str, typer.Option(help="native, ray or loop; empty keeps the recipe's")]
SetOption = Annotated[list[str], typer.Option("--set", help="change a field: text.survivors.containment=0.9")]

SUMMARIES = {
    "ingest": "Read every source to raw parts; what cannot be read is counted and named.",
    "normalize": "One spelling and one id per text, in partitions sorted by id.",
    "exact_dedup": "Keep one copy of equal texts, that of the first source.",
    "filters": "Drop by language, licence or personal data, where the recipe asks for it.",
    "fuzzy_dedup": "Drop a text when a kept one holds its content; every decision is a row.",
    "decontaminate": "Drop training text that holds evaluation items; recall is measured on planted leaks.",
    "embed": "A vector per document.",
    "cluster": "Domains from vectors, with names.",
    "quality": "Quality buckets from a teacher's labels or documented rules.",
    "tokenise": "Train or take a tokenizer, and check the fast encoder against it.",
    "store": "Token shards by domain and quality, with the provenance of every document.",
}


@app.command()
def run(
    recipe: RecipeArgument,
    lab: LabOption = HERE,
    preset: PresetOption = "",
    workers: WorkersOption = 0,
    runner: RunnerOption = "",
    changes: SetOption = [],  # noqa: B006  typer reads it
    as_json: JsonOption = False,
) -> None:
    """Run every stage; killed, it continues, and unchanged input does no work.

    Example: forerun curate run recipe.toml --preset fineweb --workers 4
    """
    _run(recipe, lab, preset, workers, runner, changes, as_json, None)


def _stage(name: str) -> Callable[..., None]:
    """The command of one stage."""

    def command(
        recipe: RecipeArgument,
        lab: LabOption = HERE,
        preset: PresetOption = "",
        workers: WorkersOption = 0,
        runner: RunnerOption = "",
        changes: SetOption = [],  # noqa: B006  typer reads it
        as_json: JsonOption = False,
    ) -> None:
        _run(recipe, lab, preset, workers, runner, changes, as_json, name)

    command.__doc__ = (
        f"{SUMMARIES[name]} Earlier stages that are done are taken over.\n\nExample: forerun curate {name.replace('_', '-')} recipe.toml"
    )
    return command


for _name in SUMMARIES:
    app.command(_name.replace("_", "-"))(_stage(_name))


def _run(path: Path, lab: Path, preset: str, workers: int, runner: str, changes: list[str], as_json: bool, until: Any) -> None:
    from forerun.curate.recipe import load_recipe, run_recipe
    from forerun.curate.remove import returned

    overrides = [*changes, *([f"engine.workers={workers}"] if workers else []), *([f"engine.runner={runner}"] if runner else [])]
    recipe = load_recipe(path, overrides=overrides, preset=preset)
    done = run_recipe(recipe, Path() if path.is_dir() else path.parent, lab_at(lab), until=until)
    digest = done.manifest.digest if done.manifest else None
    for step in done.steps:
        for name, reason in step.report.get("set_aside", {}).items():
            print(f"{step.name}: {name} was set aside: it {reason}", file=sys.stderr)
        for note in step.report.get("notes", []):
            print(f"{step.name}: {note}", file=sys.stderr)
    back = returned(lab_at(lab), done.manifest) if done.manifest else ()
    if back:
        print(f"{len(back)} documents removed earlier are in this manifest, such as {back[0]}", file=sys.stderr)
        print("use the amended manifest that `forerun data remove` printed, or remove them from this one too", file=sys.stderr)
    if as_json:
        print_json({"manifest": digest, "steps": done.steps, "cells": done.manifest.cells if done.manifest else [], "report": done.report})
        return
    for step in done.steps:
        reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in step.dropped.items())
        print(f"{step.name:14} {step.documents_in:>9,} -> {step.documents_out:>9,}  {reasons}")
    if digest:
        print(f"manifest {digest}")
    else:
        for key, value in done.report.items():
            print(f"{key}: {value}")
