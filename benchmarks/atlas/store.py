"""A made store of many short documents, for timing the data pages: `python benchmarks/atlas/store.py LAB [DOCUMENTS] [TOKENIZER.json]`.

The documents are random draws from a Zipf law over the tokenizer's vocabulary, so words of any frequency can be searched. Everything
else (ids, sources, scores, shards, manifest) has the shape and the digests of a real store.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.loader.manifest import Cell, Manifest, Shard, Source, Step

NUM_DOMAINS, NUM_QUALITIES, NUM_SOURCES, MEAN_TOKENS = 40, 5, 60, 60


def main(lab: Lab, num_documents: int, tokenizer_json: str) -> Manifest:
    """Write the store; returns its manifest."""
    vocab_size = Tokenizer.from_str(tokenizer_json).get_vocab_size()
    frequency = 1 / (np.arange(vocab_size) + 10.0)
    frequency[0] = 0
    tokenizer_digest = hashlib.sha256(tokenizer_json.encode()).hexdigest()
    folder = lab.store / ".making"
    rng = np.random.default_rng(0)
    cells, per_source = [], np.zeros((NUM_SOURCES, 2), np.int64)
    for number in range(NUM_DOMAINS * NUM_QUALITIES):
        domain, quality = f"domain-{number // NUM_QUALITIES:02d}", number % NUM_QUALITIES
        count = num_documents // (NUM_DOMAINS * NUM_QUALITIES)
        lengths = rng.poisson(MEAN_TOKENS, count) + 2
        ids = rng.choice(vocab_size, lengths.sum(), p=frequency / frequency.sum()).astype("<u2")
        ends = np.cumsum(lengths)
        ids[ends - 1] = 0
        source = (rng.zipf(1.5, count) + number) % NUM_SOURCES
        np.add.at(per_source, source, np.stack([np.ones(count, np.int64), lengths], 1))
        names = sorted(value.tobytes().hex() for value in np.frombuffer(rng.bytes(16 * count), "V16"))
        documents = pa.table(
            {
                "id": names,
                "source": [f"source-{index:02d}" for index in source],
                "source_id": [f"file-{index}" for index in range(count)],
                "domain": [domain] * count,
                "domain_cosine": pa.array(rng.beta(5, 2, count), pa.float32()),
                "quality": pa.array([quality] * count, pa.int8()),
                "quality_score": pa.array((quality + rng.random(count)) / NUM_QUALITIES, pa.float32()),
                "content_type": ["prose"] * count,
                "num_bytes": lengths * 4,
                "num_tokens": lengths,
                "token_offset": ends - lengths,
            }
        )
        path = f"{domain}/q{quality}/shard-00000.bin"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        ids.tofile(folder / path)
        docs = folder / path.replace(".bin", ".docs.parquet")
        pq.write_table(documents, docs, compression="zstd")
        digest = hashlib.sha256(ids.tobytes()).hexdigest()
        shard = Shard(
            path=path, num_tokens=len(ids), num_documents=count, digest=digest, docs_digest=hashlib.sha256(docs.read_bytes()).hexdigest()
        )
        cell = Cell(
            name=f"{domain}/q{quality}",
            domain=domain,
            quality=quality,
            split="train",
            num_documents=count,
            num_tokens=len(ids),
            num_bytes=int(lengths.sum() * 4),
            shards=(shard,),
        )
        cells.append(cell)
    (folder / "tokenizer.json").write_text(tokenizer_json)
    sources = tuple(
        Source(
            name=f"source-{index:02d}",
            licence="made up",
            revision="1",
            num_documents_in=int(part[0]),
            num_documents=int(part[0]),
            num_tokens=int(part[1]),
        )
        for index, part in enumerate(per_source)
    )
    total = sum(cell.num_documents for cell in cells)
    step = Step(name="made", identity="0" * 64, documents_in=total, documents_out=total)
    manifest = Manifest(
        name=f"made-{total}",
        tokenizer_digest=tokenizer_digest,
        vocab_size=vocab_size,
        dtype="uint16",
        end_of_document=0,
        sources=sources,
        cells=tuple(cells),
        held_out=(),
        steps=(step,),
    )
    folder.rename(lab.store / manifest.digest)
    write_json(lab.manifests / f"{manifest.digest}.json", manifest)
    print(manifest.digest)
    return manifest


if __name__ == "__main__":
    main(Lab(Path(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000, Path(sys.argv[3]).read_text(encoding="utf-8"))
