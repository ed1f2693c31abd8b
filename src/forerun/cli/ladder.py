"""`forerun ladder`: plan rungs from one dial, run them, see how far they are, design a ladder for a budget."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption
from forerun.cli.rungs import OwnerOption, UnregisteredOption, train_folder

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Small runs of the same recipe that predict the big one.\n\nExample: forerun ladder plan base.json --widths 64,96,128,192 --out rungs",
)

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="as written by `forerun ladder plan --out`")]


@app.command(
    help="Rungs from one dial: equal recipe and tokens per active parameter, rates transferred.\n\n"
    "Example: forerun ladder plan base.json --widths 64,96,128,192 --tokens-per-active-param 20 --repeat 96:1,2 --out rungs"
)
def plan(
    base: Annotated[Path, typer.Argument(metavar="BASE.json", help="run config of the recipe at any size")],
    widths: Annotated[str, typer.Option(help="d_model of each rung")],
    tokens_per_active_param: Annotated[float, typer.Option(help="ratio of every rung and of the target")] = 791,
    repeat: Annotated[list[str] | None, typer.Option(help="WIDTH:SEED,SEED to measure seed noise at a width")] = None,
    rates: Annotated[str, typer.Option(help="`relative` to the base run's, or the published law's own: `transfer`")] = "relative",
    out: Annotated[Path | None, typer.Option(help="folder for one run config a rung")] = None,
    as_json: JsonOption = False,
) -> int:
    from forerun.base.config import load_json
    from forerun.ladder.family import Dial, family
    from forerun.ladder.folder import write_plan
    from forerun.ladder.text import plan_rows, plan_text
    from forerun.train.config import RunConfig

    dial = Dial(
        widths=tuple(_whole_numbers(widths, "--widths")),
        tokens_per_active_param=tokens_per_active_param,
        extra_seeds=dict(_repeat(text) for text in repeat or []),
        rates=rates,
    )
    runs = family(load_json(base, RunConfig), dial)
    print(json.dumps(plan_rows(runs)) if as_json else plan_text(runs))
    if out is not None:
        print(f"wrote {len(write_plan(runs, out))} run configs to {out}", file=sys.stderr)
    return 0


@app.command(
    help="Train every rung that is not finished; interrupted ones continue.\n\nExample: forerun ladder run rungs --lab lab\n\n"
    "Every rung runs under a promise: one it has, or with --owner an exploratory one made here."
)
def run(
    folder: FolderArgument,
    owner: OwnerOption = "",
    unregistered: UnregisteredOption = False,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> int:
    from forerun.ladder.promise import RUNG

    return train_folder(folder, lab, claim=RUNG, owner=owner, unregistered=unregistered, as_json=as_json)


@app.command(help="How far each rung is.\n\nExample: forerun ladder status rungs --lab lab")
def status(folder: FolderArgument, lab: LabOption = HERE, as_json: JsonOption = False) -> int:
    from forerun.base.lab import Lab
    from forerun.ladder.folder import read_plan
    from forerun.ladder.run import status as status_of
    from forerun.ladder.text import status_rows, status_text

    found = status_of(read_plan(folder), Lab(lab))
    print(json.dumps(status_rows(found)) if as_json else status_text(found))
    return 0


@app.command(help="Rungs on record as the CSVs `forerun forecast` reads.\n\nExample: forerun ladder export rungs --lab lab --out .")
def export(
    folder: FolderArgument, out: Annotated[Path, typer.Option(help="where rungs.csv and evals.csv go")], lab: LabOption = HERE
) -> int:
    from forerun.base.lab import Lab
    from forerun.ladder.folder import read_plan, write_tables
    from forerun.ladder.run import rungs_of

    for path in write_tables(rungs_of(read_plan(folder), Lab(lab)), out):
        print(path)
    return 0


@app.command(
    help="The ladder whose forecast would be narrowest for a share of the target's compute, and the trade.\n\n"
    "Example: forerun ladder design --target target.json --budget 1%"
)
def design(
    target: Annotated[Path, typer.Option(help="JSON: train_steps, compute_per_step")],
    budget: Annotated[str, typer.Option(help="of the target's compute, all rungs together, such as 1%")] = "1%",
    repeats: Annotated[int, typer.Option(min=0, help="extra seeds of the second rung, paid from the same budget")] = 0,
    as_json: JsonOption = False,
) -> int:
    from dataclasses import asdict

    from forerun.ladder.design import designs
    from forerun.ladder.reading import read_target
    from forerun.ladder.text import design_text

    found = designs(read_target(target), _share(budget), repeats=repeats)
    print(json.dumps([asdict(each) for each in found]) if as_json else design_text(found))
    return 0


@app.command(
    help="How much compute a variant saves against a baseline, scale by scale, with 90% intervals. Exit code 1 unless it saves at every scale.\n\n"
    "Example: forerun ladder gate --baseline baseline.csv --variant variant.csv --floor 1.6\n\n"
    "CSV columns: compute,loss_nats, and if known tokens_per_second and eval; several evals need --floor NAME=VALUE each."
)
def gate(
    baseline: Annotated[Path, typer.Option(help="CSV of finished baseline runs, three scales or more")],
    variant: Annotated[Path, typer.Option(help="CSV of the variant's finished runs at some of these scales")],
    floor: Annotated[list[str], typer.Option(help="irreducible loss of the evaluation: VALUE, or NAME=VALUE for each")],
    seed_noise: Annotated[
        float, typer.Option(min=0.0, help="relative sd of a final loss between seeds; tests the law for lack of fit")
    ] = 0.0,
    as_json: JsonOption = False,
) -> int:
    from dataclasses import asdict

    from forerun.ladder.gate_table import gate_all, read_measured
    from forerun.ladder.text import gate_text

    variants = read_measured(variant)
    found = gate_all(read_measured(baseline), variants, _floors(floor, sorted({run.eval for run in variants})), seed_noise=seed_noise)
    print(json.dumps([asdict(each) for each in found]) if as_json else gate_text(found))
    return 0 if all(each.answer.passed for each in found) else 1


def _floors(texts: list[str], evals: list[str]) -> dict[str, float]:
    from forerun.base.errors import ConfigError

    floors = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals and len(evals) > 1:
            raise ConfigError(f"--floor {text} does not say which evaluation it is of: {', '.join(evals)}", hint="give NAME=VALUE for each")
        try:
            floors[name if equals else evals[0]] = float(value)
        except ValueError:
            raise ConfigError(f"--floor must be a number or NAME=NUMBER, got {text!r}", hint="for example --floor 1.6") from None
    return floors


def _whole_numbers(text: str, flag: str) -> list[int]:
    from forerun.base.errors import ConfigError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{flag} must be whole numbers with commas between, got {text!r}", hint="for example 64,96,128") from None


def _repeat(text: str) -> tuple[int, tuple[int, ...]]:
    width, _, seeds = text.partition(":")
    return _whole_numbers(width, "--repeat")[0], tuple(_whole_numbers(seeds, "--repeat"))


def _share(text: str) -> float:
    from forerun.base.errors import ConfigError

    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ConfigError(f"--budget must be a share, got {text!r}", hint="for example 1% or 0.01") from None
