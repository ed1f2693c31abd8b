"""`forerun amend EXPERIMENT`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog='Example: forerun amend 001 --what "mixture b" --reason "better data" --at-step 400 --expected "loss +0.02"')
def amend(
    experiment: Annotated[str, typer.Argument(help="name, number or slug of a registered experiment")],
    reason: Annotated[str, typer.Option(help="why")],
    what: Annotated[str, typer.Option(help="what changes")],
    at_step: Annotated[int, typer.Option(help="step from which it holds")],
    expected: Annotated[str, typer.Option(help="expected effect, with its direction and size")],
    control: Annotated[str, typer.Option(help="run it is compared with")] = "",
    lab: LabOption = HERE,
) -> None:
    """Declare a mid-course change, before it is made; an edited config.py is frozen and allowed from here on."""
    from forerun.base.config import plain
    from forerun.cli.experiments import config_of
    from forerun.registry.changes import amend as chain
    from forerun.registry.changes import registration_of

    place = lab_at(lab)
    folder = place.experiments / registration_of(place, experiment).experiment
    config = plain(config_of(folder)) if (folder / "config.py").exists() else None
    entry = chain(place, experiment, reason=reason, what=what, at_step=at_step, expected=expected, control=control, config=config)
    new = f"  new config {entry.body['config_digest'][:12]}" if "config_digest" in entry.body else ""
    print(f"amended {entry.body['experiment']} at step {at_step}  line {entry.seq}  {entry.digest[:16]}{new}")
