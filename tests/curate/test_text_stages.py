"""Text stages decide for a stated reason, find what was planted, and do not depend on order."""

from __future__ import annotations

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.curate.text.ingest import SourceFile, ingest, sources_in
from forerun.curate.text.normalize import normalize
from forerun.curate.text.pipeline import TextConfig, clean

VOCABULARY = [f"{a}{b}" for a in "bcdfghklmnprstvz" for b in ("ano", "ike", "urm", "oled", "est", "agi", "yn", "orth")]


def sentence(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(num_words))


def table(texts: list[str], source: str = "s") -> pa.Table:
    count = len(texts)
    return pa.table({"text": pa.array(texts, pa.large_string()), "source": [source] * count, "source_id": [str(i) for i in range(count)]})


def test_blank_texts_are_dropped_and_long_white_space_is_cut_without_touching_the_rest():
    normal, blank = normalize(table(["a" + " " * 500 + "b", "  \n ", "a\tb"]))
    assert blank == 1
    assert [len(text) for text in normal["text"].to_pylist()] == [130, 3]
    assert all(len(name) == 32 for name in normal["id"].to_pylist())


def corpus(folder, seed: int = 0):
    rng = random.Random(seed)
    texts = [sentence(rng, 120) for _ in range(200)]
    texts += texts[:5] + [f"{text} {sentence(rng, 2)}" for text in texts[5:15]] + ["", "short"]
    rng2 = random.Random(9)
    rng2.shuffle(texts)
    return texts


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text, "path": str(i)}) + "\n" for i, text in enumerate(texts)))


def test_the_whole_walk_counts_add_up_and_order_and_reruns_change_nothing(tmp_path):
    texts = corpus(tmp_path)
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in" / "a.jsonl", texts)
    config = TextConfig(held_out_fraction=0.1)
    result = clean(Lab(tmp_path / "one"), sources_in(tmp_path / "in"), config, quiet=True)
    for step in result.steps:
        assert step.documents_in == step.documents_out + sum(step.dropped.values())
    reasons = {reason: count for step in result.steps for reason, count in step.dropped.items()}
    assert reasons == {"blank": 1, "too_short": 1, "exact_duplicate": 5, "near_duplicate": 10}
    before = [path.stat().st_mtime_ns for path in result.partitions]
    again = clean(Lab(tmp_path / "one"), sources_in(tmp_path / "in"), config, quiet=True)
    assert [path.stat().st_mtime_ns for path in again.partitions] == before
    write_lines(tmp_path / "in" / "a.jsonl", texts[::-1])
    other = clean(Lab(tmp_path / "two"), sources_in(tmp_path / "in"), config, quiet=True)
    ids = [pq.read_table(path, columns=["id", "text"]).to_pylist() for path in result.partitions]
    assert ids == [pq.read_table(path, columns=["id", "text"]).to_pylist() for path in other.partitions]
    changed = clean(Lab(tmp_path / "one"), sources_in(tmp_path / "in"), TextConfig(held_out_fraction=0.2), quiet=True)
    assert changed.decisions != again.decisions


def test_documents_that_cannot_be_read_are_counted_by_reason(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": 5}\nnot json\n{"text": "\xff"}\n\n{"body": "x"}\n')
    read = ingest(SourceFile(name="x", path=path))
    assert read.documents["text"].to_pylist() == ["good"]
    assert dict(read.dropped) == {"no_text_field": 2, "not_json": 1, "not_utf8": 1}
    assert read.num_read == 5
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.txt").write_bytes(b"\xff\xfe broken")
    (tree / "b.txt").write_text("fine")
    assert dict(ingest(SourceFile(name="t", path=tree)).dropped) == {"not_utf8": 1}


def test_unusable_sources_are_named_in_one_line(tmp_path):
    with pytest.raises(DataError, match="holds no text"):
        sources_in(tmp_path)
    whole = gzip.compress(b'{"text": "' + b"long " * 4000 + b'"}\n' * 3)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="ends or breaks"):
        ingest(SourceFile(name="cut", path=tmp_path / "cut.jsonl.gz"))
    whole = zstandard.compress(b'{"text": "' + b"long " * 4000 + b'"}\n' * 3)
    (tmp_path / "cut.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut short"):
        ingest(SourceFile(name="cut", path=tmp_path / "cut.jsonl.zst"))
    (tmp_path / "two.jsonl.zst").write_bytes(
        zstandard.compress(b'{"text": "a"}\n') + zstandard.compress(b'{"text": "b"}\n' + b"[" * 100_000 + b"\n")
    )
    two = ingest(SourceFile(name="two", path=tmp_path / "two.jsonl.zst"))
    assert (two.documents["text"].to_pylist(), dict(two.dropped)) == (["a", "b"], {"not_json": 1})
    (tmp_path / "n.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(DataError, match="no document has a text field"):
        ingest(SourceFile(name="n", path=tmp_path / "n.jsonl"))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.txt").write_text("hi")
    with pytest.raises(DataError, match="no document is left of 1 read"):
        clean(Lab(tmp_path / "lab"), sources_in(tmp_path / "one"), TextConfig(), quiet=True)
