"""`forerun fork RUN --at-step N`."""

from __future__ import annotations

from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun fork tiny --at-step 400 --set optim.adam_learning_rate=0.02")
def fork(
    run: Annotated[str, typer.Argument(help="run to continue from")],
    at_step: Annotated[int, typer.Option(help="step of one of its checkpoints")],
    run_id: Annotated[str, typer.Option(help="name of the fork; by default RUN-fork-STEP")] = "",
    change: Annotated[list[str], typer.Option("--set", help="change a field of the config")] = [],  # noqa: B006  typer reads it
    stop_at_step: Annotated[int, typer.Option(help="last step of the fork; 0 goes to the end")] = 0,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Continue a run from a checkpoint on the same batches, changed or not, and report the paired difference."""
    from forerun.base.config import load_json, with_overrides
    from forerun.train.config import RunConfig
    from forerun.train.fork import paired, prepare
    from forerun.train.loop import train

    place, fork_id = lab_at(lab), run_id or f"{run}-fork-{at_step}"
    after = with_overrides(load_json(place.run(run) / "config.json", RunConfig), change)
    prepare(place, run, at_step, fork_id, last_step=stop_at_step or after.train.num_steps)
    declared = f"fork of {run} at step {at_step}: {'; '.join(change) or 'nothing changed'}"
    train(after, place, run_id=fork_id, registration=None, stop_after=stop_at_step, changed=declared)
    result = paired(place, run, fork_id)
    if as_json:
        print_json(result)
    else:
        print(
            f"{fork_id} - {run}  steps {result.first_step}-{result.last_step}  loss_nats {result.loss_nats:+.5f} ± {result.standard_error:.5f}"
            f"  eval/macro_loss_nats {result.macro_loss_nats:+.5f}"
        )
