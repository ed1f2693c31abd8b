"""The promise of a rung: an exploratory experiment, so that rungs are registered like any run and failed ones stay visible."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from forerun.base.config import digest_of, plain
from forerun.base.files import write_atomic
from forerun.base.lab import Lab
from forerun.ladder.family import target_of
from forerun.ladder.run import LADDER_METRIC
from forerun.registry.register import Registration, register, registrations
from forerun.train.config import RunConfig

RUNG = {
    "title": "Ladder rung {name}",
    "hypothesis": "This rung lies on one curve with the other rungs of its ladder.",
    "falsified_by": "It does not finish, or the forecast of the next rung from smaller ones misses it by more than its 90% interval.",
}
GUESS = (0.1, 0.3, 0.5, 0.7, 1.0)  # assumed: shares of ln(vocab_size) for low90, low50, point, high50, high90: no more is known yet


def promise_rung(run: RunConfig, lab: Lab, *, owner: str, claim: Mapping[str, str] = RUNG) -> Registration:
    """The rung's registration: the one it has, or a new one under `experiments/<run name>/`.

    Args:
        claim: title, hypothesis and what falsifies it, for runs that stand for something else than a rung.
    Raises: RegistryError when an experiment of that name promises another config.
    """
    for known in registrations(lab):
        if known.config_digest == digest_of(run):
            return known
    folder = lab.experiments / run.name
    if not (folder / "experiment.toml").exists():
        write_atomic(folder / "experiment.toml", experiment_text(run, owner, claim).encode())
    return register(lab, folder, plain(run))


def experiment_text(run: RunConfig, owner: str, claim: Mapping[str, str] = RUNG) -> str:
    """`experiment.toml` of a rung. Its prediction is the guess from the vocabulary alone: rungs are run to predict, not predicted."""
    chance = math.log(run.model.vocab_size)
    low90, low50, point, high50, high90 = (round(share * chance, 4) for share in GUESS)
    texts = {
        "title": claim["title"].format(name=run.name),
        "owner": owner,
        "kind": "exploratory",
        "hypothesis": claim["hypothesis"],
        "falsified_by": claim["falsified_by"],
        "metric": LADDER_METRIC,
        "metric_definition": f"mean over held-out domains, {run.eval.num_sequences} sequences each, no capacity drops",
        "baseline": f"chance, ln(vocab_size) = {chance:.4f}",
        "success": f"final({LADDER_METRIC}) < {high90}",
        "already_seen": "nothing of this run; the prediction is a guess from the vocabulary size",
    }
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}" for name, text in texts.items()]
    lines.append(f"compute_budget_flops = {target_of(run).compute:.6e}")
    lines += ["", "[prediction]"]
    lines += [
        f"{name} = {value}" for name, value in zip(("low90", "low50", "point", "high50", "high90"), (low90, low50, point, high50, high90))
    ]
    return "\n".join([*lines, ""])
