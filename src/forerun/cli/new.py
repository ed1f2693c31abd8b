"""`forerun new SLUG`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun new top-k-4 --lab my-lab")
def new(slug: Annotated[str, typer.Argument(help="lower-case words joined by '-'")], lab: LabOption = HERE) -> None:
    """Start an experiment folder from a template."""
    from forerun.registry.template import create

    folder = create(lab_at(lab), slug)
    print(f"made {folder}: fill in experiment.toml and config.py, then `forerun register {folder.name}`")
