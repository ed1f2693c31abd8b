"""`forerun curate run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Documents to a token store, with a reason for every document dropped.")


@app.callback()
def curate() -> None:
    """Documents to a token store."""


@app.command(epilog="Example: forerun curate run my-texts --lab my-lab")
def run(
    recipe: Annotated[Path, typer.Argument(help="RECIPE.toml, or a folder of text, JSONL or Parquet files.")],
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Run every stage; killed, it continues, and unchanged input does no work."""
    from forerun.curate.recipe import run_recipe

    manifest = run_recipe(recipe, lab_at(lab))
    if as_json:
        print_json({"manifest": manifest.digest, "steps": manifest.steps, "cells": manifest.cells})
        return
    for step in manifest.steps:
        reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in step.dropped.items())
        print(f"{step.name:14} {step.documents_in:>9,} -> {step.documents_out:>9,}  {reasons}")
    print(f"manifest {manifest.digest}")
