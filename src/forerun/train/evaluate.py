"""Held-out loss by domain, macro and bits per byte: dropless, the same rows every time, one compiled call per chunk of rows."""

# B rows of a chunk, S seq_len

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from forerun.loader.held_out import HeldOut, held_out_batches
from forerun.loader.store import TokenStore
from forerun.model.transformer import RouterState, token_losses
from forerun.parallel import attention
from forerun.parallel.config import TransportConfig
from forerun.parallel.mesh import in_turn, over_batch, placed, replicated
from forerun.parallel.transports import bind
from forerun.train.config import RunConfig
from forerun.train.gathering import ends_gathered, layer_gathered
from forerun.train.state import TrainState
from forerun.train.step import ModelBatch
from forerun.train.suites import suite_rows

CHUNK_ROWS = 16  # measured: on two cores smaller chunks waste products, larger ones only memory


class Evaluator:
    """Holds the held-out rows of a run and the compiled function that scores them."""

    def __init__(self, config: RunConfig, store: TokenStore, mesh: Mesh | None = None) -> None:
        self.config, self._mesh = config, mesh
        self._chunk_rows = -(-CHUNK_ROWS // config.mesh.num_devices) * config.mesh.num_devices
        self.held = held_out_batches(store, config.train.seq_len, config.eval.num_sequences)
        suites = {
            name: suite_rows(Path(place), store, config.train.seq_len, config.eval.num_sequences)
            for name, place in config.eval.suites.items()
        }
        self._parts = {"eval": self.held} | {f"eval_{name}": held for name, held in suites.items()}
        dropless = replace(config.transport, capacity_factor=0.0, drop_rule="water_filling")
        self._score = _scorer(config, dropless, mesh)
        self._score_with_drops = _scorer(config, config.transport, mesh) if config.eval.with_drops else None

    def __call__(self, state: TrainState) -> dict[str, float]:
        """`eval/<domain>/loss_nats`, `.../bits_per_byte` and the macro of both; `eval_<suite>/...` and `eval_with_drops/...` when asked for."""
        row: dict[str, float] = {}
        for prefix, held in self._parts.items():
            row |= self._measured(self._score, state, prefix, held)
        if self._score_with_drops is not None:
            row |= self._measured(self._score_with_drops, state, "eval_with_drops", self.held)
        return row

    def _measured(self, score: Callable, state: TrainState, prefix: str, domains: dict[str, HeldOut]) -> dict[str, float]:
        nats = self._nats_by_row(score, state, _joined(domains))
        row: dict[str, float] = {}
        start = 0
        for name, held in domains.items():
            stop = start + len(held.batch.tokens)
            total = float(nats[start:stop].sum())
            row[f"{prefix}/{name}/loss_nats"] = total / held.num_tokens
            row[f"{prefix}/{name}/bits_per_byte"] = total / math.log(2) / max(held.num_bytes, 1)
            start = stop
        row[f"{prefix}/macro_loss_nats"] = float(np.mean([row[f"{prefix}/{name}/loss_nats"] for name in domains]))
        row[f"{prefix}/macro_bits_per_byte"] = float(np.mean([row[f"{prefix}/{name}/bits_per_byte"] for name in domains]))
        return row

    def _nats_by_row(self, score: Callable, state: TrainState, batch: ModelBatch) -> np.ndarray:
        num_rows, size = len(batch.tokens), self._chunk_rows
        sums = []
        for start in range(0, num_rows, size):
            chunk = ModelBatch(*(_padded(array[start : start + size], size) for array in batch))
            chunk = chunk if self._mesh is None else placed(chunk, over_batch(self._mesh))
            sums.append(in_turn(self._mesh, score(state.params, state.router, chunk)))
        return np.concatenate([np.asarray(part, np.float64) for part in sums])[:num_rows]


def _scorer(config: RunConfig, transport: TransportConfig, mesh: Mesh | None) -> Callable:
    def score(params: dict, router: RouterState, chunk: ModelBatch) -> jax.Array:
        experts = bind(transport, mesh)
        nats = token_losses(
            ends_gathered(params, mesh),
            router,
            chunk,
            config.model,
            compute_dtype=config.train.compute_dtype,
            experts=experts,
            attention=attention.bind(mesh),
            whole=layer_gathered(mesh),
        )
        return (nats * chunk.loss_mask).sum(1)

    return jax.jit(score) if mesh is None else jax.jit(score, out_shardings=replicated(mesh))


def _joined(domains: dict[str, HeldOut]) -> ModelBatch:
    fields = ("tokens", "targets", "segment_ids", "positions", "loss_mask")
    return ModelBatch(*(np.concatenate([getattr(held.batch, field) for held in domains.values()]) for field in fields))


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    missing = size - len(rows)
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)]) if missing else rows
