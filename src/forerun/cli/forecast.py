"""`forerun forecast`: rungs in, the big run's loss curve with intervals out; `score` says how a forecast did."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLE = """The big run's whole loss curve from small runs, with 50% and 90% intervals.

Example: forerun forecast --rungs rungs.csv --evals evals.csv --target target.json --json > forecast.json

rungs.csv has columns rung,train_steps,compute_per_step; evals.csv has rung,step,loss_nats; target.json holds train_steps and
compute_per_step. Any loss unit works as long as all rungs share it. Afterwards: forerun forecast score forecast.json --evals outcome.csv
"""


@app.callback(invoke_without_command=True, help=EXAMPLE)
def main(
    context: typer.Context,
    rungs: Annotated[Path | None, typer.Option(help="CSV: rung,train_steps,compute_per_step")] = None,
    evals: Annotated[Path | None, typer.Option(help="CSV: rung,step,loss_nats")] = None,
    target: Annotated[Path | None, typer.Option(help="JSON: train_steps, compute_per_step")] = None,
    floor: Annotated[str, typer.Option(help="`prior`, or a value to pin the irreducible loss to")] = "prior",
    method: Annotated[str, typer.Option(help="`collapse`, or `marin2026` for the published rule")] = "collapse",
    compute: Annotated[str, typer.Option(help="what compute_per_step counts: train_flops, fit_compute, unstated")] = "unstated",
    eval_name: Annotated[str, typer.Option("--eval", help="name of the evaluation, when evals.csv has a column `eval`")] = "",
    lab: Annotated[Path | None, typer.Option(help="lab whose ledger/forecasts/ keeps the forecast (default: . if it has a ledger)")] = None,
    plots: Annotated[Path | None, typer.Option(help="folder for SVG plots, each with its CSV")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the forecast as JSON on standard output")] = False,
) -> int:
    if context.invoked_subcommand is not None:
        return 0
    from forerun.base.config import canonical_json
    from forerun.base.errors import ConfigError
    from forerun.ladder.figures import draw_forecast
    from forerun.ladder.forecast import forecast
    from forerun.ladder.reading import read_rungs, read_target
    from forerun.ladder.store import keep
    from forerun.ladder.text import forecast_text

    if rungs is None or evals is None or target is None:
        raise ConfigError("forecast needs --rungs, --evals and --target", hint="forerun forecast --help shows an example")
    answer = forecast(
        read_rungs(rungs, evals, eval_name=eval_name),
        read_target(target),
        floor=_floor(floor),
        method=method,
        compute=compute,
        eval_name=eval_name or "loss_nats",
    )
    print(canonical_json(answer).decode() if as_json else forecast_text(answer))
    kept = keep(answer, lab)
    if kept is not None:
        print(f"kept as {kept}", file=sys.stderr)
    if plots is not None:
        for path in draw_forecast(answer, plots):
            print(f"drew {path}", file=sys.stderr)
    return 0


@app.command(
    help="Signed error, coverage and interval score of a forecast.\n\nExample: forerun forecast score forecast.json --evals outcome.csv"
)
def score(
    path: Annotated[Path, typer.Argument(metavar="FORECAST.json", help="as written by `forerun forecast --json`")],
    evals: Annotated[Path, typer.Option(help="CSV: step,loss_nats of the run itself")],
    eval_name: Annotated[str, typer.Option("--eval", help="name of the evaluation, when the CSV has a column `eval`")] = "",
    plots: Annotated[Path | None, typer.Option(help="folder for SVG plots, each with its CSV")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the score as JSON")] = False,
) -> int:
    from dataclasses import asdict

    from forerun.ladder.figures import draw_forecast
    from forerun.ladder.reading import read_outcome
    from forerun.ladder.score import score as score_forecast
    from forerun.ladder.store import load
    from forerun.ladder.text import score_text

    promised = load(path)
    steps, losses = read_outcome(evals, eval_name=eval_name)
    result = score_forecast(promised, steps, losses)
    print(json.dumps(asdict(result)) if as_json else score_text(result))
    if plots is not None:
        for drawn in draw_forecast(promised, plots, outcome=(steps, losses)):
            print(f"drew {drawn}", file=sys.stderr)
    return 0


@app.command(
    help="Bring a forecast up to date with the run's own first part and its declared changes.\n\n"
    "Example: forerun forecast update forecast.json --evals run.csv --change 108000:data --json"
)
def update(
    path: Annotated[Path, typer.Argument(metavar="FORECAST.json", help="as written by `forerun forecast --json`")],
    evals: Annotated[Path, typer.Option(help="CSV: step,loss_nats of the run so far")],
    change: Annotated[
        list[str] | None, typer.Option(help="STEP:KIND or STEP:KIND:OFFSET:SD (relative), one for each declared change")
    ] = None,
    eval_name: Annotated[str, typer.Option("--eval", help="name of the evaluation, when the CSV has a column `eval`")] = "",
    lab: Annotated[Path | None, typer.Option(help="lab whose ledger/forecasts/ keeps the forecast (default: . if it has a ledger)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the forecast as JSON")] = False,
) -> int:
    from forerun.base.config import canonical_json
    from forerun.ladder.reading import read_outcome
    from forerun.ladder.store import keep, load
    from forerun.ladder.text import forecast_text
    from forerun.ladder.update import change_of
    from forerun.ladder.update import update as update_forecast

    steps, losses = read_outcome(evals, eval_name=eval_name)
    answer = update_forecast(load(path), steps, losses, [change_of(text) for text in change or []])
    print(canonical_json(answer).decode() if as_json else forecast_text(answer))
    kept = keep(answer, lab)
    if kept is not None:
        print(f"kept as {kept}", file=sys.stderr)
    return 0


def _floor(text: str) -> float | None:
    from forerun.base.errors import ConfigError

    if text == "prior":
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--floor must be `prior` or a number, got {text!r}", hint="leave it out for the prior") from None
