"""The held-out split as fixed rows per domain, the same for every run on a store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.loader.batches import PADDING_SEGMENT, Batch, segments
from forerun.loader.store import TokenStore


@dataclass(frozen=True, eq=False)
class HeldOut:
    """One domain's evaluation rows."""

    domain: str
    batch: Batch
    """At most `num_sequences` rows; the last may end in padding."""
    num_bytes: int
    """UTF-8 bytes of the scored targets, for bits per byte."""
    num_tokens: int
    """Scored targets."""


def held_out_batches(store: TokenStore, seq_len: int, num_sequences: int) -> dict[str, HeldOut]:
    """Each domain's first `num_sequences` rows of held-out text, by domain name; fewer rows when the domain is short.

    Documents follow each other in store order, which is the order of their content hashes, so a prefix is a fair sample.
    Domains without a single scored token are left out.
    """
    rows = {name: _rows(store, name, seq_len, num_sequences) for name in sorted(store.held_out)}
    return {name: held for name, held in rows.items() if held.num_tokens}


def _rows(store: TokenStore, name: str, seq_len: int, num_sequences: int) -> HeldOut:
    cell = store.held_out[name]
    eod = store.manifest.end_of_document
    available = max(0, cell.num_tokens - 1)  # the last token has no successor
    num_rows = min(num_sequences, -(-available // seq_len))
    num_scored = min(available, num_rows * seq_len)
    ids = np.full(num_rows * seq_len + 1, eod, np.int32)
    if num_scored:
        cell.read_into(ids[: num_scored + 1], 0, cell.num_tokens)
    scored = np.arange(num_rows * seq_len) < num_scored
    for first, last in store.removed_spans(cell.cell):
        scored[max(0, first - 1) : last] = False
    shape = (num_rows, seq_len)
    tokens, targets, mask = ids[:-1].reshape(shape).copy(), ids[1:].reshape(shape).copy(), scored.reshape(shape)
    segment_ids, positions = segments(tokens == eod)
    tokens[~mask], targets[~mask], segment_ids[~mask], positions[~mask] = eod, eod, PADDING_SEGMENT, 0
    return HeldOut(
        domain=name,
        batch=Batch(tokens, targets, segment_ids, positions, mask.astype(np.float32)),
        num_bytes=int(store.token_bytes[targets[mask]].sum()),
        num_tokens=int(mask.sum()),
    )
