"""Bar 10: scores of whole documents by the student, against fastText's predict, at an accuracy that is not lower.

usage: python benchmarks/data/scoring.py CORPUS.parquet [--rounds 3]

The task is one both can learn without a teacher: which of four kinds (code, dictionary, literature, documentation) a document is;
its source says. Both learn from the same half and are judged on the other. Ours counts everything that scoring a document in the
pipeline takes, its text statistics included; the vector is stored by an earlier stage and not counted. The peer gets its texts
lower-cased and in one line each, which is not counted either.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from side_by_side import Bar, facts_of, main, timed

PEERS = {"fasttext": ["fasttext-numpy2-wheel==0.9.2", "pyarrow", "numpy"]}
LITERATURE = ("anarchist-faq", "austen-novels", "quotations", "world-english-bible", "wesnoth-stories", "endless-sky-stories")
NUM_KINDS = 4


def kind_of(source: str) -> int:
    if source.startswith("code-") or source == "metamath-proofs":
        return 0
    if source.endswith("-dictionary") or source == "jargon-file":
        return 1
    return 2 if source in LITERATURE else 3


def halves(corpus: Path) -> tuple[pa.ChunkedArray, np.ndarray, pa.ChunkedArray, np.ndarray]:
    """Texts and kinds to learn from, and those to be judged on."""
    table = pq.read_table(corpus, columns=["text", "source"])
    kinds = np.array([kind_of(source) for source in table["source"].to_pylist()])
    order = np.random.default_rng(0).permutation(table.num_rows)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    return table["text"].take(pa.array(first)), kinds[first], table["text"].take(pa.array(second)), kinds[second]


def ours(options, out: Path) -> dict:
    from forerun.curate.embed.static import wordllama_encoder
    from forerun.curate.quality.statistics import text_statistics
    from forerun.curate.quality.student import fit

    texts, kinds, held, answers = halves(options.corpus)
    encoder, facts = wordllama_encoder(), {}
    student = fit(texts, encoder.encode(texts), text_statistics(texts), np.eye(NUM_KINDS)[kinds])
    vectors = encoder.encode(held)
    student.predict(held[:2], vectors[:2], text_statistics(held[:2]))  # compiles
    with timed(facts):
        guess = student.predict(held, vectors, text_statistics(held)).argmax(axis=1)
    return facts | {"accuracy": float((guess == answers).mean()), "num_documents": len(held)}


def fasttext(options, out: Path) -> dict:
    import fasttext

    texts, kinds, held, answers = halves(options.corpus)
    file, facts = out / "fasttext.txt", {}
    file.write_text("".join(f"__label__{kind} {one_line(text)}\n" for kind, text in zip(kinds, texts.to_pylist())))
    model = fasttext.train_supervised(
        str(file), epoch=5, lr=0.5, wordNgrams=2, dim=64, minCount=3, bucket=200_000, thread=1, seed=1, verbose=0
    )
    lines = [one_line(text) for text in held.to_pylist()]
    with timed(facts):
        labels, _ = model.predict(lines)
    guess = np.array([int(label[0].removeprefix("__label__")) for label in labels])
    return facts | {"accuracy": float((guess == answers).mean()), "num_documents": len(held)}


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).lower()


def not_less_accurate(out: Path) -> tuple[bool, str]:
    mine, theirs = (facts_of(out, side)["accuracy"] for side in ("ours", "fasttext"))
    return mine >= theirs, f"held-out accuracy {mine:.4f} against {theirs:.4f} on {facts_of(out, 'ours')['num_documents']:,} documents"


BARS = [Bar(name="scoring", ours="ours", peer="fasttext", least=4, holds=not_less_accurate)]

if __name__ == "__main__":
    sys.exit(main(__file__, BARS, {side.__name__: side for side in (ours, fasttext)}, PEERS))
