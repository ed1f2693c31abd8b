"""Every format gives its documents, and whatever is not a document is counted, named, or stops the run with one line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from curate.ingest_reading import read, reasons
from forerun.base.errors import DataError, SourceError
from forerun.curate.ingest.read import read_files
from forerun.curate.ingest.records import Document, IngestConfig
from forerun.curate.ingest.source import SourceFile, input_files, listed, sources_in
from forerun.curate.ingest.streams import lines


def test_json_lines_give_documents_and_every_odd_line_a_reason(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"text": "good", "id": 7}\n{"text": 5}\nnot json\n{"text": "\xff"}\n\n{"body": "x"}\n[1]\n{"text": "\\ud800 x", "url": "u"}\n'
    )
    documents, problems = read(path)
    assert [(document.text, document.name) for document in documents] == [("good", "7"), ("� x", "u")]
    assert reasons(problems) == ["text_is_not_a_string", "not_json", "not_utf8", "no_text_field", "not_an_object"]
    assert [problem.place for problem in problems] == ["x.jsonl:2", "x.jsonl:3", "x.jsonl:4", "x.jsonl:6", "x.jsonl:7"]


def test_a_few_invalid_bytes_are_replaced_and_said_many_are_refused(tmp_path):
    (tmp_path / "few.txt").write_bytes((b"a good text with one bad byte \xff in it, and " + b"more " * 20) * 5)
    (tmp_path / "many.txt").write_bytes(b"\x80\xfe\xff broken")
    documents, problems = read(tmp_path)
    assert [(document.name, document.repaired, document.text.count("\ufffd")) for document in documents] == [("few.txt", True, 5)]
    assert [(problem.place, problem.reason) for problem in problems] == [("many.txt", "not_utf8")]


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        zstandard.compress,
        lambda data: zstandard.compress(data[:40]) + zstandard.compress(data[40:]),
    ],
)
def test_compressed_lines_read_as_plain_ones_and_a_cut_file_stops_the_run(tmp_path, pack):
    data = b"".join(json.dumps({"text": f"text number {i} " * 40}).encode() + b"\n" for i in range(50))
    path = tmp_path / "x.jsonl"
    path.write_bytes(pack(data))
    assert len(read(path)[0]) == 50
    path.write_bytes(pack(data)[:-30])
    with pytest.raises(DataError, match="ends or breaks"):
        read(path)


def test_what_was_read_before_a_small_gzip_file_breaks_is_kept(tmp_path):
    data = b"".join(json.dumps({"text": f"text number {i}"}).encode() + b"\n" for i in range(20))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(data) + b"not a gzip member")
    source = SourceFile(name="s", path=str(tmp_path / "x.jsonl.gz"))
    summary = read_files(input_files(source), source, IngestConfig(broken_files="keep_readable"), tmp_path / "out")
    assert summary.num_documents == 20 and summary.num_problems == 1


def test_zstd_files_may_begin_with_a_skippable_frame_and_have_a_long_window(tmp_path):
    data = json.dumps({"text": "packed"}).encode() + b"\n"
    frame = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)).compressobj()
    (tmp_path / "x.jsonl.zst").write_bytes(b"\x5a\x2a\x4d\x18\x03\0\0\0abc" + frame.compress(data) + frame.flush())
    assert [document.text for document in read(tmp_path)[0]] == ["packed"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_byte_order_mark_says_how_text_is_read(tmp_path, encoding):
    text = "naïve café 漢字 😀 " * 3000
    (tmp_path / "x.txt").write_bytes(text.encode(encoding))
    (tmp_path / "y.jsonl").write_bytes(
        "".join(json.dumps({"text": f"{i} é"}, ensure_ascii=False) + "\n" for i in range(3)).encode(encoding)
    )
    documents, problems = read(tmp_path)
    assert [document.text for document in documents] == [text, "0 é", "1 é", "2 é"] and not problems


def test_files_full_of_nul_are_no_text_and_a_stray_one_is_replaced(tmp_path):
    (tmp_path / "a.txt").write_bytes("no mark says UTF-16".encode("utf-16-le"))
    (tmp_path / "b.txt").write_bytes(b"a\0" + b" good" * 200)
    documents, problems = read(tmp_path)
    assert [(document.name, document.repaired, "\0" in document.text) for document in documents] == [("b.txt", True, False)]
    assert [(problem.place, problem.reason) for problem in problems] == [("a.txt", "not_utf8")]


def test_pipes_are_left_out_and_names_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    os.mkfifo(tmp_path / "b.jsonl")
    assert [file.name for file in input_files(SourceFile(name="s", path=str(tmp_path)))] == ["a.jsonl"]
    assert [source.name for source in sources_in(tmp_path)] == ["a"]
    try:
        (tmp_path / os.fsdecode(b"c\xff.txt")).write_text("x")
    except OSError:
        return  # this file system takes UTF-8 names only
    with pytest.raises(SourceError, match=r"c\\xff.txt' is not UTF-8"):
        input_files(SourceFile(name="s", path=str(tmp_path)))


def test_text_columns_may_be_bytes_views_or_dictionaries(tmp_path):
    for kind in (pa.binary(), pa.large_binary(), pa.large_string(), pa.string_view()):
        pq.write_table(pa.table({"text": pa.array(["one", "zwei é"]).cast(kind)}), tmp_path / "x.parquet")
        assert [document.text for document in read(tmp_path)[0]] == ["one", "zwei é"]
    pq.write_table(pa.table({"text": pa.array(["one", "one"]).dictionary_encode()}), tmp_path / "x.parquet")
    assert [document.text for document in read(tmp_path)[0]] == ["one", "one"]
    pq.write_table(pa.table({"text": pa.array([b"bad \xff" + b" but good" * 30, b"\xff\xfe"])}), tmp_path / "x.parquet")
    documents, problems = read(tmp_path)
    assert [document.repaired for document in documents] == [True] and reasons(problems) == ["not_utf8"]


def test_a_cut_file_can_be_kept_as_far_as_it_reads_and_the_break_is_counted(tmp_path):
    lines_ = b"".join(json.dumps({"text": f"{i} {'word ' * 30_000}{i}"}).encode() + b"\n" for i in range(50))
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(lines_, 1)[:-40])
    source = SourceFile(name="s", path=str(tmp_path / "x.jsonl.gz"))
    summary = read_files(input_files(source), source, IngestConfig(broken_files="keep_readable"), tmp_path / "out")
    problems = pq.read_table(tmp_path / "out" / "problems.parquet").to_pylist()
    assert 0 < summary.num_documents < 50
    assert [problem["reason"] for problem in problems] == ["broken_file"]
    assert "x.jsonl.gz ends or breaks" in summary.broken[0]


def test_one_endless_line_is_skipped_in_bounded_memory():
    class Endless:
        def __init__(self, num_pieces):
            self.left = num_pieces

        def read(self, size):
            self.left -= 1
            return b"x" * size if self.left > 0 else (b"\nshort\n" if self.left == 0 else b"")

    import tracemalloc

    tracemalloc.start()
    found = list(lines(Endless(501), 4 << 20))  # 500 MiB in one line
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [500 << 20, b"short"]
    assert peak < 16 << 20


def test_too_long_documents_are_counted_with_their_size(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "' + "x" * 5000 + '"}\n{"text": "ok"}\n')
    documents, problems = read(tmp_path / "a.jsonl", IngestConfig(max_document_bytes=1000))
    assert [document.text for document in documents] == ["ok"]
    assert [(problem.reason, problem.num_bytes) for problem in problems] == [("too_long", 5012)]
    pq.write_table(pa.table({"text": ["é" * 600, "fine"]}), tmp_path / "b.parquet")
    documents, problems = read(tmp_path / "b.parquet", IngestConfig(max_document_bytes=1000))
    assert [(document.text, reasons(problems)) for document in documents] == [("fine", ["too_long"])]


def test_parquet_gives_rows_and_needs_its_text_column(tmp_path):
    table = pa.table({"content": ["one", None, "three"], "uid": [1, 2, 3], "lic": ["MIT", None, None], "other": [[1], [2], [3]]})
    pq.write_table(table, tmp_path / "x.parquet")
    documents, problems = read(tmp_path / "x.parquet", text_field="content", id_field="uid", licence_field="lic")
    assert [(document.text, document.name, document.licence) for document in documents] == [("one", "1", "MIT"), ("three", "3", "")]
    assert [(problem.place, problem.reason) for problem in problems] == [("x.parquet:1", "no_text_field")]
    with pytest.raises(DataError, match="no column 'text'"):
        read(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="'uid' is int64, not text"):
        read(tmp_path / "x.parquet", text_field="uid")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(tmp_path / "x.parquet")


def hugging_face_folder(path: Path, splits: dict[str, list[str]]) -> None:
    """As `datasets.Dataset.save_to_disk` leaves it: Arrow streams, and a state that lists them."""
    for split, texts in splits.items():
        folder = path / split
        folder.mkdir(parents=True)
        with pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink:
            table = pa.table({"text": texts, "id": [f"{split}{i}" for i in range(len(texts))]})
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        (folder / "state.json").write_text(
            json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": None})
        )
        (folder / "dataset_info.json").write_text("{}")
    (path / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))


def test_an_arrow_file_whose_places_lead_beyond_its_data_is_refused(tmp_path):
    """It is taken as it lies; converted unchecked, it ends the process."""
    table = pa.table({"text": ["one two three"] * 3})
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    places = np.array([0, 13, 26, 39], np.int32)
    for wrong in ([0, 13, 1 << 30, 1 << 30], [0, -5, 26, 39]):
        damaged = (tmp_path / "x.arrow").read_bytes().replace(places.tobytes(), np.array(wrong, np.int32).tobytes())
        (tmp_path / "y.arrow").write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read as Arrow"):
            read(tmp_path / "y.arrow")


def test_hugging_face_data_sets_on_disk_are_read_split_by_split_without_their_package(tmp_path):
    hugging_face_folder(tmp_path / "ds", {"train": ["a", "b", "c"], "test": ["d"]})
    (tmp_path / "ds" / "train" / "cache-123.arrow").write_bytes(b"left over")
    assert [document.name for document in read(tmp_path / "ds")[0]] == ["test0", "train0", "train1", "train2"]
    assert [source.name for source in sources_in(tmp_path / "ds")] == ["ds"]
    (tmp_path / "ds" / "train" / "data-00000-of-00001.arrow").unlink()
    with pytest.raises(DataError, match="listed in the data set's state"):
        read(tmp_path / "ds")


def test_a_source_that_changes_its_schema_in_the_middle_stops_the_run(tmp_path):
    good = "".join(json.dumps({"text": "x", "id": str(i)}) + "\n" for i in range(8192))
    (tmp_path / "a.jsonl").write_text(good + "".join(json.dumps({"content": "x", "id": str(i)}) + "\n" for i in range(20)))
    with pytest.raises(DataError, match=r"no document has a text field 'text' up to a\.jsonl:8212"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text(good + "".join(json.dumps({"text": "x", "id": i}) + "\n" for i in range(20)))
    with pytest.raises(DataError, match=r"schema drift: field 'id' is int up to a\.jsonl:8212, but was str before"):
        read(tmp_path / "a.jsonl", id_field="id")
    (tmp_path / "p").mkdir()
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "p" / "1.parquet")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "p" / "2.parquet")
    with pytest.raises(DataError, match=r"2\.parquet has no column 'text'"):
        read(tmp_path / "p")


def test_nulls_and_bytes_are_no_other_schema(tmp_path):
    """A file whose texts are all null, and one whose texts come as bytes because one is no UTF-8, before and after ordinary ones."""
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 100], pa.int32()).buffers()[1], pa.py_buffer(b"\xff" + b"c" * 99)]
    )
    for name, texts in (
        ("a", pa.array([None, None], pa.string())),
        ("b", pa.array(["one", "two"])),
        ("c", broken),
        ("d", broken.dictionary_encode()),
    ):
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
    documents, problems = read(tmp_path)
    assert [document.text for document in documents] == ["one", "two", "c" * 99, "c" * 99]
    assert reasons(problems) == ["no_text_field"] * 2 + ["not_utf8"] * 2


def test_fields_inside_fields_are_named_with_dots(tmp_path):
    record = {"doc": {"body": "inner text", "key": 7, "terms": ["MIT", "GPL-3.0"]}}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + '\n{"doc": null}\n{"doc": "flat"}\n')
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "b.parquet")
    for name, missing in (("a.jsonl", 2), ("b.parquet", 0)):
        documents, problems = read(tmp_path / name, text_field="doc.body", id_field="doc.key", licence_field="doc.terms")
        assert documents == [Document("inner text", "7", "MIT AND GPL-3.0")]
        assert reasons(problems) == ["no_text_field"] * missing
    with pytest.raises(DataError, match=r"is struct<.*fields inside: body, key, terms, named as doc\.NAME"):
        read(tmp_path / "b.parquet", text_field="doc")
    pq.write_table(pa.table([["x"], ["y"]], names=["text", "text"]), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="several columns of one name"):
        read(tmp_path / "c.parquet")


def test_names_are_exact_whatever_type_they_have(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "t", "id": 340282366920938463463374607431768211456}\n{"text": "a\tbare tab", "id": 2.5}\n')
    assert [document.name for document in read(tmp_path / "a.jsonl")[0]] == [str(2**128), "2.5"]
    pq.write_table(pa.table({"text": ["t"], "id": [b"key"]}), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet")[0][0].name == "key"


def test_files_named_json_hold_lines_or_a_list_and_settings_beside_documents_are_left_out(tmp_path):
    texts = [f"text {number} é {'x' * number * 900}" for number in range(200)]  # longer than what is read at once
    (tmp_path / "lines.json.gz").write_bytes(gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode()))
    (tmp_path / "list.json").write_text(json.dumps([{"text": text} for text in texts] + [7], ensure_ascii=False, indent=1))
    (tmp_path / "package.json").write_text('{"name": "p", "version": "1"}')
    for name, problems in (("lines.json.gz", []), ("list.json", ["not_an_object"])):
        documents, found = read(tmp_path / name)
        assert [document.text for document in documents] == texts and reasons(found) == problems
    files, left_out = listed(SourceFile(name="s", path=str(tmp_path)))
    assert [file.name for file in files] == ["lines.json.gz", "list.json"] and left_out == ["package.json"]
    assert sorted(source.name for source in sources_in(tmp_path)) == ["lines", "list"]
    whole = (tmp_path / "list.json").read_bytes()
    for broken in (whole[:-90_000], whole.replace(b"text 120", b'text" 120')):
        (tmp_path / "list.json").write_bytes(broken)
        with pytest.raises(DataError, match=r"breaks off in its list after 1\d\d records"):
            read(tmp_path / "list.json")


def test_a_single_odd_record_is_no_drift(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"content": "x"}\n' + '{"text": "y"}\n')
    documents, problems = read(tmp_path / "a.jsonl")
    assert (len(documents), reasons(problems)) == (2, ["no_text_field"])


def test_a_folder_is_cut_into_sources_by_files_and_sub_folders(tmp_path):
    for name in ("a.jsonl", "a.parquet", "b.warc.gz", "c/x.txt", "d/y.png", "loose.md", "loose.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = {source.name: [file.name for file in input_files(source)] for source in sources_in(tmp_path)}
    assert found == {
        "a.jsonl": ["a.jsonl"],
        "a.parquet": ["a.parquet"],
        "b": ["b.warc.gz"],
        "c": ["x.txt"],
        tmp_path.name: ["loose.html", "loose.md"],
    }
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="holds no text"):
        sources_in(tmp_path / "none")
    with pytest.raises(DataError, match=r"source 's': .* matches no file"):
        read(tmp_path / "none" / "*.jsonl")
    with pytest.raises(DataError, match="holds no file whose name says how to read it"):
        read(tmp_path / "d")
