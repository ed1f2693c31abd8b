"""Bars 1-4: MinHash, bands and components against datatrove, Daft, rensa and marin-dupekit, with planted near-duplicates.

usage: python benchmarks/data/minhash.py CORPUS.parquet [--bars whitespace,daft,rensa,dupekit,documented] [--rounds 3]

All 14 x 8 sides read the same words: lower case, letters and digits of any script (datatrove `documented` uses its own tokenizer).
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from planted import NOISE, plant, recall
from side_by_side import Bar, main, timed

PEERS = {
    "datatrove": ["datatrove==0.10.1", "xxhash<4", "orjson", "pyarrow", "nltk", "regex", "tldextract", "tokenizers"],
    "datatrove_spacy": ["datatrove==0.10.1", "xxhash<4", "orjson", "pyarrow", "nltk", "regex", "tldextract", "tokenizers", "spacy"],
    "rensa": ["rensa==0.5.0", "pyarrow", "numpy"],
    "dupekit": ["marin-dupekit==0.1.1", "pyarrow", "numpy"],
}
BANDS, ROWS, WORDS = 14, 8, 5
_SEPARATORS = re.compile(rb"[^a-z0-9\x80-\xff]+")


def normal(text: str) -> str:
    return _SEPARATORS.sub(b" ", text.encode().lower()).decode("utf-8", "replace").strip()


def texts_of(out: Path):
    return pq.read_table(out / "planted.parquet", columns=["text"])["text"]


def grouped(groups, num: int) -> np.ndarray:
    """Union-find over groups of documents; each document's smallest companion."""
    parents = list(range(num))

    def find(member: int) -> int:
        while parents[member] != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    for group in groups:
        for member in group[1:]:
            one, other = find(group[0]), find(member)
            if one != other:
                parents[max(one, other)] = min(one, other)
    return np.array([find(member) for member in range(num)])


def by_bands(signature: np.ndarray, skipped: np.ndarray, bands: int, rows: int):
    """Groups of documents that agree in a band."""
    for band in range(bands):
        buckets = defaultdict(list)
        block = np.ascontiguousarray(signature[:, band * rows : (band + 1) * rows])
        for index in np.flatnonzero(~skipped).tolist():
            buckets[block[index].tobytes()].append(index)
        yield from (bucket for bucket in buckets.values() if len(bucket) > 1)


def _ours(out: Path, preset: str, name: str) -> dict:
    import pyarrow as pa

    from forerun.curate.text.lsh import band_keys, components
    from forerun.curate.text.minhash import PRESETS, signatures

    config, texts, facts = PRESETS[preset], texts_of(out), {}

    def work(column):
        signature, has_text = signatures(column, config)
        return components(band_keys(signature, config), has_text)

    work(pa.array(["a few words to compile with", "漢字かな"]))
    with timed(facts):
        labels = work(texts)
    np.save(out / f"{name}.npy", labels)
    return facts


def ours(options, out: Path) -> dict:
    return _ours(out, "fineweb", "ours")


def ours_marin(options, out: Path) -> dict:
    return _ours(out, "marin", "ours_marin")


def rensa(options, out: Path) -> dict:
    from rensa import RMinHash

    texts, facts = texts_of(out).to_pylist(), {}
    with timed(facts):
        parts, skipped = [], []
        for start in range(0, len(texts), 2000):
            shingled = []
            for text in texts[start : start + 2000]:
                words = normal(text).split(" ")
                shingled.append([" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)])
            skipped += [not shingles for shingles in shingled]
            made = RMinHash.digest_matrix_from_token_sets([shingles or ["-"] for shingles in shingled], BANDS * ROWS, 1)
            parts.append(np.array(made.to_rows(), np.uint32))
        labels = grouped(by_bands(np.concatenate(parts), np.array(skipped), BANDS, ROWS), len(texts))
    np.save(out / "rensa.npy", labels)
    return facts


def daft(options, out: Path) -> dict:
    import daft as engine
    from daft import col

    num, facts = pq.read_metadata(out / "planted.parquet").num_rows, {}
    with timed(facts):
        frame = engine.read_parquet(str(out / "planted.parquet")).select("text")
        plain = col("text").lower().regexp_replace(r"[^a-z0-9\x{80}-\x{10ffff}]+", " ").lstrip().rstrip()
        frame = frame.with_column("plain", plain)
        frame = frame.select(
            col("plain").minhash(num_hashes=BANDS * ROWS, ngram_size=WORDS, seed=1, hash_function="xxhash"), col("plain").alias("text")
        )
        result = frame.to_arrow()
        signature = np.asarray(result.column(0).combine_chunks().flatten()).reshape(num, -1).astype(np.uint32)
        skipped = np.array([text.strip().count(" ") < WORDS - 1 for text in result.column(1).to_pylist()])
        labels = grouped(by_bands(signature, skipped, BANDS, ROWS), num)
    np.save(out / "daft.npy", labels)
    return facts


def dupekit(options, out: Path) -> dict:
    import pyarrow as pa
    from dupekit import Transformation, transform

    table, facts = texts_of(out), {}
    batch = pa.RecordBatch.from_arrays([table.combine_chunks().cast(pa.string())], ["text"])
    steps = [
        Transformation.CleanText("text", "clean"),
        Transformation.MinHash("clean", "signature", 286, 5, 42),
        Transformation.MinHashLSH("signature", "buckets", 26),
        Transformation.SelectColumns(["buckets"]),
    ]
    with timed(facts):
        lists = [part["buckets"] for start in range(0, batch.num_rows, 2000) for part in [transform(batch.slice(start, 2000), steps)]]
        buckets = defaultdict(list)
        index = 0
        for part in lists:
            for keys in part.to_pylist():
                for band, key in enumerate(keys or ()):
                    buckets[band, key].append(index)
                index += 1
        labels = grouped([bucket for bucket in buckets.values() if len(bucket) > 1], batch.num_rows)
    np.save(out / "dupekit.npy", labels)
    return facts


def _datatrove(out: Path, *, whitespace: bool, name: str) -> dict:
    import datatrove.pipeline.dedup.minhash as steps
    from datatrove.data import Document
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.base import PipelineStep
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.text import TextNormConfig

    if whitespace:

        class Whitespace:
            def word_tokenize(self, text: str) -> list[str]:
                return text.split()

        steps.load_word_tokenizer = lambda language: Whitespace()
        norm = TextNormConfig(
            lowercase=False, norm_whitespace=False, remove_punctuation=False, norm_unicode_diacritics=False, norm_numbers=False
        )
    else:
        norm = TextNormConfig()
    config = steps.MinhashConfig(
        n_grams=WORDS, num_buckets=BANDS, hashes_per_bucket=ROWS, hash_config=HashConfig(precision=64, hash_fc="xxhash"), norm_config=norm
    )
    texts, kept, facts = texts_of(out).to_pylist(), [], {}
    folder = out / f"work-{name}"
    shutil.rmtree(folder, ignore_errors=True)

    class Source(PipelineStep):
        name, type = "source", "reader"

        def run(self, data=None, rank=0, world_size=1):
            for index, text in enumerate(texts):
                yield Document(text=normal(text) if whitespace else text, id=str(index))

    class Sink(PipelineStep):
        name, type = "sink", "writer"

        def run(self, data, rank=0, world_size=1):
            for document in data:
                kept.append(int(document.id))
                yield document

    def run(pipeline, tasks: int, stage: str) -> None:
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(folder / stage)).run()

    with timed(facts):
        run([Source(), steps.MinhashDedupSignature(str(folder / "signatures"), config)], 1, "log1")
        run([steps.MinhashDedupBuckets(str(folder / "signatures"), str(folder / "buckets"), config=config)], BANDS, "log2")
        run([steps.MinhashDedupCluster(str(folder / "buckets"), str(folder / "clusters"), config=config)], 1, "log3")
        run([Source(), steps.MinhashDedupFilter(str(folder / "clusters")), Sink()], 1, "log4")
    facts["removed"] = len(texts) - len(kept)
    import struct

    pairs = [
        (row[1], row[3]) for path in sorted((folder / "buckets").glob("*.dups")) for row in struct.iter_unpack("<4I", path.read_bytes())
    ]
    np.save(out / f"{name}.npy", grouped(pairs, len(texts)))
    return facts


def datatrove(options, out: Path) -> dict:
    return _datatrove(out, whitespace=True, name="datatrove")


def datatrove_spacy(options, out: Path) -> dict:
    return _datatrove(out, whitespace=False, name="datatrove_spacy")


def agrees(ours: str, peer: str, most_difference: float):
    """Removals within a share, recall within 3 points (or not lower, for the 26 x 11 pair), and flags of the word pairs."""

    def holds(out: Path) -> tuple[bool, str]:
        mine, other = np.load(out / f"{ours}.npy"), np.load(out / f"{peer}.npy")
        removed = [int((labels != np.arange(len(labels))).sum()) for labels in (mine, other)]
        found = [recall(labels, out) for labels in (mine, other)]
        flags = float(np.mean((mine != np.arange(len(mine))) == (other != np.arange(len(other)))))
        if peer == "dupekit":
            good = all(a >= b for a, b in zip(*found))
        else:
            good = abs(removed[0] / removed[1] - 1) <= most_difference and all(abs(a - b) <= 0.03 for a, b in zip(*found)) and flags >= 0.97
        shown = " ".join(f"{share:.0%}: {a:.3f}/{b:.3f}" for share, a, b in zip(NOISE, *found))
        return good, f"removed {removed[0]}/{removed[1]}, recall {shown}, flags agree {flags:.4f}"

    return holds


BARS = [
    Bar(name="whitespace", ours="ours", peer="datatrove", least=30, holds=agrees("ours", "datatrove", 0.02)),
    Bar(name="daft", ours="ours", peer="daft", least=5, holds=agrees("ours", "daft", 0.02)),
    Bar(name="rensa", ours="ours", peer="rensa", least=8, holds=agrees("ours", "rensa", 0.02)),
    Bar(name="dupekit", ours="ours_marin", peer="dupekit", least=30, holds=agrees("ours_marin", "dupekit", 0.0)),
    Bar(name="documented", ours="ours", peer="datatrove_spacy", least=150, rounds=1, holds=agrees("ours", "datatrove_spacy", 0.05)),
]
SIDES = {side.__name__: side for side in (ours, ours_marin, rensa, daft, dupekit, datatrove, datatrove_spacy)}

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, SIDES, PEERS, prepare=lambda options, out: plant(options.corpus, out / "planted.parquet")))
