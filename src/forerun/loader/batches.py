"""Batches as a pure function of (manifest, mixture, seed, step, shape): no cursor, so resuming is calling with another step.

The run's text is one stream of windows (`order`). Row `r` of step `s` holds the stream's tokens from
`(s x batch_size + r) x seq_len` on, so a later part of the run may use longer rows: as long as `batch_size x seq_len`
stays, nothing is skipped or read twice. A document begins with the end-of-document token of the one before: that token
is its start marker, so every position predicts a real token. Documents cut by a window continue without their beginning.
"""

# B rows, S seq_len

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from forerun.base.errors import ConfigError
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.order import Phase, counts_per_period, key_of, permute
from forerun.loader.store import TokenStore

PADDING_SEGMENT = 0
CHUNK = 1024  # assumed: windows located at once; one call of the arithmetic costs as much for 8 as for 1,024
LOOK_WINDOWS = 1 << 16  # assumed: windows located at once when looking for a document
MOST_CHUNKS = 8


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
        self._rings = [_ring(cell.num_tokens, train_tokens, data.target_tokens) for cell in self._cells]
        self._num_windows = np.maximum(1, np.array(self._rings) // self.window)
        self._chunks: dict[int, list[tuple[int, int]]] = {}
        self._cell_keys = np.array([key_of("cell", data.seed, name) for name in self._names], np.uint64)
        self._removed = [store.removed_spans(cell.cell) for cell in self._cells]
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
        heads, hidden = [], []
        for row, column, length, cell, start in self._spans(step, rows):
            place = row, slice(column, column + length)
            self._fill(cell, start, tokens[place], targets[place])
            heads.append(row * self.seq_len + column)
            gone = self._removed[cell]
            if len(gone):
                hidden.append((place, _inside(gone, start, length + 1, self._rings[cell])))
        eod = self.store.manifest.end_of_document
        segment_ids, positions = segments(tokens == eod, heads)
        loss_mask = np.ones(shape, np.float32)
        for place, gone in hidden:
            tokens[place][gone[:-1]], segment_ids[place][gone[:-1]], positions[place][gone[:-1]] = eod, PADDING_SEGMENT, 0
            unscored = gone[:-1] | gone[1:]
            targets[place][unscored], loss_mask[place][unscored] = eod, 0
        return Batch(tokens, targets, segment_ids, positions, loss_mask)

    def ring_of(self, cell: str) -> int:
        """Tokens of a cell this run may see, before it begins again."""
        return self._rings[self._names.index(cell)]

    def pieces(self, step: int, rows: slice = slice(None)) -> list[Piece]:
        """Where each part of each row comes from, in row order; rows are counted from the first one asked for."""
        return [Piece(row, column, length, self._names[cell], start) for row, column, length, cell, start in self._spans(step, rows)]

    def steps_reading(self, cell: str, start: int, length: int) -> list[int]:
        """Steps whose batches hold any of `length` tokens of a cell from ring position `start` on, in order.

        Looks at every window of the run, a few million a second.
        """
        index = self._names.index(cell)
        ring, per_step = self._rings[index], self.batch_size * self.seq_len
        length = min(length, ring - start)
        if length <= 0:
            return []
        found: set[int] = set()
        num_windows = -(-self.num_steps * per_step // self.window)
        for first in range(0, num_windows, LOOK_WINDOWS):
            windows = np.arange(first, min(first + LOOK_WINDOWS, num_windows))
            cells, at = self._locate(windows)
            before = (start - at) % ring  # tokens of the window before the stretch, when the stretch begins inside it
            reads = (cells == index) & ((before < self.window) | ((at - start) % ring < length))
            for window, skip in zip(windows[reads].tolist(), before[reads].tolist()):
                inside = skip if skip < self.window else 0
                left = length if skip < self.window else length - (ring - skip) % ring
                begin = window * self.window + inside
                end = min(begin + left, (window + 1) * self.window)
                found.update(range(begin // per_step, (end - 1) // per_step + 1))
        return sorted(step for step in found if step < self.num_steps)

    def _spans(self, step: int, rows: slice) -> Iterator[tuple[int, int, int, int, int]]:
        """Row, column, length, cell index and ring position of each piece."""
        first, last, stride = rows.indices(self.batch_size)
        assert stride == 1, "rows must be a contiguous slice"
        begin = (step * self.batch_size + first) * self.seq_len
        end = (step * self.batch_size + last) * self.seq_len
        position = begin
        while position < end:
            window, inside = divmod(position, self.window)
            row, column = divmod(position - begin, self.seq_len)
            length = min(self.seq_len - column, self.window - inside, end - position)
            cell, start = self._place(window)
            yield row, column, length, cell, (start + inside) % self._rings[cell]
            position += length

    def _fill(self, cell: int, start: int, tokens: np.ndarray, targets: np.ndarray) -> None:
        """The ids from a ring position on, and the ids one further."""
        source, length, ring = self._cells[cell], len(tokens), self._rings[cell]
        shard, offset, room = source.run(start, ring)
        if length < room:
            tokens[:], targets[:] = shard[offset : offset + length], shard[offset + 1 : offset + length + 1]
            return
        ids = np.empty(length + 1, np.int32)
        source.read_into(ids, start, ring)
        tokens[:], targets[:] = ids[:-1], ids[1:]

    def _place(self, window: int) -> tuple[int, int]:
        """Cell index and ring position of the first token of a window; located by the thousand, a few thousand kept."""
        number, inside = divmod(window, CHUNK)
        chunk = self._chunks.get(number)
        if chunk is None:
            cell, start = self._locate(np.arange(number * CHUNK, (number + 1) * CHUNK))
            chunk = list(zip(cell.tolist(), start.tolist()))
            if len(self._chunks) >= MOST_CHUNKS:
                self._chunks.pop(next(iter(self._chunks)))
            self._chunks[number] = chunk
        return chunk[inside]

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
        return cell, (turn * size + shuffled) * self.window % np.array(self._rings)[cell]

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
        share = dict(zip(self._names, (ring / sum(self._rings) for ring in self._rings)))
        for name, ring in zip(self._names, self._rings):
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
        for name, windows, ring in zip(self._names, read.tolist(), self._rings):
            most = self.data.epoch_cap * ring
            if (windows - 1) * self.window > most or (windows and self.window > most):  # one window of rounding is allowed, if it fits
                raise ConfigError(
                    f"data.mixture reads cell {name!r} {windows * self.window / ring:.2f} times, data.epoch_cap is {self.data.epoch_cap:g}",
                    hint="lower its weight, shorten the run, or raise data.epoch_cap",
                )
        return {name: windows * self.window / ring for name, windows, ring in zip(self._names, read.tolist(), self._rings)}


def segments(starts: np.ndarray, heads: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Document number in its row from 1, and distance from the document's first token, both int32 `[B, S]`.

    Args:
        starts: marks first tokens of documents; the first column of a row always is one.
        heads: flat positions of further first tokens.
    """
    num_rows, seq_len = starts.shape
    first = np.unique(np.concatenate([np.flatnonzero(starts), np.asarray(heads, np.int64), np.arange(num_rows) * seq_len]))
    length = np.diff(first, append=starts.size)
    rows = first // seq_len if seq_len else first
    number = np.arange(1, len(first) + 1) - np.searchsorted(rows, rows)
    segment_ids = np.repeat(number.astype(np.int32), length)
    positions = np.arange(starts.size, dtype=np.int32) - np.repeat(first.astype(np.int32), length)
    return segment_ids.reshape(starts.shape), positions.reshape(starts.shape)


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
