"""A paired control: a run continued from another run's checkpoint on the same batches, and the difference between the two."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import numpy as np

from forerun.base.errors import ConfigError
from forerun.base.lab import Lab
from forerun.record.reader import open_run
from forerun.record.series import Series
from forerun.train.checkpoint import MANIFEST
from forerun.train.spikes import SKIPS

NUM_BLOCKS = 8  # assumed: neighbouring steps are correlated, means over an eighth of the stretch nearly not


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Difference fork - original over the steps both have."""

    first_step: int
    last_step: int
    loss_nats: float
    """Mean difference of training loss, same batches."""
    standard_error: float
    """From the means of blocks of steps, which removes most of the correlation; NaN with fewer than two blocks of two steps."""
    macro_loss_nats: float
    """Difference of the last common evaluation; NaN when there is none."""


def prepare(lab: Lab, run_id: str, at_step: int, fork_id: str, *, last_step: int) -> None:
    """Give a new run, which is to end at `last_step`, the state that `run_id` had after `at_step`.

    Raises: ConfigError when the fork exists or would have no step of its own, or the original has no checkpoint of that step.
    """
    source, target = lab.run(run_id), lab.run(fork_id)
    if at_step >= last_step:
        raise ConfigError(
            f"a fork at step {at_step} that ends at step {last_step} has no step of its own",
            hint="name an earlier checkpoint, or a later end with --set train.num_steps=N",
        )
    if target.exists():
        raise ConfigError(f"run {fork_id!r} exists already", hint="choose another name with --run-id")
    place = source / "checkpoints" / f"{at_step:09d}"
    if not (place / MANIFEST).exists():
        steps = sorted(int(path.parent.name) for path in source.glob(f"checkpoints/*/{MANIFEST}"))
        raise ConfigError(
            f"run {run_id!r} has no checkpoint of step {at_step}",
            hint=f"it has {', '.join(map(str, steps)) or 'none'}; checkpoint.milestones keeps some for ever",
        )
    shutil.copytree(place, target / "checkpoints" / place.name)
    if (source / SKIPS).exists():
        shutil.copy2(source / SKIPS, target / SKIPS)


def paired(lab: Lab, run_id: str, fork_id: str) -> Paired:
    """Compare a fork with its original, step by step."""
    original, fork = open_run(lab.run(run_id)), open_run(lab.run(fork_id))
    steps, difference = _difference(original.series("loss_nats"), fork.series("loss_nats"))
    if not len(steps):
        raise ConfigError(f"runs {run_id!r} and {fork_id!r} have no step in common", hint="train the fork further")
    error = float("nan")
    if len(difference) >= 2 * NUM_BLOCKS:
        blocks = np.array([block.mean() for block in np.array_split(difference, NUM_BLOCKS)])
        error = float(blocks.std(ddof=1) / NUM_BLOCKS**0.5)
    _, macro = _difference(original.series("eval/macro_loss_nats"), fork.series("eval/macro_loss_nats"))
    return Paired(
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        loss_nats=float(difference.mean()),
        standard_error=error,
        macro_loss_nats=float(macro[-1]) if len(macro) else float("nan"),
    )


def _difference(original: Series, fork: Series) -> tuple[np.ndarray, np.ndarray]:
    steps, mine, theirs = np.intersect1d(original.step, fork.step, return_indices=True)
    return steps, fork.value[theirs] - original.value[mine]
