"""Remote files read like local ones, and a server that fails is one line."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.ingest_reading import read
from forerun.base.errors import ConfigError, SourceError
from forerun.curate.ingest.source import SourceFile, content_digest, input_files


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
