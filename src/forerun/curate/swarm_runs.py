"""The runs of a mixture swarm: one recipe with a mixture each, and the finished ones as rows for the fit."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.curate.mixture import plan_mixture
from forerun.curate.mixture_fit import MixtureFit, fit_mixture
from forerun.loader.config import MixturePhase
from forerun.loader.manifest import load_manifest
from forerun.record.reader import open_run
from forerun.train.config import RunConfig

METRIC = "eval/macro_loss_nats"
CLAIM = {
    "title": "Mixture swarm {name}",
    "hypothesis": "A regression of the final losses of this swarm on its weights ranks mixtures that it has not seen.",
    "falsified_by": "The rank correlation of left-out runs is below 0.5.",
}
"""What each run of a swarm is promised for."""


def configs_of(base: RunConfig, manifest: str, phases: Sequence[MixturePhase]) -> list[RunConfig]:
    """One run config a mixture, `<base name>-NNN`: the same parameters, seeds and length, so that only the data differs."""
    return [
        replace(base, name=f"{base.name}-{index:03d}", data=replace(base.data, manifest=manifest, mixture=(phase,)))
        for index, phase in enumerate(phases)
    ]


def fit_from_runs(lab: Lab, run_ids: list[str], *, train_tokens: int, epoch_cap: float) -> MixtureFit:
    """Fit a mixture on runs that read one manifest with one phase each.

    Returns: the fit, its weights readable by a run of `train_tokens`: capped in epochs, without cells too small to be read.
    Raises: DataError when a run is named twice, has several phases, another manifest (its cell names would mean something else),
        another length, or no final loss.
    """
    repeated = [run_id for index, run_id in enumerate(run_ids) if run_id in run_ids[:index]]
    if repeated:
        raise DataError(f"run {repeated[0]} is named twice", hint="name each run once")
    mixtures, losses, manifests, lengths = [], [], set(), {}
    for run_id in run_ids:
        path = lab.run(run_id) / "config.json"
        if not path.exists():
            raise DataError(f"{path} does not exist", hint="name runs of this lab")
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        if len(data["mixture"]) != 1:
            raise DataError(
                f"run {run_id} has {len(data['mixture'])} mixture phases, a swarm run has one", hint="use `forerun mixture swarm`"
            )
        record = open_run(lab.run(run_id))
        series = record.series(METRIC)
        if record.last_step < record.info.num_steps or not len(series.value):
            raise DataError(
                f"run {run_id} ended at step {record.last_step} of {record.info.num_steps}",
                hint="let it finish: a loss before the end is no loss of the mixture",
            )
        final = float(series.value[-1])
        if not math.isfinite(final):
            raise DataError(f"run {run_id} ended with a loss of {final}", hint="leave it out: it is no loss of the mixture")
        manifests.add(data["manifest"])
        lengths.setdefault(record.info.num_steps, run_id)
        mixtures.append(data["mixture"][0]["weights"])
        losses.append(final)
    if len(manifests) > 1:
        raise DataError(f"the runs read {len(manifests)} manifests", hint="cells of another store are other cells; fit one store's runs")
    if len(lengths) > 1:
        (steps, one), (others, other) = sorted(lengths.items())[:2]
        raise DataError(
            f"run {one} has {steps} steps and run {other} {others}", hint="fit runs of one length: a longer run has a lower loss"
        )
    if not manifests:
        raise DataError("no runs are named", hint="name the finished runs of a swarm")
    manifest = load_manifest(lab, manifests.pop())
    limits = {cell.name: epoch_cap * cell.num_tokens / train_tokens for cell in manifest.cells}
    found = fit_mixture(mixtures, losses, limits=limits)
    readable = plan_mixture(manifest, train_tokens=train_tokens, wanted=found.weights, epoch_cap=epoch_cap)
    return replace(found, weights=readable.phase.weights)
