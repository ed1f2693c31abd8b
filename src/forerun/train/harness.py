"""A trained model for lm-eval-harness: likelihoods of continuations and greedy texts, from a checkpoint of a run.

    from forerun.train.harness import adapter
    lm_eval.simple_evaluate(model=adapter(lab, "my-run"), tasks=["lambada_openai"])

lm-eval-harness is never a dependency: only `adapter` imports it. Texts are scored as in training: a document begins with the
end-of-document token, experts are dropless.
"""

# B sequences, S tokens

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from forerun.base.config import digest_of, load_json
from forerun.base.errors import CheckpointError, ConfigError
from forerun.base.lab import Lab
from forerun.loader.store import TokenStore, open_store
from forerun.model.transformer import next_logits
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import RunConfig
from forerun.train.state import TrainState, state_shapes
from forerun.train.step import ModelBatch

BATCH_SIZE = 8  # assumed: rows scored at once; one compiled shape serves every request
MOST_NEW_TOKENS = 256  # assumed: the harness's own default for tasks that name no limit


class Scorer:
    """Likelihoods and greedy continuations of one state, one compiled call of `[BATCH_SIZE, seq_len]` for all.

    A text longer than the context keeps its end: the continuation is always scored, with as much before it as fits.
    """

    def __init__(self, config: RunConfig, store: TokenStore, state: TrainState) -> None:
        from tokenizers import Tokenizer

        self._config, self._state = config, state
        self._end = store.manifest.end_of_document
        self._tokenizer = Tokenizer.from_file(str(store.tokenizer_path))

        def scores(state: TrainState, tokens: jax.Array, targets: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
            positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
            batch = ModelBatch(tokens, targets, valid.astype(jnp.int32), positions, valid.astype(jnp.float32))
            logits = next_logits(state.params, state.router, batch, config.model, compute_dtype=config.train.compute_dtype)
            nats = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
            return nats, logits.argmax(-1)

        self._scores = jax.jit(scores)

    def continuations(self, requests: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Log likelihood in nats of each continuation after its context, and whether greedy decoding would write it."""
        pairs = []
        for context, continuation in requests:
            before, both = self._ids(context), self._ids(context + continuation)
            shared = min(len(before), len(both) - 1) if both else 0  # a token may span the border: it counts to the continuation
            pairs.append(([self._end, *both[:shared]], both[shared:]))
        return list(self._scored(pairs))

    def texts(self, requests: Sequence[str]) -> list[float]:
        """Log likelihood in nats of each whole text, cut into windows of the context length that do not overlap."""
        room = self._config.train.seq_len
        totals = []
        for text in requests:
            ids = self._ids(text)
            windows = [([self._end] if start == 0 else [ids[start - 1]], ids[start : start + room]) for start in range(0, len(ids), room)]
            totals.append(sum(log_likelihood for log_likelihood, _ in self._scored(windows)))
        return totals

    def written(self, context: str, until: Iterable[str], num_tokens: int) -> str:
        """The greedy continuation, up to the first of `until`, the end of the document or `num_tokens`."""
        ids = [self._end, *self._ids(context)]
        start, stops = len(ids), [stop for stop in until if stop]
        text = ""
        for _ in range(num_tokens):
            _, best = self._run([ids[-self._config.train.seq_len :]])
            token = int(best[0][-1])
            if token == self._end:
                break
            ids.append(token)
            text = self._tokenizer.decode(ids[start:])
            found = [text.index(stop) for stop in stops if stop in text]
            if found:
                return text[: min(found)]
        return text

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _scored(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterable[tuple[float, bool]]:
        """Of each (context, continuation) of ids; the context is never empty."""
        room = self._config.train.seq_len + 1
        for start in range(0, len(pairs), BATCH_SIZE):
            rows = [(before + after)[-room:] for before, after in pairs[start : start + BATCH_SIZE]]
            counts = [min(len(after), room - 1) for _, after in pairs[start : start + BATCH_SIZE]]
            nats, best = self._run([row[:-1] for row in rows], [row[1:] for row in rows])
            for row, count, of_row, greedy in zip(rows, counts, nats, best):
                stop = len(row) - 1
                places = slice(stop - count, stop)
                yield -float(of_row[places].sum()), bool((greedy[places] == np.array(row[1:])[places]).all())

    def _run(self, rows: Sequence[list[int]], targets: Sequence[list[int]] | None = None) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Nats of the targets and the likeliest token at each place of each row."""
        shape = (BATCH_SIZE, self._config.train.seq_len)
        tokens, wanted, valid = np.full(shape, self._end, np.int32), np.full(shape, self._end, np.int32), np.zeros(shape, bool)
        for index, row in enumerate(rows):
            tokens[index, : len(row)], valid[index, : len(row)] = row, True
            if targets is not None:
                wanted[index, : len(row)] = targets[index]
        nats, best = (np.asarray(part) for part in self._scores(self._state, tokens, wanted, valid))
        return [nats[index, : len(row)] for index, row in enumerate(rows)], [best[index, : len(row)] for index, row in enumerate(rows)]


def scorer_of(lab: Lab, run_id: str, *, at_step: int = 0) -> Scorer:
    """A scorer of a run's checkpoint: the newest, or that of a step. Raises: CheckpointError when the run has none."""
    config = load_json(lab.run(run_id) / "config.json", RunConfig)
    checkpoints = Checkpoints(lab.run(run_id) / "checkpoints", config_digest=digest_of(config))
    steps = checkpoints.steps()
    if not steps:
        raise CheckpointError(f"run {run_id!r} has no checkpoint", hint="train it further")
    state = checkpoints.restore(at_step or steps[-1], state_shapes(config))
    return Scorer(config, open_store(lab, config.data.manifest), state)


def adapter(lab: Lab, run_id: str, *, at_step: int = 0) -> Any:
    """The run as a model of lm-eval-harness. Raises: ConfigError when `lm_eval` is not installed."""
    try:
        from lm_eval.api.model import LM  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError("evaluating with lm-eval-harness needs the package lm_eval", hint="pip install 'forerun[lm-eval]'") from None
    scorer = scorer_of(lab, run_id, at_step=at_step)

    class Run(LM):
        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            return scorer.continuations([request.args for request in requests])

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            return scorer.texts([request.args[0] for request in requests])

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return [
                scorer.written(context, _until(options), _limit(options)) for context, options in (request.args for request in requests)
            ]

    return Run()


def _until(options: dict[str, Any]) -> list[str]:
    until = options.get("until") or []
    return [until] if isinstance(until, str) else list(until)


def _limit(options: dict[str, Any]) -> int:
    return int(options.get("max_gen_toks", MOST_NEW_TOKENS))
