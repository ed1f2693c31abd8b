"""`forerun mixture`: weights over cells for a run: plan them, sample a swarm around them, fit the best from finished runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.options import HERE, JsonOption, LabOption
from forerun.cli.rungs import OwnerOption, UnregisteredOption, train_folder

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Weights over cells. Example: forerun mixture plan 3f9c --train-tokens 20000000 --quality-tilt 0.3",
)
Manifest = Annotated[str, typer.Argument(help="digest of the manifest, or its beginning")]


@app.command()
def plan(
    manifest: Manifest,
    train_tokens: Annotated[int, typer.Option(min=1, help="tokens of the run")],
    lab: LabOption = HERE,
    quality_tilt: Annotated[float, typer.Option(help="0 keeps proportions; 0.3 reads Q4 1.8 times as often as Q2")] = 0.0,
    epoch_cap: Annotated[float, typer.Option(help="most times a cell is read")] = 8.0,
) -> None:
    """One phase as JSON for `data.mixture`; cells capped, merged or left out are named on standard error.

    Example: forerun mixture plan 3f9c --train-tokens 20000000 > phase.json
    """
    from forerun.base.config import canonical_json
    from forerun.base.lab import Lab
    from forerun.curate.mixture import plan_mixture
    from forerun.loader.manifest import load_manifest

    made = plan_mixture(load_manifest(Lab(lab), manifest), train_tokens=train_tokens, quality_tilt=quality_tilt, epoch_cap=epoch_cap)
    for note in made.notes:
        print(note, file=sys.stderr)
    print(canonical_json(made.phase).decode())


@app.command()
def swarm(
    manifest: Manifest,
    base: Annotated[Path, typer.Option(metavar="BASE.json", help="run config of the small run; each mixture takes its place in it")],
    out: Annotated[Path, typer.Option(help="folder for one run config a mixture")],
    lab: LabOption = HERE,
    num_runs: Annotated[int, typer.Option(min=2, help="mixtures, the proportional one first")] = 16,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
) -> None:
    """Run configs with mixtures around the store's proportions, for `forerun mixture run`.

    Example: forerun mixture swarm 3f9c --base small.json --out swarm --num-runs 16
    """
    from forerun.base.config import load_json
    from forerun.base.lab import Lab
    from forerun.curate.mixture import plan_mixture
    from forerun.curate.mixture_fit import swarm as draw
    from forerun.curate.swarm_runs import configs_of
    from forerun.ladder.folder import write_plan
    from forerun.loader.manifest import load_manifest
    from forerun.train.config import RunConfig

    small, loaded = load_json(base, RunConfig), load_manifest(Lab(lab), manifest)
    tokens, cap = small.train.train_tokens, small.data.epoch_cap
    centre = plan_mixture(loaded, train_tokens=tokens, epoch_cap=cap).phase.weights
    plans = [plan_mixture(loaded, train_tokens=tokens, wanted=weights, epoch_cap=cap) for weights in draw(centre, num_runs, seed=seed)]
    paths = write_plan(configs_of(small, loaded.digest, [plan.phase for plan in plans]), out)
    print("\n".join(path.stem for path in paths))
    print(f"wrote {len(paths)} run configs; train them with: forerun mixture run {out} --owner NAME", file=sys.stderr)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="as written by `forerun mixture swarm --out`")],
    owner: OwnerOption = "",
    unregistered: UnregisteredOption = False,
    lab: LabOption = HERE,
    as_json: JsonOption = False,
) -> int:
    """Train every run of a swarm that is not finished; interrupted ones continue.

    Every run goes under a promise: one it has, or with --owner an exploratory one made here.

    Example: forerun mixture run swarm --owner me
    """
    from forerun.curate.swarm_runs import CLAIM

    return train_folder(folder, lab, claim=CLAIM, owner=owner, unregistered=unregistered, as_json=as_json)


@app.command()
def fit(
    runs: Annotated[list[str], typer.Argument(help="run ids of the swarm")],
    train_tokens: Annotated[int, typer.Option(min=1, help="tokens of the run the mixture is for; sets the epoch limits")],
    lab: LabOption = HERE,
    epoch_cap: Annotated[float, typer.Option(help="most times a cell is read")] = 8.0,
    as_json: JsonOption = False,
) -> None:
    """The mixture of least predicted loss, from finished runs of a swarm, and how far to believe it.

    Example: forerun mixture fit swarm-000 swarm-001 ... --train-tokens 20000000
    """
    from forerun.base.config import canonical_json
    from forerun.base.lab import Lab
    from forerun.curate.swarm_runs import fit_from_runs

    found = fit_from_runs(Lab(lab), runs, train_tokens=train_tokens, epoch_cap=epoch_cap)
    if as_json:
        print(canonical_json(found).decode())
        return
    for name, weight in sorted(found.weights.items(), key=lambda pair: -pair[1]):
        print(f"{weight:7.4f}  {name}")
    print(
        f"predicted loss {found.predicted_loss_nats:.4f}, gain {found.predicted_gain_nats:.4f} nats; leave-one-out error {found.loo_error_nats:.4f}, "
        f"rank correlation {found.loo_rank_correlation:.2f} over {found.num_runs} runs",
        file=sys.stderr,
    )
