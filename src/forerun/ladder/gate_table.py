"""Gate arithmetic on tables: a variant's runs against a baseline's, scale by scale, for every evaluation that both have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.base.errors import DataError
from forerun.ladder.gate import GateAnswer, GateLaw, Measured, fit_gate_law, gate
from forerun.ladder.reading import number, table
from forerun.ladder.rungs import SAME_LEVEL

DEFAULT_EVAL = "loss_nats"
"""Name of the evaluation in a table without a column `eval`."""


@dataclass(frozen=True, kw_only=True)
class EvalGate:
    """One evaluation: the baseline's law, and the variant against it."""

    eval: str
    law: GateLaw
    answer: GateAnswer


def read_measured(path: Path) -> list[Measured]:
    """Finished runs from a CSV with `compute, loss_nats`; `tokens_per_second` and `eval` are read when there.

    Raises: DataError for a missing column or a value that is no positive number.
    """
    runs = []
    for row in table(path, ("compute", "loss_nats")):
        compute, loss = number(row["compute"], f"{path}: compute"), number(row["loss_nats"], f"{path}: loss_nats")
        speed = number(row["tokens_per_second"], f"{path}: tokens_per_second") if row.get("tokens_per_second") else 1.0
        for name, value in (("compute", compute), ("loss_nats", loss), ("tokens_per_second", speed)):
            if value <= 0:
                raise DataError(f"{path}: {name} must be positive, got {value:g}", hint="mend the value or drop the row")
        runs.append(Measured(compute=compute, loss=loss, tokens_per_second=speed, eval=row.get("eval") or DEFAULT_EVAL))
    return runs


def gate_all(
    baselines: Sequence[Measured], variants: Sequence[Measured], floors: Mapping[str, float], *, seed_noise: float = 0.0
) -> list[EvalGate]:
    """Every evaluation of the variant, each with its own floor and law.

    Args:
        floors: by evaluation.
        seed_noise: relative sd of a final loss between seeds; enables the lack-of-fit test.
    Raises: DataError for an evaluation without a floor or a baseline, or a variant at a scale the baseline was not run at.
    """
    found = []
    for name in sorted({run.eval for run in variants}):
        if name not in floors:
            raise DataError(f"there is no floor for the evaluation {name!r}", hint=f"give --floor {name}=VALUE; floors differ between them")
        law = fit_gate_law([run for run in baselines if run.eval == name], floor=floors[name], seed_noise=seed_noise or None)
        pairs = [(_partner(run, baselines), run) for run in variants if run.eval == name]
        found.append(EvalGate(eval=name, law=law, answer=gate(law, pairs, seed_noise=seed_noise)))
    return found


def _partner(variant: Measured, baselines: Sequence[Measured]) -> Measured:
    """The baseline run at the variant's scale."""
    same = [run for run in baselines if run.eval == variant.eval]
    nearest = min(same, key=lambda run: abs(math.log(run.compute / variant.compute)))
    if abs(math.log(nearest.compute / variant.compute)) > max(SAME_LEVEL, _half_gap(same)):
        raise DataError(
            f"the variant at {variant.compute:.3g} FLOPs has no baseline near, the nearest is at {nearest.compute:.3g}",
            hint="run the baseline at that scale",
        )
    return nearest


def _half_gap(runs: Sequence[Measured]) -> float:
    """Half the smallest ln step between scales: nearer than this, a variant belongs to one scale without doubt."""
    logs = sorted({math.log(run.compute) for run in runs})
    return min((later - earlier for earlier, later in zip(logs, logs[1:]) if later - earlier > SAME_LEVEL), default=0.0) / 2
