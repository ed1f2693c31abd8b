"""`forerun close EXPERIMENT`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, LabOption, lab_at

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun close 001 --outcome crashed --fraction-done 0.81 --note 'node lost'")
def close(
    experiment: Annotated[str, typer.Argument(help="name, number or slug of a registered experiment")],
    outcome: Annotated[str, typer.Option(help="succeeded, failed, stopped, crashed, abandoned or inconclusive")],
    note: Annotated[str, typer.Option(help="one sentence")] = "",
    fraction_done: Annotated[float | None, typer.Option(help="share of the planned run, 0 to 1; by default from the record")] = None,
    lab: LabOption = HERE,
) -> None:
    """Say how an experiment ended, once and for all."""
    from forerun.registry.changes import close as chain

    entry = chain(lab_at(lab), experiment, outcome, note=note, fraction_done=fraction_done)
    print(f"closed {entry.body['experiment']} as {outcome}  fraction_done {entry.body['fraction_done']:.3f}  line {entry.seq}")
