"""What an evaluation harness is told agrees with the model's own losses."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from tiny_runs import lab_with_store, tiny_run
from tokenizers import Tokenizer

from forerun.loader.store import open_store
from forerun.model.transformer import next_logits, token_losses
from forerun.train.harness import Scorer
from forerun.train.state import init_state
from forerun.train.step import ModelBatch


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    lab, manifest = lab_with_store(tmp_path_factory.mktemp("lab"))
    config = tiny_run(manifest)
    store, state = open_store(lab, manifest), init_state(config)
    return Scorer(config, store, state), config, store, state


def nats_by_hand(scored, ids):
    """Nats of each id after the first, from the function that evaluates, in one row padded to the context."""
    _, config, _, state = scored
    count, shape = len(ids) - 1, (1, config.train.seq_len)
    tokens, targets, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    tokens[0, :count], targets[0, :count], segments[0, :count] = ids[:-1], ids[1:], 1
    positions = np.arange(shape[1], dtype=np.int32)[None]
    batch = ModelBatch(tokens, targets, segments, positions, segments.astype(np.float32))
    return np.asarray(evaluated(state.params, state.router, batch, config.model))[0, :count]


evaluated = jax.jit(token_losses, static_argnums=3)


def test_a_continuation_scores_what_evaluation_gives_its_tokens(scored):
    scorer, _, store, _ = scored
    tokenizer, end = Tokenizer.from_file(str(store.tokenizer_path)), store.manifest.end_of_document
    requests = [("abc", "def"), ("", "xy"), ("q" * 100, "rs")]
    for (context, continuation), (log_likelihood, _) in zip(requests, scorer.continuations(requests)):
        ids = [end, *tokenizer.encode(context + continuation, add_special_tokens=False).ids][-33:]  # what fits, from the end
        count = len(tokenizer.encode(continuation, add_special_tokens=False).ids)
        assert log_likelihood == pytest.approx(-nats_by_hand(scored, ids)[-count:].sum(), rel=1e-5)  # float32 sums


def test_a_whole_text_is_the_sum_of_its_windows_each_token_once(scored):
    scorer, config, store, _ = scored
    text = "the quick brown fox " * 4
    ids = Tokenizer.from_file(str(store.tokenizer_path)).encode(text, add_special_tokens=False).ids
    room, end = config.train.seq_len, store.manifest.end_of_document
    assert len(ids) > 2 * room
    by_hand = sum(nats_by_hand(scored, [end if i == 0 else ids[i - 1], *ids[i : i + room]]).sum() for i in range(0, len(ids), room))
    assert scorer.texts([text])[0] == pytest.approx(-by_hand, rel=1e-5)


def test_it_writes_the_likeliest_next_token_and_leaves_stops_out(scored):
    scorer, config, store, state = scored
    tokenizer, end = Tokenizer.from_file(str(store.tokenizer_path)), store.manifest.end_of_document
    ids = np.array([[end, *tokenizer.encode("abc", add_special_tokens=False).ids]], np.int32)
    ones = np.ones_like(ids)
    batch = ModelBatch(ids, ids, ones, np.arange(ids.shape[1], dtype=np.int32)[None], ones.astype(np.float32))
    logits = jax.jit(next_logits, static_argnums=3)(state.params, state.router, batch, config.model)
    likeliest = int(np.asarray(logits)[0, -1].argmax())
    text = "" if likeliest == end else tokenizer.decode([likeliest])
    assert scorer.written("abc", [], 1) == text
    assert scorer.written("abc", [text[:1]], 1) == ""
