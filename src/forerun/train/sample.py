"""What the model writes: continuations of given texts at an evaluation, the same for the same state."""

# B prompts, S seq_len, V vocab_size

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from forerun.loader.store import TokenStore
from forerun.model.transformer import next_logits
from forerun.parallel.mesh import replicated
from forerun.train.config import RunConfig
from forerun.train.gathering import ends_gathered, layer_gathered
from forerun.train.state import TrainState
from forerun.train.step import ModelBatch

NUM_NEW_TOKENS = 48  # assumed: enough to read, cheap enough for every evaluation
TEMPERATURE = 0.8  # assumed: readable at small sizes without loops


class Sampler:
    """Continues `eval.sample_prompts`; one compiled call a token, on rows no longer than the text needs."""

    def __init__(self, config: RunConfig, store: TokenStore, mesh: Mesh | None = None) -> None:
        from tokenizers import Tokenizer

        self.prompts = config.eval.sample_prompts
        self._tokenizer = Tokenizer.from_file(str(store.tokenizer_path))
        self._end = store.manifest.end_of_document
        room = max(1, config.train.seq_len - NUM_NEW_TOKENS)
        self._ids = [[self._end, *self._tokenizer.encode(prompt, add_special_tokens=False).ids][-room:] for prompt in self.prompts]
        longest = max((len(ids) for ids in self._ids), default=0)
        self._width = min(config.train.seq_len, longest + NUM_NEW_TOKENS)

        whole = layer_gathered(mesh, experts_too=True)  # few rows: every device computes all of them

        def draw(state: TrainState, batch: ModelBatch, at: jax.Array, key: jax.Array) -> jax.Array:
            params, dtype = ends_gathered(state.params, mesh), config.train.compute_dtype
            logits = next_logits(params, state.router, batch, config.model, at, compute_dtype=dtype, whole=whole)
            return jax.random.categorical(key, logits / TEMPERATURE)

        self._draw = jax.jit(draw) if mesh is None else jax.jit(draw, out_shardings=replicated(mesh))

    def __call__(self, state: TrainState, step: int) -> list[dict[str, str]]:
        """`prompt` and `text` of each continuation, cut at the end of the document."""
        if not self.prompts:
            return []
        shape = (len(self._ids), self._width)
        tokens, length = np.full(shape, self._end, np.int32), np.array([len(ids) for ids in self._ids])
        for row, ids in zip(tokens, self._ids):
            row[: len(ids)] = ids
        positions = np.broadcast_to(np.arange(self._width, dtype=np.int32), shape)
        ones = np.ones(shape, np.int32)
        key = jax.random.key(step)
        for index in range(min(NUM_NEW_TOKENS, self._width - int(length.max()))):
            batch = ModelBatch(tokens, tokens, ones, positions, ones.astype(np.float32))
            drawn = self._draw(state, batch, jnp.asarray(length - 1), jax.random.fold_in(key, index))
            tokens[np.arange(len(tokens)), length] = np.asarray(drawn)
            length = length + 1
        return [
            {"prompt": prompt, "text": self._text(row[len(ids) : stop])}
            for prompt, row, ids, stop in zip(self.prompts, tokens, self._ids, length.tolist())
        ]

    def _text(self, ids: np.ndarray) -> str:
        ends = np.flatnonzero(ids == self._end)
        return self._tokenizer.decode(ids[: ends[0]].tolist() if len(ends) else ids.tolist())
