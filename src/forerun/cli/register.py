"""`forerun register EXPERIMENT`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun register 001-top-k-4 --lab my-lab")
def register(
    experiment: Annotated[str, typer.Argument(help="folder, name, number or slug")], lab: LabOption = HERE, as_json: JsonOption = False
) -> None:
    """Freeze an experiment's config and chain its promise into the ledger."""
    from pathlib import Path

    from forerun.base.config import plain
    from forerun.cli.experiments import config_of, folder_of
    from forerun.registry.register import register as chain

    folder = folder_of(lab_at(lab), experiment)
    registration = chain(lab_at(lab), folder, plain(config_of(folder)), code=Path.cwd())
    if as_json:
        print_json(registration)
    else:
        print(
            f"registered {registration.experiment}  promise {registration.id}  config {registration.config_digest[:12]}  {registration.time}"
        )
