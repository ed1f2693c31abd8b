"""Finished runs of a mixture swarm as rows for the fit: their frozen mixtures and final losses."""

from __future__ import annotations

import json

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.curate.mixture_fit import MixtureFit, fit_mixture
from forerun.loader.manifest import load_manifest
from forerun.record.reader import open_run

METRIC = "eval/macro_loss_nats"


def fit_from_runs(lab: Lab, run_ids: list[str], *, train_tokens: int, epoch_cap: float) -> MixtureFit:
    """Fit a mixture on runs that read one manifest with one phase each.

    Raises: DataError when a run has several phases or another manifest (its cell names would mean something else), or no final loss.
    """
    mixtures, losses, manifests = [], [], set()
    for run_id in run_ids:
        path = lab.run(run_id) / "config.json"
        if not path.exists():
            raise DataError(f"{path} does not exist", hint="name runs of this lab")
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        if len(data["mixture"]) != 1:
            raise DataError(
                f"run {run_id} has {len(data['mixture'])} mixture phases, a swarm run has one", hint="use `forerun mixture swarm`"
            )
        series = open_run(lab.run(run_id)).series(METRIC)
        if not len(series.value):
            raise DataError(f"run {run_id} has no {METRIC}", hint="let it finish with an evaluation")
        manifests.add(data["manifest"])
        mixtures.append(data["mixture"][0]["weights"])
        losses.append(float(series.value[-1]))
    if len(manifests) > 1:
        raise DataError(f"the runs read {len(manifests)} manifests", hint="cells of another store are other cells; fit one store's runs")
    manifest = load_manifest(lab, manifests.pop())
    limits = {cell.name: epoch_cap * cell.num_tokens / train_tokens for cell in manifest.cells}
    return fit_mixture(mixtures, losses, limits=limits)
