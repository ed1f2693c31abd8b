"""Which window of which cell comes when: arithmetic on integers, no state, no lookup of what was read before.

The text of a run is a sequence of windows of `max_seq_len` tokens. A *period* is a fixed number of windows in which every
cell has a fixed count; inside it each cell's windows are spread evenly with jitter, so every stretch of the run keeps the
proportions. Inside a cell, windows are shuffled pass by pass by a keyed Feistel permutation.
"""

# W windows of a call, C cells, P windows per period

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun.base.errors import ConfigError

PERIODS = (1024, 4096, 16384, 65536)  # derived: the least weight served is 1/65536; Marin's block of 49,152 sequences serves 1/49152
NUM_ROUNDS = 4  # assumed: four Feistel rounds with a strong mixer are a pseudo-random permutation (Luby and Rackoff 1988)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(value: np.ndarray) -> np.ndarray:
    """64 well-mixed bits of each uint64. Source: splitmix64 finaliser (Steele et al. 2014)."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def key_of(*parts: int | str) -> np.uint64:
    """A 64-bit key of some integers and names; the same in every process and on every machine."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little"))


def permute(index: np.ndarray, size: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Where each index goes under its key's permutation of `range(size)`; all three int64 or uint64 of one shape.

    A balanced Feistel network on the least even number of bits that holds `size`, walked until it lands inside.
    """
    bits = np.maximum(1, np.ceil(np.log2(np.maximum(size, 2).astype(np.float64)) / 2)).astype(np.uint64)
    bits += (np.uint64(1) << (np.uint64(2) * bits)) < size.astype(np.uint64)  # log2 in float64 may round below
    low = (np.uint64(1) << bits) - np.uint64(1)
    size, key = size.astype(np.uint64), key.astype(np.uint64)
    value = index.astype(np.uint64)
    walking = np.arange(len(value))
    while len(walking):
        b, m, k, v = bits[walking], low[walking], key[walking], value[walking]
        left, right = v >> b, v & m
        for round_ in range(NUM_ROUNDS):
            left, right = right, left ^ (mix(right ^ mix(k + np.uint64(round_))) & m)
        value[walking] = (left << b) | right
        walking = walking[value[walking] >= size[walking]]
    return value.astype(np.int64)


def apportion(weights: np.ndarray, total: int) -> np.ndarray:
    """Whole shares of `total` in proportion to weights, by largest remainder; ties go to the earlier cell. int64 `[C]`."""
    exact = weights / weights.sum() * total
    counts = np.floor(exact).astype(np.int64)
    short = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    return counts


def counts_per_period(weights: dict[str, float]) -> dict[str, int]:
    """Windows of each cell in a period, each at least 1; the shortest period that allows it.

    Raises: ConfigError when a weight is below one window of the longest period.
    """
    read = {cell: weight for cell, weight in weights.items() if weight > 0}
    values = np.array(list(read.values()))
    for period in PERIODS:
        counts = apportion(values, period)
        if counts.min() >= 1 and np.all(np.abs(counts / period / (values / values.sum()) - 1) < 0.1):  # assumed: 10% off is off
            break
    if counts.min() < 1:
        cell = list(read)[int(np.argmin(values))]
        raise ConfigError(
            f"data.mixture weight of {cell!r} must be at least 1/{PERIODS[-1]}, got {read[cell]:.3g}",
            hint="leave the cell out, or merge it: `forerun data mixture` writes weights without such cells",
        )
    return dict(zip(read, counts.tolist()))


@dataclass(frozen=True)
class Phase:
    """A stretch of the run with fixed proportions."""

    start: int
    """First window."""
    cells: tuple[int, ...]
    """Indices of the cells read."""
    counts: tuple[int, ...]
    """Windows of each per period."""
    base: tuple[int, ...]
    """Windows of each read before the phase began."""
    key: int
    """Of the jitter."""

    @property
    def period(self) -> int:
        """Windows per period."""
        return sum(self.counts)

    def windows(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cell index, and number of that cell's windows read before, of each window of the phase (counted from its start)."""
        cell, ordinal = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
        number, slot = np.divmod(index, self.period)
        for period in np.unique(number):
            here = number == period
            local, rank = _period_order(self.counts, self.key, int(period))
            chosen = local[slot[here]]
            cell[here] = np.array(self.cells)[chosen]
            ordinal[here] = np.array(self.base)[chosen] + period * np.array(self.counts)[chosen] + rank[slot[here]]
        return cell, ordinal

    def read_after(self, num_windows: int) -> np.ndarray:
        """Windows of each of its cells among the phase's first `num_windows`, int64 `[C]`."""
        full, rest = divmod(num_windows, self.period)
        local, _ = _period_order(self.counts, self.key, full)
        return full * np.array(self.counts) + np.bincount(local[:rest], minlength=len(self.counts))


@lru_cache(maxsize=16)
def _period_order(counts: tuple[int, ...], key: int, period: int) -> tuple[np.ndarray, np.ndarray]:
    """Which cell each slot of a period reads, and how many of that cell's windows come before it in the period.

    The i-th of a cell's k windows falls at a random point of the i-th k-th of the period, so any stretch is proportional.
    """
    cell = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(cell)) - np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    noise = mix(mix(np.uint64(key) + np.arange(len(cell), dtype=np.uint64)) ^ np.uint64(period))
    place = (rank + noise.astype(np.float64) / 2.0**64) / np.repeat(np.array(counts), counts)
    order = np.argsort(place, kind="stable")
    return cell[order], rank[order]
