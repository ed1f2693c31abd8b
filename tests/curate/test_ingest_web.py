"""Pages and web archives give their text in the encoding they are in; a broken record costs itself, a cut archive stops the run."""

from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard

from curate.ingest_reading import read, reasons
from forerun.base.errors import DataError


def page(number: int, head: str = "") -> bytes:
    body = f"<html><head>{head}<title>t</title></head><body><nav>menu home about</nav><p>Page {number} café. {'The text goes on. ' * 30}</p></body></html>"
    return body.encode()


def warc_record(number: int, payload: bytes, *, kind: str = "response", status: str = "200 OK", content: str = "text/html") -> bytes:
    if kind == "response":
        payload = f"HTTP/1.1 {status}\r\nContent-Type: {content}\r\n\r\n".encode() + payload
        content = "application/http; msgtype=response"
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nWARC-Target-URI: http://host/{number}\r\n"
    return f"{head}Content-Type: {content}\r\nContent-Length: {len(payload)}\r\n\r\n".encode() + payload + b"\r\n\r\n"


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
