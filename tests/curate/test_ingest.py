"""Every format gives its documents, and whatever is not a document is counted, named, or stops the run with one line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from forerun.base.errors import ConfigError, DataError, SourceError
from forerun.curate.ingest.read import documents_of, read_files
from forerun.curate.ingest.records import Document, IngestConfig, Problem, SchemaWatch
from forerun.curate.ingest.source import SourceFile, content_digest, input_files, listed, sources_in
from forerun.curate.ingest.streams import lines

DEFAULT = IngestConfig()


def read(path, config: IngestConfig = DEFAULT, **source) -> tuple[list[Document], list[Problem]]:
    described = SourceFile(name="s", path=str(path), **source)
    watch = SchemaWatch(described)
    found = [one for file in input_files(described) for one in documents_of(file, described, config, watch)]
    return [one for one in found if isinstance(one, Document)], [one for one in found if isinstance(one, Problem)]


def reasons(problems: list[Problem]) -> list[str]:
    return [problem.reason for problem in problems]


def page(number: int, head: str = "") -> bytes:
    body = f"<html><head>{head}<title>t</title></head><body><nav>menu home about</nav><p>Page {number} café. {'The text goes on. ' * 30}</p></body></html>"
    return body.encode()


def warc_record(number: int, payload: bytes, *, kind: str = "response", status: str = "200 OK", content: str = "text/html") -> bytes:
    if kind == "response":
        payload = f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\n\r\n".encode() + payload
        content = "application/http; msgtype=response"
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Target-URI: http://host/{number}\r\n"
    return f"{head}Content-Type: {content}\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload + b"\r\n\r\n"


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


def test_trees_give_text_as_it_is_and_pages_as_their_text(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "page.html").write_bytes(page(1))
    (tmp_path / "a" / "old.htm").write_bytes(
        '<html><head><meta charset="latin-1"></head><body><p>caf\xe9 \xfcber</p></body></html>'.encode("latin-1")
    )
    (tmp_path / "a" / "note.md").write_text("# Note")
    (tmp_path / "a" / "zipped.rst.gz").write_bytes(gzip.compress(b"zipped"))
    (tmp_path / "a" / "photo.jpg").write_bytes(b"\xff\xd8")
    (tmp_path / "a" / ".hidden.txt").write_text("no")
    (tmp_path / "a" / "empty.txt").write_text("")
    (tmp_path / "a" / "empty.html").write_text("")
    documents, problems = read(tmp_path / "a")
    texts = {document.name: document.text for document in documents}
    assert sorted(texts) == ["b/page.html", "empty.txt", "note.md", "old.htm", "zipped.rst.gz"]
    assert texts["old.htm"] == "café über"
    assert texts["zipped.rst.gz"] == "zipped"
    assert "The text goes on." in texts["b/page.html"] and "<p>" not in texts["b/page.html"] and "menu" not in texts["b/page.html"]
    assert [(problem.place, problem.reason) for problem in problems] == [("empty.html", "page_without_text")]


def test_web_archives_give_pages_and_ready_text_and_name_what_is_neither(tmp_path):
    records = [
        warc_record(1, b"software: x\r\n", kind="warcinfo", content="application/warc-fields"),
        warc_record(2, page(2)),
        warc_record(3, b"gone", status="404 Not Found"),
        warc_record(4, b"\x89PNG", content="image/png"),
        warc_record(5, "ready text, grüße".encode(), kind="conversion", content="text/plain"),
        warc_record(6, "<p>Windows “quotes” caf\xe9</p>".encode("windows-1252"), content="text/html; charset=iso-8859-1"),
        warc_record(7, b"", content="text/html"),
    ]
    for name, data in (
        ("a.warc", b"".join(records)),
        ("b.warc.gz", b"".join(map(gzip.compress, records))),
        ("c.warc.zst", zstandard.compress(b"".join(records))),
    ):
        (tmp_path / name).write_bytes(data)
        documents, problems = read(tmp_path / name)
        assert [document.name for document in documents] == ["http://host/2", "http://host/5", "http://host/6"]
        assert "café" in documents[0].text and documents[1].text == "ready text, grüße" and documents[2].text == "Windows “quotes” café"
        assert reasons(problems) == ["http_status_not_200", "not_a_page", "page_without_text"]


FOREIGN = "日本語のページ①です"


@pytest.mark.parametrize(
    ("head", "text", "encoding", "expected", "repaired"),
    [
        ("utf-8", "Café Zürich über élève, ordin\udcffary", "utf-8", "Café Zürich über élève, ordin\ufffdary", True),  # one stray byte
        ("", "Café Zürich über élève, ordin\udcffary", "utf-8", "Café Zürich über élève, ordin\ufffdary", True),
        ("utf-8", "Café Zürich über élève, ordinary", "latin-1", "Café Zürich über élève, ordinary", False),  # a wrong declaration
        ("utf-16", "Café Zürich über élève, ordinary", "utf-8", "Café Zürich über élève, ordinary", False),
        ("utf-8", f"\ufeff{FOREIGN}", "utf-16-le", FOREIGN, False),  # the mark wins
        ("shift_jis", FOREIGN, "cp932", FOREIGN, False),  # beyond the standard the name says, as on every second Japanese page
        ("euc-kr", "한국어 뷁 문서", "cp949", "한국어 뷁 문서", False),
    ],
)
def test_pages_are_read_in_the_encoding_they_are_in(tmp_path, head, text, encoding, expected, repaired):
    meta = f'<meta charset="{head}">' if head else ""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    whole = f"{mark}<html><head>{meta}</head><body><p>{text.removeprefix(mark)}. {'The text goes on. ' * 9}</p></body></html>"
    (tmp_path / "x.html").write_bytes(whole.encode(encoding, "surrogateescape"))
    (document,), _ = read(tmp_path / "x.html")
    assert document.text.startswith(expected)
    assert document.repaired == repaired


def test_texts_and_stored_pages_of_an_archive_are_read_as_their_header_says(tmp_path):
    records = [
        warc_record(1, "grüße aus köln".encode("latin-1"), content="text/plain; charset=iso-8859-1"),
        warc_record(2, "<p>тест страницы</p>".encode("koi8-r"), kind="resource", content='text/html; Charset="KOI8-R"'),
        warc_record(3, page(3)).replace(b"WARC-Type", b"warc-type"),
        warc_record(4, page(4)).replace(b"http://host/4", b"data:" + b"x" * 70_000),
    ]
    (tmp_path / "x.warc").write_bytes(b"".join(records))
    documents, problems = read(tmp_path / "x.warc")
    assert [document.text for document in documents[:2]] == ["grüße aus köln", "тест страницы"]
    assert len(documents) == 4 and not problems and len(documents[3].name) == 2048


def http(number: int, head: bytes, body: bytes) -> bytes:
    """A response record with a head of its own."""
    payload = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + head + b"\r\n\r\n" + body
    return warc_record(number, payload, kind="Response", content="application/http; msgtype=response")


def test_a_broken_answer_costs_its_record_and_not_the_archive(tmp_path):
    packed = gzip.compress(page(2))
    chunk = f"{len(page(3)):x}".encode()
    records = [
        http(1, b"Content-Encoding: gzip", page(1)),  # undone by the crawler, which kept the header
        http(2, b"Content-Encoding: gzip", packed),
        http(3, b"Transfer-Encoding: chunked", chunk + b"\r\n" + page(3) + b"\r\n0\r\n\r\n"),
        http(4, b"Transfer-Encoding: chunked", page(4)),
        http(5, b"Content-Encoding: br", b"\x0b\x02\x80abc\x03"),
        http(6, b"Content-Encoding: gzip", b"\x1f\x8b\x08\x00 no gzip"),
        warc_record(7, b"", kind="Response", content="application/http; msgtype=response"),
        warc_record(8, page(8)),
        http(9, b"Content-Encoding: deflate", zlib.compress(page(9))),
        http(10, b"Content-Encoding: deflate", zlib.compress(page(10))[2:-4]),  # bare, as many servers send it
        warc_record(11, page(11)).replace(b"200 OK\r\nContent-Type: text/html\r\n\r\n", b"200 OK\nContent-Type: text/html\n\n\n\n\n"),
    ]
    (tmp_path / "x.warc").write_bytes(b"".join(records))
    documents, problems = read(tmp_path / "x.warc")
    assert [document.name.rsplit("/", 1)[-1] for document in documents] == ["1", "2", "3", "4", "8", "9", "10", "11"]
    assert all("The text goes on." in document.text for document in documents)
    assert reasons(problems) == ["broken_http", "page_without_text", "http_status_not_200"]


def test_archives_with_unix_lines_are_read_and_those_with_both_or_no_record_never_as_empty(tmp_path):
    def unix(number: int) -> bytes:
        record = warc_record(number, page(number))
        length = len(record.split(b"\r\n\r\n", 1)[1]) - 4
        record = record.replace(b"\r\n", b"\n")
        return record.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length - 3))  # the answer's own three line ends

    (tmp_path / "x.warc.gz").write_bytes(gzip.compress(unix(1) + unix(2)))
    assert [document.name for document in read(tmp_path / "x.warc.gz")[0]] == ["http://host/1", "http://host/2"]
    mixed = warc_record(1, page(1)) + unix(2)
    for data, said in ((mixed, "some header lines end in LF"), (b"\n\n\n", "holds no WARC record")):
        (tmp_path / "x.warc").write_bytes(data)
        with pytest.raises(DataError, match=said):
            read(tmp_path / "x.warc")


def test_a_page_nested_without_end_is_read_in_time(tmp_path):
    (tmp_path / "x.html").write_bytes(b"<div>" * 100_000 + b"The text goes on. " * 3)  # the main content takes minutes to find
    assert read(tmp_path)[0][0].text.startswith("The text goes on.")


@pytest.mark.parametrize("cut", [5, 300])
def test_a_cut_web_archive_stops_the_run_instead_of_reading_as_a_shorter_one(tmp_path, cut):
    records = [warc_record(number, page(number)) for number in range(5)]
    (tmp_path / "a.warc").write_bytes(b"".join(records)[:-cut])
    (tmp_path / "b.warc.gz").write_bytes(b"".join(map(gzip.compress, records))[:-cut])
    for name in ("a.warc", "b.warc.gz")[cut < 50 :]:  # the last bytes of a plain record are only its line ends
        with pytest.raises(DataError, match=r"is cut inside record|ends or breaks"):
            read(tmp_path / name)
    (tmp_path / "g.warc").write_bytes(b"no archive\n" * 50)
    with pytest.raises(DataError, match="cannot be read as WARC"):
        read(tmp_path / "g.warc")


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


def test_remote_files_read_like_local_ones(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.jsonl.gz", gzip.compress(b'{"text": "far away", "id": "m"}\n'))
    memory.pipe("/corpus/sub/b.txt", b"far text")
    assert [document.name for document in read("memory://corpus")[0]] == ["m", "sub/b.txt"]
    assert [document.text for document in read("memory://corpus/*.gz")[0]] == ["far away"]
    (tmp_path / "x.jsonl").write_text('{"text": "near"}\n')
    assert [document.text for document in read(f"file://{tmp_path}/x.jsonl")[0]] == ["near"]
    with pytest.raises(SourceError, match="does not exist"):
        read("memory://nowhere/x.jsonl")
    with pytest.raises(ConfigError, match="nosuch"):
        read("nosuch://bucket/x.jsonl")


def test_files_inside_an_archive_are_read_where_they_lie(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("in/a.jsonl", '{"text": "packed"}\n')
        archive.writestr("b.txt", "loose")
    for inner, expected in (("", ["loose", "packed"]), ("in/*.jsonl", ["packed"]), ("in/a.jsonl", ["packed"])):
        assert [document.text for document in read(f"zip://{inner}::{tmp_path}/x.zip")[0]] == expected
    (tmp_path / "y.zip").write_bytes((tmp_path / "x.zip").read_bytes()[:40])
    with pytest.raises(SourceError, match="not a zip file"):
        read(f"zip://::{tmp_path}/y.zip")
    with pytest.raises(ConfigError, match="more than one file behind simplecache::"):
        read(f"simplecache::zip://::{tmp_path}/x.zip")


def test_a_connection_that_breaks_and_an_address_with_a_question_are_no_riddle(tmp_path, loopback):
    (tmp_path / "x.jsonl").write_text('{"text": "served"}\n' * 9)
    url = loopback(tmp_path, cut=40)
    with pytest.raises(SourceError, match=r"x\.jsonl cannot be read: .*payload"):
        read(f"{url}/x.jsonl")
    (document, *_), _ = read(f"{loopback(tmp_path)}/x.jsonl?download=true")
    assert document.text == "served"


def test_files_of_a_web_server_are_read_and_fingerprinted_by_what_it_promises(tmp_path, loopback):
    (tmp_path / "x.jsonl").write_text('{"text": "served", "id": "w"}\n')
    pq.write_table(pa.table({"text": ["ranged"] * 3}), tmp_path / "y.parquet")
    url = loopback(tmp_path)
    assert [document.text for document in read(f"{url}/x.jsonl")[0]] == ["served"]
    assert [document.text for document in read(f"{url}/y.parquet")[0]] == ["ranged"] * 3
    (file,) = input_files(SourceFile(name="s", path=f"{url}/x.jsonl"))
    before = content_digest(file)
    assert before == content_digest(file)
    with pytest.raises(SourceError, match="does not exist"):
        read(f"{url}/absent.jsonl")


@pytest.fixture
def loopback():
    """Serve a folder on this machine; gives the address."""
    import functools
    import http.server
    import threading

    servers = []

    def serve(folder: Path, cut: int = 0) -> str:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format, *args):
                pass

            def copyfile(self, source, outputfile):
                outputfile.write(source.read(cut) if cut else source.read())

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
