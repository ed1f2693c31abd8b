"""How often a lab's intervals held, with an interval of its own, over all finished promises, per author and per metric."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from forerun.base.lab import Lab
from forerun.registry import ledger
from forerun.registry.register import registrations

Z95 = 1.959963984540054  # derived: 97.5% quantile of the normal distribution


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """One row: a group of scored predictions."""

    group: str
    """`all`, `owner:<name>` or `metric:<name>`."""
    num_scored: int
    held50: int
    """Outcomes inside their 50% interval."""
    held90: int
    wilson50: tuple[float, float]
    """95% Wilson interval of the share behind `held50`; (0, 1) when nothing is scored."""
    wilson90: tuple[float, float]


def calibration(lab: Lab) -> list[Coverage]:
    """All, then per owner, then per metric. Each promise counts once, by its newest verdict that scored its interval."""
    promises = {registration.experiment: registration.promise for registration in registrations(lab)}
    scored: dict[str, tuple[bool, bool]] = {}
    for entry in ledger.read(lab):
        verdict = entry.body.get("verdict", {}) if entry.kind == "verdict" else {}
        if verdict.get("inside90") is not None and verdict["answer"] != "deviated":
            scored[verdict["experiment"]] = (verdict["inside50"], verdict["inside90"])
    groups: dict[str, list[tuple[bool, bool]]] = {"all": []}
    for experiment, held in scored.items():
        promise = promises[experiment]
        for group in ("all", f"owner:{promise.owner}", f"metric:{promise.metric}"):
            groups.setdefault(group, []).append(held)
    return [
        _coverage(group, groups[group]) for group in sorted(groups, key=lambda name: (name != "all", not name.startswith("owner:"), name))
    ]


def wilson(held: int, num: int, z: float = Z95) -> tuple[float, float]:
    """Interval of a share from `held` of `num`; stays inside 0..1 and is honest for few. Source: Wilson 1927 (JASA 22:209)."""
    if num == 0:
        return 0.0, 1.0
    share, weight = held / num, z * z / num
    middle, half = share + weight / 2, z * math.sqrt(share * (1 - share) / num + weight / (4 * num))
    return max(0.0, (middle - half) / (1 + weight)), min(1.0, (middle + half) / (1 + weight))


def _coverage(group: str, held: Iterable[tuple[bool, bool]]) -> Coverage:
    pairs = list(held)
    held50, held90 = sum(inside50 for inside50, _ in pairs), sum(inside90 for _, inside90 in pairs)
    return Coverage(
        group=group,
        num_scored=len(pairs),
        held50=held50,
        held90=held90,
        wilson50=wilson(held50, len(pairs)),
        wilson90=wilson(held90, len(pairs)),
    )
