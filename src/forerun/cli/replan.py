"""`forerun replan EXPERIMENT`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from forerun.base import units
from forerun.cli.options import HERE, JsonOption, LabOption, lab_at, print_json

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: forerun replan 001 --num-steps 8000 --mixture later.json --run big-run")
def replan(
    experiment: Annotated[str, typer.Argument(help="name, number or slug of a registered experiment")],
    num_steps: Annotated[int, typer.Option(help="where the run would end instead; 0 keeps its end")] = 0,
    mixture: Annotated[Path | None, typer.Option(help="JSON of cell to weight: what the rest of the run would read instead")] = None,
    run: Annotated[str, typer.Option(help="run id; by default the one under this promise")] = "",
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """The arithmetic of ending a run elsewhere or on other data: tokens, compute, days, the rate's jump, epochs of each cell. Changes nothing."""
    import numpy as np

    from forerun.base.config import load_json, plain
    from forerun.model.count import train_flops
    from forerun.record.reader import open_run
    from forerun.registry.changes import registration_of
    from forerun.registry.remix import remix
    from forerun.registry.replan import replan as arithmetic
    from forerun.registry.verdict import run_of
    from forerun.train.config import RunConfig

    place = lab_at(lab)
    run_dir = place.run(run) if run else run_of(place, registration_of(place, experiment))
    record, config = open_run(run_dir), load_json(run_dir / "config.json", RunConfig)
    times = record.series("step_time_s").value
    end = num_steps or config.train.num_steps
    answer = arithmetic(
        plain(config),
        step=max(record.last_step, 0),
        new_num_steps=end,
        train_flops=train_flops(config.model, config.train.seq_len, config.train.train_tokens),
        step_time_s=float(np.median(times)) if len(times) else math.nan,
    )
    mix = None
    if mixture is not None:
        weights = load_json(mixture, dict[str, float])
        manifest = load_json(place.manifests / f"{config.data.manifest}.json", dict)
        mix = remix(plain(config), manifest, weights, step=answer.step, new_num_steps=end)
    if as_json:
        print_json({**plain(answer), "remix": mix})
        return
    print(f"end        {answer.num_steps} -> {answer.new_num_steps} steps, {answer.step} done")
    print(f"tokens     {units.count(answer.train_tokens)} -> {units.count(answer.new_train_tokens)}")
    print(f"compute    {units.flops(abs(answer.flops_saved))} {'saved' if answer.flops_saved >= 0 else 'more'}")
    print(f"left       {_days(answer.days_left)} -> {_days(answer.new_days_left)}")
    print(f"rate       {answer.factor_now:.3f} of its peak now, {answer.factor_new:.3f} on the new schedule")
    print(f"re-aimed   without a jump: fall over the last {answer.re_aimed_fraction:.3f} of the new length")
    if mix is not None:
        print(f"mix        from {mix.start_fraction:.3f} of the planned length; epochs over the run, at most {mix.epoch_cap:g}")
        for row in mix.cells:
            note = "  OVER THE CAP" if row.over_cap else ""
            print(
                f"  {row.cell}  weight {row.weight:.4f} -> {row.new_weight:.4f}  epochs {row.exposure:.2f} -> {row.new_exposure:.2f}{note}"
            )
    print("to do it: change config.py, then `forerun amend`")


def _days(days: float) -> str:
    return units.duration(days * 86_400) if math.isfinite(days) else "unknown"
