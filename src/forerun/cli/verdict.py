"""`forerun verdict EXPERIMENT`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun verdict 001 --run big-d128 --lab my-lab --json")
def verdict(
    experiment: Annotated[str, typer.Argument(help="name, number or slug of a registered experiment")],
    run: Annotated[str, typer.Option(help="run id; by default the one started under this promise")] = "",
    record: Annotated[bool, typer.Option(help="chain the verdict into the ledger")] = True,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> int:
    """Score a promise against the record: kept, missed or deviated. Exit code 1 when it was not kept."""
    from forerun.registry.changes import registration_of
    from forerun.registry.verdict import judge, record_verdict, run_of

    place = lab_at(lab)
    registration = registration_of(place, experiment)
    answer = judge(place, registration, place.run(run) if run else run_of(place, registration))
    if record:
        record_verdict(place, answer)
    print_json(answer) if as_json else print(answer.words)
    return 0 if answer.answer == "kept" else 1
