"""Bad steps: recorded with the documents they read, then skipped, passed over after a rewind, or the end; never for ever.

Batches passed over are kept in `skips.json` of the run, so that a resumed run reads what the uninterrupted one does.
"""

from __future__ import annotations

import json
from pathlib import Path

from forerun.base.errors import CheckFailed
from forerun.base.files import write_json
from forerun.loader.audit import documents_at
from forerun.loader.batches import Batches
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import RunConfig

SKIPS = "skips.json"
Skips = list[tuple[int, int]]
"""Pairs: from this step on, this many batches more are passed over."""


class Rewound(Exception):
    """A bad step sent the run back to its newest checkpoint, with other batches ahead."""


def load_skips(run_dir: Path) -> Skips:
    """The run's passed-over batches; none when it never rewound."""
    path = run_dir / SKIPS
    return [(int(step), int(count)) for step, count in json.loads(path.read_bytes())["skips"]] if path.exists() else []


def batch_of(step: int, skips: Skips) -> int:
    """Number in the data order of the batch that a step reads."""
    return step + sum(count for begin, count in skips if step >= begin)


def bad_step(
    config: RunConfig, run_dir: Path, journal: Journal, step: int, row: dict[str, float], batches: Batches, checkpoints: Checkpoints
) -> None:
    """Act by `spikes.on_nonfinite`. Raises: Rewound; CheckFailed when the policy is to stop or its patience is used up."""
    policy, skips = config.spikes, load_skips(run_dir)
    documents = sorted({reading.id for reading in documents_at(batches, batch_of(step - 1, skips))})
    journal.event(
        "nonfinite",
        step,
        loss_nats=row["loss_nats"],
        grad_norm=row["grad_norm"],
        policy=policy.on_nonfinite,
        batch=batch_of(step - 1, skips),
        documents=documents,
    )
    num_bad = len(open_run(run_dir).events("nonfinite"))
    if policy.on_nonfinite == "stop" or num_bad > policy.max_skips:
        journal.event("crashed", step, reason="bad loss or gradient")
        raise CheckFailed(
            f"step {step} gave a non-finite loss, or a gradient beyond bounds ({num_bad} bad steps so far, spikes.max_skips={policy.max_skips})",
            hint="the record names the step and its documents; lower the learning rate, or declare another policy with `forerun amend`",
        )
    if policy.on_nonfinite == "rewind":
        checkpoints.finish()
        target = max((saved for saved in checkpoints.steps() if saved < step), default=0)
        count = max(policy.rewind_batches, step - target)
        write_json(run_dir / SKIPS, {"schema": 1, "skips": [*skips, (target, count)]})
        journal.event("rewind", step, to_step=target, batches_passed_over=count)
        raise Rewound
