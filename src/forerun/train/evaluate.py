"""Held-out loss by domain, macro and bits per byte: dropless, the same rows every time, one compiled call per chunk of rows."""

# B rows of a chunk, S seq_len

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import numpy as np

from forerun.loader.held_out import held_out_batches
from forerun.loader.store import TokenStore
from forerun.model.transformer import DROPLESS, RouterState, token_losses
from forerun.parallel.local import run_experts
from forerun.train.config import RunConfig
from forerun.train.state import TrainState
from forerun.train.step import ModelBatch

CHUNK_ROWS = 16  # measured: on two cores smaller chunks waste products, larger ones only memory


class Evaluator:
    """Holds the held-out rows of a run and the compiled function that scores them."""

    def __init__(self, config: RunConfig, store: TokenStore) -> None:
        self.config = config
        self.held = held_out_batches(store, config.train.seq_len, config.eval.num_sequences)
        self._rows = {name: len(held.batch.tokens) for name, held in self.held.items()}
        fields = ("tokens", "targets", "segment_ids", "positions", "loss_mask")
        self._batch = ModelBatch(*(np.concatenate([getattr(held.batch, field) for held in self.held.values()]) for field in fields))
        self._score = _scorer(config, drops=False)
        self._score_with_drops = _scorer(config, drops=True) if config.eval.with_drops else None

    def __call__(self, state: TrainState) -> dict[str, float]:
        """`eval/<domain>/loss_nats`, `.../bits_per_byte` and the macro of both; `eval_with_drops/...` when asked for."""
        row = self._measured(self._score, state, "eval")
        if self._score_with_drops is not None:
            row |= self._measured(self._score_with_drops, state, "eval_with_drops")
        return row

    def _measured(self, score: Callable, state: TrainState, prefix: str) -> dict[str, float]:
        nats = self._nats_by_row(score, state)
        row: dict[str, float] = {}
        start = 0
        for name, held in self.held.items():
            stop = start + self._rows[name]
            total = float(nats[start:stop].sum())
            row[f"{prefix}/{name}/loss_nats"] = total / held.num_tokens
            row[f"{prefix}/{name}/bits_per_byte"] = total / math.log(2) / max(held.num_bytes, 1)
            start = stop
        row[f"{prefix}/macro_loss_nats"] = float(np.mean([row[f"{prefix}/{name}/loss_nats"] for name in self.held]))
        row[f"{prefix}/macro_bits_per_byte"] = float(np.mean([row[f"{prefix}/{name}/bits_per_byte"] for name in self.held]))
        return row

    def _nats_by_row(self, score: Callable, state: TrainState) -> np.ndarray:
        num_rows = len(self._batch.tokens)
        sums = []
        for start in range(0, num_rows, CHUNK_ROWS):
            chunk = ModelBatch(*(_padded(array[start : start + CHUNK_ROWS]) for array in self._batch))
            sums.append(score(state.params, state.router, chunk))
        return np.concatenate([np.asarray(part, np.float64) for part in sums])[:num_rows]


def _scorer(config: RunConfig, *, drops: bool) -> Callable:
    experts = functools.partial(run_experts, config=config.transport) if drops else DROPLESS

    def score(params: dict, router: RouterState, chunk: ModelBatch) -> jax.Array:
        nats = token_losses(params, router, chunk, config.model, compute_dtype=config.train.compute_dtype, experts=experts)
        return (nats * chunk.loss_mask).sum(1)

    return jax.jit(score)


def _padded(rows: np.ndarray) -> np.ndarray:
    missing = CHUNK_ROWS - len(rows)
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows
