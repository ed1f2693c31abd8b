"""A store depends on its documents only, is whole or absent, and is checked, explained and amended to the byte."""

from __future__ import annotations

import errno
import json
import random
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.cli.main import run
from forerun.curate.remove import remove_document, returned
from forerun.curate.spill import spill
from forerun.curate.store import StoreSpec, StoreWriter, held_out_mask, write_store
from forerun.curate.verify import verify_store
from forerun.loader.audit import cell_table, documents_at, find_document, tokens_of
from forerun.loader.batches import Batches
from forerun.loader.config import DataConfig
from forerun.loader.held_out import held_out_batches
from forerun.loader.manifest import Source
from forerun.loader.store import open_store
from token_stores import END_OF_DOCUMENT, VOCAB_SIZE, byte_tokenizer, document, make, random_documents, spec


def table(documents: list[dict]) -> pa.Table:
    whole = pa.Table.from_pylist(documents)
    whole = whole.set_column(whole.column_names.index("quality"), "quality", whole["quality"].cast(pa.int8()))
    return whole.set_column(whole.column_names.index("tokens"), "tokens", whole["tokens"].cast(pa.large_list(pa.int32())))


def build(lab: Lab, documents: list[dict], partitions: int, order: list[int] | None = None, store_spec: StoreSpec | None = None) -> str:
    writer = StoreWriter(lab, store_spec or spec(), lab.store / ".work")
    for partition in order or range(partitions):
        writer.add(partition, table(documents[partition::partitions]))
    return writer.finish().digest


def files(lab: Lab) -> dict[str, bytes]:
    return {path.relative_to(lab.root).as_posix(): path.read_bytes() for path in sorted(lab.root.rglob("*")) if path.is_file()}


def test_any_partitioning_order_and_input_order_give_the_same_bytes(tmp_path: Path):
    documents = random_documents(200)
    shuffled = random.Random(5).sample(documents, len(documents))
    one, four = Lab(tmp_path / "one"), Lab(tmp_path / "four")
    build(one, documents, 1)
    build(four, shuffled, 4, order=[2, 0, 3, 1])
    assert files(one) == files(four)


@pytest.fixture
def small_files():
    """No file of this process may grow beyond 4 KiB: what a full disk looks like to one writer."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


def test_tokens_that_cannot_be_written_say_what_the_system_says(tmp_path: Path, small_files):
    with pytest.raises(OSError) as refusal:
        spill(tmp_path / "run", table(random_documents(200)), VOCAB_SIZE)
    assert refusal.value.errno == errno.EFBIG  # with its number a full disk becomes one line


def test_a_build_killed_between_any_two_files_continues_to_the_same_store(tmp_path: Path):
    documents = random_documents(120)
    whole = Lab(tmp_path / "whole")
    digest = build(whole, documents, 3)
    killed = Lab(tmp_path / "killed")
    writer = StoreWriter(killed, spec(), killed.store / ".work")
    writer.add(0, table(documents[0::3]))
    (killed.store / ".work/runs/000001.part").mkdir()
    (killed.store / ".work/runs/000001.part/tokens.bin").write_bytes(b"half")
    again = StoreWriter(killed, spec(), killed.store / ".work")
    assert again.run_folder(0).is_dir()
    assert not again.run_folder(1).exists()
    again.add(1, table(documents[1::3]))
    again.add(2, table(documents[2::3]))
    again._cell = _dies_after(3, again._cell)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        again.finish()
    assert not killed.manifests.exists()
    assert StoreWriter(killed, spec(), killed.store / ".work").finish().digest == digest
    assert files(whole) == files(killed)


def _dies_after(times: int, function):
    left = [times]

    def call(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def test_documents_keep_their_tokens_origin_and_scores(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = random_documents(80)
    store = open_store(lab, write_store(lab, documents, spec(shard_tokens=100)).digest)
    assert max(len(cell.shards) for cell in store.manifest.cells) > 1
    for wanted in documents:
        found = find_document(store, wanted["id"])
        assert tokens_of(store, found).tolist() == wanted["tokens"]
        assert {name: found.row[name] for name in ("source_id", "domain", "quality", "quality_score", "num_bytes")} == {
            name: wanted[name] for name in ("source_id", "domain", "quality", "quality_score", "num_bytes")
        }
        assert found.cell.split == ("held_out" if wanted["held_out"] else "train")


def test_counts_come_from_the_files_that_were_written(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = make(lab, num=100)
    for cell in (*manifest.cells, *manifest.held_out):
        rows = cell_table(open_store(lab, manifest.digest), cell)
        sizes = [(lab.store / manifest.digest / shard.path).stat().st_size for shard in cell.shards]
        assert (rows.num_rows, sum(sizes)) == (cell.num_documents, 2 * cell.num_tokens)
    assert sum(source.num_tokens for source in manifest.sources) == sum(cell.num_tokens for cell in (*manifest.cells, *manifest.held_out))
    counted_elsewhere = Source(name="made", licence="CC0", revision="1", num_documents_in=2, num_documents=999, num_tokens=999)
    (source,) = write_store(Lab(tmp_path / "b"), [document("a", [1, 2]), document("b", [3])], spec(sources=(counted_elsewhere,))).sources
    assert (source.num_documents, source.num_tokens) == (2, 5)  # what a worker said it had counted does not matter


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain": "Two Words"}, "no folder name"),
        ({"quality": 7}, "quality must be 0-4"),
        ({"tokens": [VOCAB_SIZE]}, "outside the vocabulary"),
        ({"source": "unknown"}, "not among the sources"),
    ],
)
def test_documents_that_do_not_fit_are_refused_by_rule_and_value(tmp_path: Path, change: dict, message: str):
    with pytest.raises(DataError, match=message):
        write_store(Lab(tmp_path), [document("a", [1, 2]) | change], spec())
    assert not (tmp_path / "manifests").exists()


def test_the_same_id_twice_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="occur twice"):
        write_store(Lab(tmp_path), [document("a", [1]), document("a", [1], domain="cooking")], spec())


def test_documents_of_which_only_some_begin_with_a_special_token_are_refused_and_found(tmp_path: Path):
    marked = json.loads(byte_tokenizer())
    marked["added_tokens"].append(marked["added_tokens"][0] | {"id": 65, "content": "<s>"})
    with_marker = spec(tokenizer_json=json.dumps(marked))
    write_store(Lab(tmp_path / "all"), [document("a", [65, 2]), document("b", [65, 3])], with_marker)
    write_store(Lab(tmp_path / "none"), [document("a", [2]), document("b", [3, 65]), document("c", [])], with_marker)
    with pytest.raises(DataError, match=r"50\.0% of the documents begin with <s>"):
        write_store(Lab(tmp_path / "half"), [document("a", [65, 2]), document("b", [2])], with_marker)
    lab = Lab(tmp_path / "lost")
    manifest = write_store(lab, [document("a", [65, 2]), document("b", [2, 65]), document("c", [7])], spec())
    assert verify_store(lab, manifest.digest, quiet=True).problems == ()
    (lab.store / manifest.digest / "tokenizer.json").write_text(json.dumps(marked))  # what a store written elsewhere may hold
    assert "33.3% of the documents begin with <s>" in " ".join(p.what for p in verify_store(lab, manifest.digest, quiet=True).problems)


def test_a_large_vocabulary_is_stored_in_32_bits_without_clamping(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = write_store(lab, [document("a", [70_000, 99_999, 1])], spec(vocab_size=100_000))
    store = open_store(lab, manifest.digest)
    assert manifest.dtype == "uint32"
    assert store.cells["stars/q2"].shard(0).tolist() == [70_000, 99_999, 1, END_OF_DOCUMENT]


def test_a_document_longer_than_a_shard_stays_whole_and_in_order(tmp_path: Path):
    lab, long = Lab(tmp_path), [1 + index % 255 for index in range(1000)]
    documents = [document("long", long), *(document(str(index), [7] * 30) for index in range(9))]
    store = open_store(lab, write_store(lab, documents, spec(shard_tokens=100)).digest)
    (shard,) = [shard for cell in store.manifest.cells for shard in cell.shards if shard.num_tokens > 100]
    assert shard.num_documents == 1
    np.testing.assert_array_equal(tokens_of(store, find_document(store, document("long", [])["id"])), long)
    assert verify_store(lab, store.manifest.digest, quiet=True).problems == ()


def test_the_held_out_choice_depends_on_the_id_alone_and_hits_its_fraction():
    ids = pa.array([document(str(index), [1])["id"] for index in range(20_000)])
    mask = held_out_mask(ids, 0.05).to_pylist()
    assert abs(np.mean(mask) - 0.05) < 0.005  # 3 sigma of 20,000 draws
    assert held_out_mask(ids.take(pa.array([7, 3])), 0.05).to_pylist() == [mask[7], mask[3]]
    assert not any(held_out_mask(ids, 0.0).to_pylist())
    assert all(held_out_mask(ids, 1.0).to_pylist())


def test_verify_finds_one_flipped_bit_a_missing_file_and_a_stranger(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = make(lab, num=60)
    assert verify_store(lab, manifest.digest, quiet=True).problems == ()
    folder = lab.store / manifest.digest
    first, second = (cell.shards[0] for cell in manifest.cells[:2])
    content = bytearray((folder / first.path).read_bytes())
    content[-1] ^= 1
    (folder / first.path).write_bytes(content)
    (folder / second.docs_path).unlink()
    (folder / "stray.bin").write_bytes(b"x")
    found = {problem.path: problem.what for problem in verify_store(lab, manifest.digest, quiet=True).problems}
    assert found[first.path] == "differs from its digest"
    assert found[second.docs_path] == "is missing"
    assert found["stray.bin"] == "is not in the manifest"


def test_a_removed_document_is_never_read_again_and_nothing_else_moves(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = random_documents(120, longest=40)
    before = write_store(lab, documents, spec())
    gone = next(entry for entry in documents if not entry["held_out"] and len(entry["tokens"]) > 10)
    store_bytes = {path: content for path, content in files(lab).items() if path.startswith("store")}
    after = remove_document(lab, before.digest, gone["id"][:12], "request of the author")
    assert {path: content for path, content in files(lab).items() if path.startswith("store")} == store_bytes
    assert after.digest != before.digest
    steps = 40
    streams = [
        Batches(
            open_store(lab, digest), DataConfig(manifest=digest, max_seq_len=16, epoch_cap=50), num_steps=steps, batch_size=4, seq_len=16
        )
        for digest in (before.digest, after.digest)
    ]
    seen_before = 0
    for step in range(steps):
        old, new = (stream.batch(step) for stream in streams)
        hidden = np.zeros(old.tokens.shape, bool)
        for reading, place in _places(streams[0], step):
            if reading.id == gone["id"]:
                seen_before += reading.num_tokens
                length = min(reading.num_tokens, gone_length(gone) - reading.first_token)
                hidden[place[0], place[1] : place[1] + length] = True
        assert not new.loss_mask[hidden].any()
        assert not new.segment_ids[hidden].any()
        changed = (old.targets != new.targets) | (old.tokens != new.tokens)
        assert not (changed & ~hidden)[:, 1:].any() or _only_before_hidden(changed & ~hidden, hidden)
    assert seen_before > gone_length(gone)
    assert verify_store(lab, after.digest, quiet=True).problems == ()
    assert (returned(lab, before), returned(lab, after)) == ((gone["id"],), ())  # building the store again gives the first manifest
    with pytest.raises(DataError, match="removed before"):
        remove_document(lab, after.digest, gone["id"], "again")
    with pytest.raises(DataError, match="needs a reason"):
        remove_document(lab, after.digest, documents[0]["id"], " ")


def gone_length(entry: dict) -> int:
    return len(entry["tokens"])  # its end-of-document token starts the next document and stays


def _places(stream: Batches, step: int):
    column, row = 0, -1
    for reading in documents_at(stream, step):
        column = 0 if reading.row != row else column
        row = reading.row
        yield reading, (row, column)
        column += reading.num_tokens


def _only_before_hidden(changed: np.ndarray, hidden: np.ndarray) -> bool:
    """A position whose target was the removed document's first token loses it; it may be the last of its row."""
    following = np.ones_like(hidden)
    following[:, :-1] = hidden[:, 1:]
    return bool((following | ~changed).all())


def test_removal_reaches_the_held_out_rows_too(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = random_documents(200, longest=30)
    manifest = write_store(lab, documents, spec())
    gone = next(entry for entry in documents if entry["held_out"] and len(entry["tokens"]) > 5)
    after = remove_document(lab, manifest.digest, gone["id"], "leaked")
    before_rows, after_rows = (
        held_out_batches(open_store(lab, digest), 16, 999)[gone["domain"]] for digest in (manifest.digest, after.digest)
    )
    first = find_document(open_store(lab, manifest.digest), gone["id"]).row["token_offset"]
    scored = len(gone["tokens"]) + (1 if first else 0)
    assert before_rows.num_tokens - after_rows.num_tokens == scored


def test_documents_at_a_step_cover_the_batch_token_by_token(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = {entry["id"]: entry for entry in random_documents(150)}
    store = open_store(lab, write_store(lab, documents.values(), spec(shard_tokens=200)).digest)
    stream = Batches(store, DataConfig(manifest=store.manifest.digest, max_seq_len=24), num_steps=10, batch_size=3, seq_len=24)
    for step in (0, 7):
        batch = stream.batch(step)
        rows: dict[int, list[int]] = {}
        for reading in documents_at(stream, step):
            ids = [*documents[reading.id]["tokens"], END_OF_DOCUMENT]
            rows.setdefault(reading.row, []).extend(ids[reading.first_token : reading.first_token + reading.num_tokens])
        assert [rows[row] for row in range(3)] == batch.tokens.tolist()


def test_the_data_command_verifies_explains_shows_and_removes(tmp_path: Path, capsys: pytest.CaptureFixture):
    lab = Lab(tmp_path)
    documents = random_documents(60)
    digest = write_store(lab, documents, spec()).digest
    assert run(["data", "verify", digest[:8], "--lab", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    run(["data", "explain", digest[:8], documents[0]["id"], "--lab", str(tmp_path), "--json"])
    history = json.loads(capsys.readouterr().out)
    assert history["source_id"] == documents[0]["source_id"]
    assert history["licence"] == "CC0"
    run(["data", "remove", digest[:8], documents[0]["id"], "--reason", "test", "--lab", str(tmp_path)])
    amended = capsys.readouterr().out.strip()
    run(["data", "explain", amended, documents[0]["id"], "--lab", str(tmp_path)])
    assert "test" in capsys.readouterr().out
    run(["data", "show", amended, "--lab", str(tmp_path)])
    assert "1 removed" in capsys.readouterr().out
    run(["data", "show", amended, "--lab", str(tmp_path), "--cell", open_store(lab, amended).manifest.cells[0].name, "--json"])
    assert json.loads(capsys.readouterr().out)["sources"][0]["source"] == "made"
    shutil.rmtree(lab.store / digest / "stars")
    assert run(["data", "verify", digest[:8], "--lab", str(tmp_path), "--json"]) == 1
