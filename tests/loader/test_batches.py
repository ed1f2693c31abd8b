"""Batches are a pure function of the step: nothing is skipped, repeated or seen across documents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from forerun.base.errors import ConfigError, DataError
from forerun.base.lab import Lab
from forerun.curate.store import write_store
from forerun.loader.batches import Batches
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.held_out import held_out_batches
from forerun.loader.store import TokenStore, open_store
from token_stores import END_OF_DOCUMENT, document, make, spec


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    return open_store(lab, make(lab).digest)


def config(store: TokenStore, **changes: object) -> DataConfig:
    return DataConfig(**({"manifest": store.manifest.digest, "max_seq_len": 32} | changes))  # type: ignore[arg-type]


def batches(store: TokenStore, data: DataConfig, num_steps: int = 20, batch_size: int = 4, seq_len: int = 32) -> Batches:
    return Batches(store, data, num_steps=num_steps, batch_size=batch_size, seq_len=seq_len)


def read_positions(stream: Batches, steps: range) -> list[tuple[str, int]]:
    rings = {name: cell.num_tokens for name, cell in stream.store.cells.items()}
    return [
        (piece.cell, (piece.start + offset) % rings[piece.cell])
        for step in steps
        for piece in stream.pieces(step)
        for offset in range(piece.length)
    ]


def test_any_step_gives_the_same_batch_in_any_order_from_a_fresh_object(store: TokenStore):
    one, two = batches(store, config(store)), batches(store, config(store))
    for step in (13, 2, 19, 2):
        np.testing.assert_array_equal(one.batch(step).tokens, two.batch(step).tokens)
    assert not np.array_equal(one.batch(0).tokens, batches(store, config(store, seed=1)).batch(0).tokens)


def test_hosts_reading_rows_apart_see_the_rows_of_the_whole_batch(store: TokenStore):
    stream = batches(store, config(store))
    whole = stream.batch(5)
    for field in ("tokens", "targets", "segment_ids", "positions", "loss_mask"):
        halves = [getattr(stream.batch(5, rows), field) for rows in (slice(0, 1), slice(1, 4))]
        np.testing.assert_array_equal(np.concatenate(halves), getattr(whole, field))


def test_an_epoch_of_a_cell_reads_every_token_of_it_and_the_next_begins_where_it_ended(store: TokenStore):
    name = "stars/q2"
    num_tokens = store.cells[name].num_tokens
    data = config(store, mixture=(MixturePhase(weights={name: 1.0}),))
    num_steps = 3 * num_tokens // (4 * 32)
    seen = Counter(position for _, position in read_positions(batches(store, data, num_steps), range(num_steps)))
    assert len(seen) == num_tokens
    assert set(seen.values()) <= {2, 3, 4}  # three passes; the ring's seam moves by less than one window a pass


def test_a_context_switch_neither_skips_nor_repeats_a_token(store: TokenStore):
    data = config(store, max_seq_len=64)
    plain = batches(store, data, num_steps=30, batch_size=8, seq_len=16)
    longer = batches(store, data, num_steps=30, batch_size=2, seq_len=64)
    switched = read_positions(plain, range(13)) + read_positions(longer, range(13, 30))
    assert switched == read_positions(plain, range(30))


def test_targets_continue_the_document_and_positions_count_from_its_start(store: TokenStore):
    stream = batches(store, config(store))
    for step in range(20):
        batch = stream.batch(step)
        for piece in stream.pieces(step):
            ids = np.empty(piece.length + 1, np.int32)
            store.cells[piece.cell].read_into(ids, piece.start, store.cells[piece.cell].num_tokens)
            columns = slice(piece.column, piece.column + piece.length)
            np.testing.assert_array_equal(batch.tokens[piece.row, columns], ids[:-1])
            np.testing.assert_array_equal(batch.targets[piece.row, columns], ids[1:])
        for row in range(4):  # slow twin
            segment, position = 0, 0
            heads = {piece.column for piece in stream.pieces(step) if piece.row == row}
            for column in range(32):
                fresh = column in heads or batch.tokens[row, column] == END_OF_DOCUMENT
                segment, position = (segment + 1, 0) if fresh else (segment, position + 1)
                assert (batch.segment_ids[row, column], batch.positions[row, column]) == (segment, position)
    assert batch.tokens.dtype == batch.segment_ids.dtype == np.int32
    assert batch.loss_mask.dtype == np.float32


def test_a_document_longer_than_the_context_comes_as_ordered_chunks(tmp_path: Path):
    lab = Lab(tmp_path)
    long = [index % 256 + 1 for index in range(1000)]
    store = open_store(lab, write_store(lab, [document("long", long)], spec()).digest)
    stream = batches(store, config(store), num_steps=31, batch_size=1)
    starts = sorted(stream.pieces(step)[0].start for step in range(31))
    assert starts == list(range(0, 31 * 32, 32))
    for step in range(31):
        start = stream.pieces(step)[0].start
        np.testing.assert_array_equal(stream.batch(step).tokens[0], (long + [END_OF_DOCUMENT])[start : start + 32])


def test_a_second_phase_continues_each_cell_where_the_first_left_it(store: TokenStore):
    first = MixturePhase(weights={"stars/q1": 0.7, "stars/q3": 0.3})
    second = MixturePhase(start_fraction=0.5, weights={"stars/q1": 0.2, "cooking/q0": 0.8})
    stream = batches(store, config(store, mixture=(first, second), epoch_cap=100), num_steps=20)
    before, after = read_positions(stream, range(10)), read_positions(stream, range(10, 20))
    assert {cell for cell, _ in after} == {"stars/q1", "cooking/q0"}
    repeated = Counter(place for place in before + after if place[0] == "stars/q1")
    length = store.cells["stars/q1"].num_tokens
    assert max(repeated.values()) <= -(-len([1 for cell, _ in before + after if cell == "stars/q1"]) // length) + 1


def test_a_cell_is_never_read_beyond_the_epoch_cap(store: TokenStore):
    only = (MixturePhase(weights={"stars/q2": 1.0}),)
    with pytest.raises(ConfigError, match=r"stars/q2.*epoch_cap is 2"):
        batches(store, config(store, mixture=only, epoch_cap=2.0), num_steps=400)


def test_a_mixture_made_for_another_store_is_refused_by_cell(store: TokenStore):
    with pytest.raises(ConfigError, match=r"'stars/q9'.*does not have"):
        batches(store, config(store, mixture=(MixturePhase(weights={"stars/q9": 1.0}),)))


def test_cells_too_small_for_one_window_are_left_out_of_the_default_mixture_and_named(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = [document(str(index), [5] * 50) for index in range(100)] + [document("dust", [7], domain="dust")]
    store = open_store(lab, write_store(lab, documents, spec()).digest)
    stream = batches(store, config(store), num_steps=5)
    assert list(stream.left_out) == ["dust/q2"]
    assert stream.exposure["dust/q2"] == 0


def test_a_small_run_repeats_text_as_the_run_it_stands_in_for(store: TokenStore):
    train_tokens, target = 10 * 4 * 32, 400 * 4 * 32
    whole = batches(store, config(store), num_steps=400)
    small = batches(store, config(store, target_tokens=target), num_steps=10)
    for name in store.cells:
        if small.exposure[name]:
            # one window of 32 tokens in a cell cut to a few windows is the rounding left
            assert small.exposure[name] == pytest.approx(
                whole.exposure[name], abs=32 / (store.cells[name].num_tokens * train_tokens / target)
            )


def test_held_out_rows_are_the_split_in_order_padded_at_the_end_and_their_bytes_are_counted(store: TokenStore):
    held = held_out_batches(store, 16, 10_000)
    assert set(held) == {"cooking", "stars"}
    for domain, rows in held.items():
        cell = store.held_out[domain]
        ids = np.empty(cell.num_tokens, np.int32)
        cell.read_into(ids, 0, cell.num_tokens)
        scored = rows.batch.loss_mask > 0
        np.testing.assert_array_equal(rows.batch.targets[scored], ids[1:])
        assert rows.num_tokens == cell.num_tokens - 1
        assert rows.num_bytes == int((ids[1:] != END_OF_DOCUMENT).sum())  # one byte a token in this vocabulary
        assert set(rows.batch.segment_ids[~scored].tolist()) <= {0}


def test_a_store_with_a_missing_or_short_shard_says_which(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = make(lab, num=50)
    path = lab.store / manifest.digest / manifest.cells[0].shards[0].path
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match="the manifest says"):
        open_store(lab, manifest.digest).cells[manifest.cells[0].name].shard(0)
    with pytest.raises(DataError, match="manifests here"):
        open_store(lab, "nothing")


def test_an_edited_manifest_is_refused(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = make(lab, num=50)
    path = lab.manifests / f"{manifest.digest}.json"
    path.write_text(path.read_text().replace('"name":"tiny"', '"name":"Tiny"'))
    with pytest.raises(DataError, match="was changed"):
        open_store(lab, manifest.digest)


def test_a_cell_shorter_than_a_window_may_not_be_repeated_inside_one_beyond_the_cap(tmp_path: Path):
    lab = Lab(tmp_path)
    texts = [document(str(index), [3] * 60) for index in range(40)] + [document("s", [4] * 4, domain="small")]
    store = open_store(lab, write_store(lab, texts, spec()).digest)
    weights = {"stars/q2": 0.999, "small/q2": 0.001}
    data = DataConfig(manifest=store.manifest.digest, max_seq_len=64, mixture=(MixturePhase(weights=weights),), epoch_cap=8.0)
    with pytest.raises(ConfigError, match=r"reads cell 'small/q2' 12\.80 times, data\.epoch_cap is 8"):  # 64 tokens of a ring of 5
        Batches(store, data, num_steps=40, batch_size=4, seq_len=64 // 8 * 8)
