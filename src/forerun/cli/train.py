"""`forerun train EXPERIMENT`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun train 001-top-k-4 --lab my-lab")
def train(
    experiment: Annotated[str, typer.Argument(help="experiment (folder, name, number or slug), or a config.json")],
    run_id: Annotated[str, typer.Option(help="name of the run; by default the config's")] = "",
    unregistered: Annotated[bool, typer.Option("--unregistered", help="run without a promise; the record says so for ever")] = False,
    change: Annotated[list[str], typer.Option("--set", help="change a field, for example train.num_steps=50")] = [],  # noqa: B006  typer reads it
    stop_at_step: Annotated[int, typer.Option(help="stop after this step and keep its checkpoint for ever; 0 goes to the end")] = 0,
    watchdog_s: Annotated[float, typer.Option(help="end the process, stacks written, when one phase lasts longer; 0 never")] = 0.0,
    processes: Annotated[int, typer.Option(help="share the mesh out over this many processes of this machine")] = 1,
    mirror: Annotated[str, typer.Option(help="send every row to another tracker too: wandb or trackio")] = "",
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Train a registered experiment; killed at any moment, the same command continues."""
    from pathlib import Path

    from forerun.base.config import digest_of, load_json, with_overrides
    from forerun.cli.experiments import config_of, folder_of
    from forerun.registry.gate import require_registered
    from forerun.train.config import RunConfig

    place = lab_at(lab)
    config = load_json(Path(experiment), RunConfig) if experiment.endswith(".json") else config_of(folder_of(place, experiment))
    config = with_overrides(config, change)
    registration = None if unregistered else require_registered(place, digest_of(config))
    from forerun.train.launch import follow_parent, is_launched, launch

    if processes != 1 and not is_launched():
        raise typer.Exit(launch(sys.argv[1:], processes, config.mesh.num_devices))
    follow_parent()
    from forerun.parallel.processes import ending_together, is_first, join

    join()
    from forerun.train.loop import train as run

    with ending_together():
        result = run(
            config,
            place,
            run_id=run_id or config.name,
            registration=registration,
            stop_after=stop_at_step,
            watchdog_s=watchdog_s,
            mirror=mirror,
        )
    if not is_first():
        return
    if as_json:
        print_json(result)
    else:
        print(f"{result.run_id}  {result.num_steps} steps  eval/macro_loss_nats {result.evaluation['eval/macro_loss_nats']:.4f}")
