"""Bar 11: pages of a web archive to text, against trafilatura on the same records.

usage: python benchmarks/data/web_text.py FOLDER [--rounds 3]

FOLDER keeps the Debian packages whose manuals are the pages; missing ones are fetched with apt-get. Both sides read the same
gzipped WARC with the same reader, so the ratio is that of the extraction. In the same run at least 95% of the pages must give
text, and our text must hold most of the words that trafilatura finds.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

from side_by_side import Bar, facts_of, main, timed

PEERS = {"trafilatura": ["trafilatura==2.0.0", "fastwarc==2.0.1"]}
PACKAGES = (
    "apache2-doc",
    "debian-handbook",
    "git-doc",
    "postgresql-doc-*",
    "python-django-doc",
    "sqlite3-doc",
    "cppreference-doc-en-html",
    "gnumed-doc",
)
PAGES = 60  # of each package, those with the least hashes of their paths
MOST_BYTES = 200_000  # of a page: generated indexes are no pages to read
LEAST_SHARED = 0.9  # assumed: of trafilatura's words that our text must hold, median over pages


def pack(options, out: Path) -> None:
    """Write `pages.warc.gz`, once."""
    path = out / "pages.warc.gz"
    if path.exists():
        return
    from forerun.demo.corpus.deb import Apt, members

    apt = Apt(options.corpus)
    local = {pattern: sorted(options.corpus.glob(f"{pattern}_*.deb")) for pattern in PACKAGES}
    missing = [pattern for pattern, files in local.items() if not files]
    if missing:
        apt.update()
        local |= {pattern: [apt.fetch(name)] for pattern, name in apt.names(missing).items()}
    with path.open("wb") as file:
        for pattern in PACKAGES:
            pages = [(name, data) for name, data in members(local[pattern][-1], r".*\.html?") if len(data) <= MOST_BYTES]
            pages.sort(key=lambda page: hashlib.sha256(page[0].encode()).digest())
            for name, data in pages[:PAGES]:
                file.write(gzip.compress(record(name, data)))


def record(name: str, page: bytes) -> bytes:
    """One response record."""
    payload = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:sha256:{hashlib.sha256(name.encode()).hexdigest()}>\r\n"
    head += (
        f"WARC-Target-URI: http://host/{name}\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload + b"\r\n\r\n"


def ours(options, out: Path) -> dict:
    from forerun.curate.ingest.records import Document, IngestConfig
    from forerun.curate.ingest.source import SourceFile, input_files
    from forerun.curate.ingest.web import web_archive

    (file,) = input_files(SourceFile(name="pages", path=str(out / "pages.warc.gz")))
    facts: dict = {}
    with timed(facts):
        found = list(web_archive(file, IngestConfig()))
    texts = {one.name: one.text for one in found if isinstance(one, Document)}
    (out / "ours.texts.json").write_text(json.dumps(texts))
    return facts | {"pages": len(found), "with_text": len(texts)}


def trafilatura(options, out: Path) -> dict:
    import trafilatura
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    facts, texts = {}, {}
    with timed(facts), (out / "pages.warc.gz").open("rb") as stream:
        for page in ArchiveIterator(stream, record_types=WarcRecordType.response):
            texts[page.headers["WARC-Target-URI"]] = trafilatura.extract(page.reader.read()) or ""
    (out / "trafilatura.texts.json").write_text(json.dumps(texts))
    return facts | {"pages": len(texts), "with_text": sum(bool(text) for text in texts.values())}


def same_pages(out: Path) -> tuple[bool, str]:
    """Pages with text, and how many of the peer's words ours holds."""
    mine, theirs = (json.loads((out / f"{side}.texts.json").read_text()) for side in ("ours", "trafilatura"))
    facts = facts_of(out, "ours")
    shares = sorted(
        len(set(text.split()) & set(mine.get(uri, "").split())) / len(set(text.split())) for uri, text in theirs.items() if text.split()
    )
    shared, filled = shares[len(shares) // 2], facts["with_text"] / facts["pages"]
    said = f"{facts['with_text']} of {facts['pages']} pages have text (trafilatura {facts_of(out, 'trafilatura')['with_text']}); median {shared:.1%} of its words are in ours"
    return filled >= 0.95 and shared >= LEAST_SHARED, said


BARS = [Bar(name="warc_to_text", ours="ours", peer="trafilatura", least=8, holds=same_pages)]
SIDES = {"ours": ours, "trafilatura": trafilatura}

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, SIDES, PEERS, prepare=pack))
