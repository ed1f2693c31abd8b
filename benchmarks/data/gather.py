"""The corpus of the data bars: text of Debian packages, at most 3 MB of each source, as one Parquet file with text and source.

Documents of 64 to 400,000 characters: the pipeline drops shorter ones too (`normalize.min_document_bytes`); here most are redirections
that differ in one word, which any two hash families judge differently.

usage: python benchmarks/data/gather.py FOLDER     writes FOLDER/corpus.parquet; packages stay in FOLDER/downloads/debian
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.lab import Lab
from forerun.curate.ingest.read import documents_of
from forerun.curate.ingest.records import Document, IngestConfig, SchemaWatch
from forerun.curate.ingest.source import input_files
from forerun.demo.corpus.gather import gather

CAP_BYTES = 3_000_000
LEAST_CHARS, MOST_CHARS = 64, 400_000


def main(folder: Path) -> int:
    out = folder / "corpus.parquet"
    if out.exists():
        return 0
    texts, names = [], []
    for source in gather("debian", Lab(folder), quick=False):
        size = 0
        for file in input_files(source):
            for found in documents_of(file, source, IngestConfig(), SchemaWatch(source)):
                if isinstance(found, Document) and size < CAP_BYTES and LEAST_CHARS <= len(found.text) <= MOST_CHARS:
                    texts.append(found.text)
                    names.append(source.name)
                    size += len(found.text.encode())
    pq.write_table(pa.table({"text": pa.array(texts, pa.large_string()), "source": names}), out, compression="zstd")
    print(f"{len(texts):,} documents of {len(set(names))} sources, {sum(map(len, texts)) / 1e6:.0f} M characters in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
