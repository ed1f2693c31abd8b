"""Batches as a pure function of (manifest, mixture, seed, step, shape): no cursor, so resuming is calling with another step.

The run's text is one stream of windows (`order`). Row `r` of step `s` holds the stream's tokens from
`(s x batch_size + r) x seq_len` on, so a later part of the run may use longer rows: as long as `batch_size x seq_len`
stays, nothing is skipped or read twice. A document begins with the end-of-document token of the one before: that token
is its start marker, so every position predicts a real token. Documents cut by a window continue without their beginning.
"""

# B rows, S seq_len

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from forerun.base.errors import ConfigError
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.order import Phase, counts_per_period, key_of, permute
from forerun.loader.store import TokenStore

PADDING_SEGMENT = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of packed documents. All arrays `[B, S]`."""

    tokens: np.ndarray
    """int32 ids."""
    targets: np.ndarray
    """int32, the id that follows each token in its document."""
    segment_ids: np.ndarray
    """int32, document number within the row from 1; 0 is padding, never attended and never scored."""
    positions: np.ndarray
    """int32, distance from the document's first token in the row."""
    loss_mask: np.ndarray
    """float32, 1 where the target counts."""


@dataclass(frozen=True)
class Piece:
    """A run of tokens of one window inside one row."""

    row: int
    column: int
    length: int
    cell: str
    start: int
    """Position in the cell's ring."""


class Batches:
    """The batches of a run.

    Args:
        num_steps, batch_size, seq_len: of the run as planned; phases begin at fractions of `num_steps x batch_size x seq_len`.
    Raises: ConfigError when the mixture names a cell the store lacks, a weight is too small to be read, or a cell would be
        read more often than `data.epoch_cap`.
    """

    def __init__(self, store: TokenStore, data: DataConfig, *, num_steps: int, batch_size: int, seq_len: int) -> None:
        self.store, self.data = store, data
        self.num_steps, self.batch_size, self.seq_len = num_steps, batch_size, seq_len
        self.window = data.max_seq_len or seq_len
        self._names = sorted(store.cells)
        self._cells = [store.cells[name] for name in self._names]
        train_tokens = num_steps * batch_size * seq_len
        self._rings = np.array([_ring(cell.num_tokens, train_tokens, data.target_tokens) for cell in self._cells], np.int64)
        self._ring_of = dict(zip(self._names, self._rings.tolist()))
        self._num_windows = np.maximum(1, self._rings // self.window)
        self._cell_keys = np.array([key_of("cell", data.seed, name) for name in self._names], np.uint64)
        self._removed = {cell.name: store.removed_spans(cell) for cell in store.manifest.cells}
        self._removed = {name: spans for name, spans in self._removed.items() if len(spans)}
        self.left_out: dict[str, str] = {}
        """Cells the default mixture does not read, with the reason."""
        self._phases = self._lay_out(data.mixture or (self._proportional(train_tokens),), train_tokens)
        self.exposure = self._checked_exposure(train_tokens)
        """Epochs of each cell over the run."""

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """The batch of a step, or some of its rows; any step, in any order.

        Args:
            rows: what one host of several needs.
        """
        first, last, _ = rows.indices(self.batch_size)
        shape = (max(0, last - first), self.seq_len)
        tokens, targets = np.empty(shape, np.int32), np.empty(shape, np.int32)
        starts, blank, unscored = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
        for piece in self.pieces(step, rows):
            place = piece.row, slice(piece.column, piece.column + piece.length)
            ring = self._ring_of[piece.cell]
            ids = np.empty(piece.length + 1, np.int32)
            self.store.cells[piece.cell].read_into(ids, piece.start, ring)
            tokens[place], targets[place] = ids[:-1], ids[1:]
            starts[piece.row, piece.column] = True
            if piece.cell in self._removed:
                gone = _inside(self._removed[piece.cell], piece.start, piece.length + 1, ring)
                blank[place], unscored[place] = gone[:-1], gone[:-1] | gone[1:]
        eod = self.store.manifest.end_of_document
        starts |= tokens == eod
        starts[:, :1] = True
        segment_ids, positions = segments(starts)
        tokens[blank], segment_ids[blank], positions[blank] = eod, PADDING_SEGMENT, 0
        targets[unscored] = eod
        return Batch(tokens, targets, segment_ids, positions, 1 - unscored.astype(np.float32))

    def ring_of(self, cell: str) -> int:
        """Tokens of a cell this run may see, before it begins again."""
        return self._ring_of[cell]

    def pieces(self, step: int, rows: slice = slice(None)) -> list[Piece]:
        """Where each part of each row comes from, in row order; rows are counted from the first one asked for."""
        first, last, stride = rows.indices(self.batch_size)
        assert stride == 1, "rows must be a contiguous slice"
        begin = (step * self.batch_size + first) * self.seq_len
        end = (step * self.batch_size + last) * self.seq_len
        if end <= begin:
            return []
        windows = np.arange(begin // self.window, (end - 1) // self.window + 1)
        cell_index, start = self._locate(windows)
        pieces = []
        for window, cell, at in zip(windows.tolist(), cell_index.tolist(), start.tolist()):
            position, stop = max(begin, window * self.window), min(end, (window + 1) * self.window)
            while position < stop:
                row, column = divmod(position - begin, self.seq_len)
                length = min(self.seq_len - column, stop - position)
                inside = (at + position - window * self.window) % int(self._rings[cell])
                pieces.append(Piece(row, column, length, self._names[cell], inside))
                position += length
        return pieces

    def _locate(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cell index and ring position of the first token of each window."""
        cell, ordinal = np.empty(len(windows), np.int64), np.empty(len(windows), np.int64)
        owner = np.searchsorted([phase.start for phase in self._phases], windows, side="right") - 1
        for number in np.unique(owner):
            here = owner == number
            phase = self._phases[number]
            cell[here], ordinal[here] = phase.windows(windows[here] - phase.start)
        size = self._num_windows[cell]
        turn, inside = np.divmod(ordinal, size)
        shuffled = permute(inside, size, self._cell_keys[cell] + turn.astype(np.uint64))
        return cell, (turn * size + shuffled) * self.window % self._rings[cell]

    def _lay_out(self, mixture: tuple[MixturePhase, ...], train_tokens: int) -> list[Phase]:
        phases: list[Phase] = []
        read = np.zeros(len(self._names), np.int64)
        for number, wanted in enumerate(sorted(mixture, key=lambda phase: phase.start_fraction)):
            start_step = round(wanted.start_fraction * self.num_steps)
            start = -(-start_step * self.batch_size * self.seq_len // self.window)
            if number == 0 and start:
                raise ConfigError(
                    f"data.mixture must begin at start_fraction 0, got {wanted.start_fraction}", hint="set the first phase's to 0"
                )
            if phases:
                read[list(phases[-1].cells)] += phases[-1].read_after(start - phases[-1].start)
            counts = counts_per_period(self._known(wanted.weights))
            cells = tuple(self._names.index(name) for name in counts)
            key = int(key_of("phase", self.data.seed, number))
            phases.append(Phase(start, cells, tuple(counts.values()), tuple(read[list(cells)].tolist()), key))
        return phases

    def _known(self, weights: dict[str, float]) -> dict[str, float]:
        for name in weights:
            if name not in self.store.cells:
                near = get_close_matches(name, self._names, n=1) or self._names[:1]
                raise ConfigError(
                    f"data.mixture names cell {name!r}, which manifest {self.data.manifest[:12]} does not have",
                    hint=f"a mixture holds for one manifest only; did you mean {near[0]!r}?",
                )
        return {name: weights[name] for name in sorted(weights)}

    def _proportional(self, train_tokens: int) -> MixturePhase:
        """Every cell by its tokens; cells smaller than one read may be are left out and named."""
        total = sum(cell.num_tokens for cell in self._cells)
        if not total:
            raise ConfigError(f"manifest {self.data.manifest[:12]} has no training tokens", hint="curate more text")
        share = dict(zip(self._names, (ring / self._rings.sum() for ring in self._rings.tolist())))
        for name, ring in zip(self._names, self._rings.tolist()):
            if self.window > self.data.epoch_cap * ring:
                self.left_out[name] = f"one window of {self.window} tokens would read its {ring} more than {self.data.epoch_cap:g} times"
            elif share[name] * 32768 < 1:  # half a window of the longest period: cannot be read in proportion
                self.left_out[name] = f"its share {share[name]:.1e} is below one window per period"
        kept = {name: value for name, value in share.items() if name not in self.left_out}
        if not kept:
            raise ConfigError(
                f"every cell is shorter than data.max_seq_len={self.window} tokens / data.epoch_cap={self.data.epoch_cap:g}",
                hint="shorten the context or curate more text",
            )
        return MixturePhase(weights={name: value / sum(kept.values()) for name, value in kept.items()})

    def _checked_exposure(self, train_tokens: int) -> dict[str, float]:
        read = np.zeros(len(self._names), np.int64)
        end = -(-train_tokens // self.window)
        for phase, stop in zip(self._phases, [*(phase.start for phase in self._phases[1:]), end]):
            read[list(phase.cells)] += phase.read_after(max(0, min(stop, end) - phase.start))
        for name, windows, ring in zip(self._names, read.tolist(), self._rings.tolist()):
            if (windows - 1) * self.window > self.data.epoch_cap * ring:  # one window of rounding is allowed
                raise ConfigError(
                    f"data.mixture reads cell {name!r} {windows * self.window / ring:.2f} times, data.epoch_cap is {self.data.epoch_cap:g}",
                    hint="lower its weight, shorten the run, or raise data.epoch_cap",
                )
        return {name: windows * self.window / ring for name, windows, ring in zip(self._names, read.tolist(), self._rings.tolist())}


def segments(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Document number from 1 and distance from the document's start, for rows in which `starts` marks first tokens."""
    column = np.arange(starts.shape[1], dtype=np.int32)
    begin = np.maximum.accumulate(np.where(starts, column, 0), axis=1)
    return np.cumsum(starts, axis=1, dtype=np.int32), (column - begin).astype(np.int32)


def _ring(num_tokens: int, train_tokens: int, target_tokens: int) -> int:
    """Tokens of a cell a run may see: all, or the share that makes repeats occur as in the target run."""
    if target_tokens <= train_tokens:
        return num_tokens
    return max(1, num_tokens * train_tokens // target_tokens)


def _inside(spans: np.ndarray, start: int, length: int, ring: int) -> np.ndarray:
    """Which of `length` ring positions from `start` on lie in one of the sorted spans."""
    position = (start + np.arange(length)) % ring
    span = np.searchsorted(spans[:, 0], position, side="right") - 1
    return (span >= 0) & (position < spans[np.maximum(span, 0), 1])
