"""The published drop fractions of the 535B run and its relatives, and what the simulator says of each. Never imports JAX.

Four rows fitted the four constants of `simulate.Behaviour` (`benchmarks/parallel/fit_routing.py`); all others are predictions.
Numbers: the run's public issues, collected in design note 0081.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from forerun.parallel.simulate import Behaviour, Scenario, check_draws, predict


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One published number."""

    what: str
    drop_fraction: float
    scenario: Scenario
    role: Literal["fitted", "predicted"] = "predicted"
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A published number beside its simulation."""

    what: str
    role: str
    measured: float
    simulated: float
    ratio: float
    """Simulated over measured."""
    note: str


RACK = Scenario(num_experts=384, top_k=8, shards=64, groups=1, rule="ragged")
CELLS = Scenario(num_experts=128, top_k=4, shards=64, groups=1, rule="fixed_cells", capacity_factor=1.0, early=True)

PUBLISHED: tuple[Measured, ...] = (
    Measured(what="ragged, one rack, 4K", drop_fraction=1.86e-4, scenario=RACK, role="fitted"),
    Measured(what="ragged, one rack, 8K", drop_fraction=8.29e-4, scenario=replace(RACK, seq_len=8192)),
    Measured(what="ragged, one rack, 16K", drop_fraction=2.94e-3, scenario=replace(RACK, seq_len=16_384), role="fitted"),
    Measured(what="ragged, 11 racks, 4K", drop_fraction=9.1e-5, scenario=replace(RACK, groups=11)),
    Measured(
        what="pooled waves, 11 racks, 4K",
        drop_fraction=0.03,
        scenario=replace(RACK, groups=11, rule="sender_receiver"),
        role="fitted",
    ),
    Measured(
        what="pooled waves 1.05 / 1.33, one rack",
        drop_fraction=0.0241,
        scenario=replace(RACK, rule="sender_receiver", sender_factor=1.05, capacity_factor=1.33, early=True),
        note="steps 150 to 199",
    ),
    Measured(what="fixed cells 1.0, 128 experts", drop_fraction=0.0723, scenario=CELLS),
    Measured(what="fixed cells 1.125, 128 experts", drop_fraction=0.0540, scenario=replace(CELLS, capacity_factor=1.125)),
    Measured(what="fixed cells 1.25, 128 experts", drop_fraction=0.0326, scenario=replace(CELLS, capacity_factor=1.25)),
    Measured(what="fixed cells 1.5, 128 experts", drop_fraction=0.0157, scenario=replace(CELLS, capacity_factor=1.5), role="fitted"),
    Measured(
        what="fixed cells 1.0, 256 experts",
        drop_fraction=0.0741,
        scenario=replace(CELLS, num_experts=256, top_k=8),
        note="200 steps; top_k not published, taken as 8",
    ),
    Measured(
        what="fixed cells, 4K to 65K",
        drop_fraction=0.40,
        scenario=replace(CELLS, seq_len=65_536, early=False),
        note="'about 40%'; experts and factor not published, taken as 128 and 1.0",
    ),
    Measured(
        what="fixed cells 2.5, 16 documents a shard",
        drop_fraction=0.0027,
        scenario=replace(RACK, rule="fixed_cells", capacity_factor=2.5),
        note="rule not published, taken as fixed cells",
    ),
    Measured(
        what="fixed cells 2.5, 2 documents a shard",
        drop_fraction=0.07,
        scenario=replace(RACK, rule="fixed_cells", capacity_factor=2.5, shards=16, seq_len=32_768),
        note="'about 7%'; rule not published, taken as fixed cells",
    ),
    Measured(
        what="fixed cells 1.0, 8K",
        drop_fraction=0.221,
        scenario=replace(RACK, rule="fixed_cells", capacity_factor=1.0, seq_len=8192),
        note="rule and tokens a shard not published, taken as fixed cells and 65,536",
    ),
    Measured(
        what="pooled waves, 262K over 4 devices each",
        drop_fraction=0.18,
        scenario=replace(RACK, rule="sender_receiver", shards=16, groups=4, seq_len=65_536),
        note="'and rising'; rule not published, taken as pooled waves; a device holds a quarter of a document",
    ),
)


def compared(behaviour: Behaviour = Behaviour(), *, num_draws: int = 400, seed: int = 0) -> list[Compared]:
    """Every published number beside its simulation."""
    check_draws(num_draws, seed)
    rows = []
    for row in PUBLISHED:
        simulated = predict(row.scenario, behaviour, num_draws=num_draws, seed=seed).drop_fraction
        rows.append(
            Compared(
                what=row.what,
                role=row.role,
                measured=row.drop_fraction,
                simulated=simulated,
                ratio=simulated / row.drop_fraction,
                note=row.note,
            )
        )
    return rows


def table(rows: list[Compared]) -> str:
    """The comparison as text."""
    lines = [f"{'published':36} {'role':9} {'measured':>10} {'simulated':>10} {'ratio':>6}  note"]
    lines += [f"{row.what:36} {row.role:9} {row.measured:10.2e} {row.simulated:10.2e} {row.ratio:6.2f}  {row.note}" for row in rows]
    return "\n".join(lines)
