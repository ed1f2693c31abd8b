"""Bars 7-10 of the data pipeline, side by side with a peer: encode, embed, k-means, score.

usage: python benchmarks/data/stages.py CORPUS.parquet [--bars encode,embed,kmeans,score] [--rounds 3] [--peers DIR]

CORPUS has columns `text` and `source`. Peers are installed into an environment of their own under --peers. The two sides
alternate; figures are CPU-seconds, the median of the rounds. `encode` counts the whole cold process with its imports; the
others count the work after imports, compilation and loading, on both sides. Each bar also prints what must hold in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np

PEERS = ["model2vec", "fasttext-numpy2-wheel", "faiss-cpu", "tokenizers", "pyarrow", "safetensors"]
BARS = {"encode": 20.0, "embed": 5.0, "kmeans": 3.0, "score": 4.0}
KMEANS_ROWS, KMEANS_DIMS, KMEANS_K, KMEANS_ITERATIONS = 200_000, 384, 5000, 6


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--bars", default=",".join(BARS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/.peers/stages"))
    parser.add_argument("--worker", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.worker:
        side, bar = options.worker.split(":")
        started = time.process_time()
        facts = globals()[f"{bar}_{side}"](options.corpus, options.out)
        (options.out / f"{bar}-{side}.json").write_text(
            json.dumps({"whole_cpu_s": time.process_time(), "cpu_s": time.process_time() - started} | facts)
        )
        return 0
    python = peer_python(options.peers)
    out = options.peers / "out"
    out.mkdir(parents=True, exist_ok=True)
    prepare(options.corpus, out)
    print(f"{'bar':8} {'ours cpu-s':>11} {'peer cpu-s':>11} {'ratio':>7} {'bar':>5}  holds")
    failed = False
    for bar in options.bars.split(","):
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        for _ in range(options.rounds):
            for side, interpreter in (("ours", sys.executable), ("peer", str(python))):
                command = [interpreter, __file__, str(options.corpus), "--worker", f"{side}:{bar}", "--out", str(out)]
                subprocess.run(command, check=True)
                facts = json.loads((out / f"{bar}-{side}.json").read_text())
                times[side].append(facts["whole_cpu_s"] if bar == "encode" else facts["cpu_s"])
        ours, peer = (statistics.median(times[side]) for side in ("ours", "peer"))
        holds, said = globals()[f"{bar}_holds"](out)
        print(f"{bar:8} {ours:11.2f} {peer:11.2f} {peer / ours:6.1f}x {BARS[bar]:4.0f}x  {said}", flush=True)
        failed |= peer / ours < BARS[bar] or not holds
    return int(failed)


def peer_python(folder: Path) -> Path:
    """Interpreter of the peers' own environment, made on first use."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True)
    return python


def texts_of(corpus: Path):
    import pyarrow.parquet as pq

    return pq.read_table(corpus, columns=["text", "source"])


def facts_of(out: Path, bar: str, side: str) -> dict:
    return json.loads((out / f"{bar}-{side}.json").read_text())


def prepare(corpus: Path, out: Path) -> None:
    """The tokenizer and the static table both sides use."""
    if (out / "tokenizer.json").exists():
        return
    from forerun.curate.embed.static import wordllama_encoder
    from forerun.curate.tokenise import TokeniseConfig, train_tokenizer

    texts = texts_of(corpus)["text"].to_pylist()
    order = np.random.default_rng(0).permutation(len(texts))
    config = TokeniseConfig(vocab_size=32_000, sample_bytes=12_000_000)
    (out / "tokenizer.json").write_text(train_tokenizer((texts[index] for index in order), config))
    import importlib.resources

    folder = Path(str(importlib.resources.files("wordllama")))
    (out / "table-tokenizer.json").write_bytes((folder / "tokenizers" / "l2_supercat_tokenizer_config.json").read_bytes())
    np.save(out / "table.npy", wordllama_encoder()._vectors)


# encode: cold process, whole set, ids written to memory


def encode_ours(corpus: Path, out: Path) -> dict:
    from forerun.curate.tokenise import Encoder

    column = texts_of(corpus)["text"]
    encoder = Encoder((out / "tokenizer.json").read_text(), column[:128].to_pylist())
    encoded = encoder.encode(column)
    ids = np.asarray(encoded.values)
    np.save(out / "ids-ours.npy", ids)
    return {"engine": encoder.engine, "num_tokens": len(ids)}


def encode_peer(corpus: Path, out: Path) -> dict:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    texts = texts_of(corpus)["text"].to_pylist()
    parts = []
    for start in range(0, len(texts), 500):
        parts += [np.array(row.ids, np.int32) for row in tokenizer.encode_batch_fast(texts[start : start + 500], add_special_tokens=False)]
    ids = np.concatenate(parts)
    np.save(out / "ids-peer.npy", ids)
    return {"num_tokens": len(ids)}


def encode_holds(out: Path) -> tuple[bool, str]:
    same = np.array_equal(np.load(out / "ids-ours.npy"), np.load(out / "ids-peer.npy"))
    return same, f"ids identical over {facts_of(out, 'encode', 'peer')['num_tokens']} tokens: {same}"


# embed: full text of every document, the same table on both sides


def embed_ours(corpus: Path, out: Path) -> dict:
    import pyarrow as pa

    from forerun.curate.embed.static import wordllama_encoder

    column = texts_of(corpus)["text"]
    encoder = wordllama_encoder()
    encoder.encode(pa.array(["compile once"]))
    started = time.process_time()
    vectors = encoder.encode(column)
    spent = time.process_time() - started
    np.save(out / "vectors-ours.npy", vectors)
    return {"cpu_s": spent}


def embed_peer(corpus: Path, out: Path) -> dict:
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    model = StaticModel(np.load(out / "table.npy"), Tokenizer.from_file(str(out / "table-tokenizer.json")), normalize=True)
    texts = texts_of(corpus)["text"].to_pylist()
    started = time.process_time()
    vectors = model.encode(texts, max_length=None, use_multiprocessing=False)
    spent = time.process_time() - started
    np.save(out / "vectors-peer.npy", vectors)
    return {"cpu_s": spent}


def embed_holds(out: Path) -> tuple[bool, str]:
    ours, peer = np.load(out / "vectors-ours.npy"), np.load(out / "vectors-peer.npy").astype(np.float32)
    filled = np.linalg.norm(peer, axis=1) > 0
    cosine = (ours * peer).sum(axis=1)[filled] / np.linalg.norm(peer[filled], axis=1)
    return bool(cosine.mean() >= 0.99), f"mean cosine {cosine.mean():.4f}, 1% below {np.quantile(cosine, 0.01):.3f}"


# k-means: 5,000 centroids on 200,000 noisy directions


def directions() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((6000, KMEANS_DIMS), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    noise = rng.standard_normal((KMEANS_ROWS, KMEANS_DIMS), np.float32) * np.float32(0.7 / np.sqrt(KMEANS_DIMS))
    rows = centres[rng.integers(0, 6000, KMEANS_ROWS)] + noise
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def objective(rows: np.ndarray, centroids: np.ndarray) -> float:
    centroids = centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12)
    return float(np.mean([(rows[start : start + 2000] @ centroids.T).max(axis=1).mean() for start in range(0, 20_000, 2000)]))


def kmeans_ours(corpus: Path, out: Path) -> dict:
    from forerun.curate.cluster.kmeans import train

    rows = directions()
    started = time.process_time()
    found = train(rows, KMEANS_K, seed=1)
    spent = time.process_time() - started
    return {"cpu_s": spent, "mean_cosine": objective(rows, found.vectors)}


def kmeans_peer(corpus: Path, out: Path) -> dict:
    import faiss

    rows = directions()
    started = time.process_time()
    kmeans = faiss.Kmeans(
        KMEANS_DIMS, KMEANS_K, niter=KMEANS_ITERATIONS, seed=1, spherical=True, min_points_per_centroid=1, max_points_per_centroid=10**9
    )
    kmeans.train(rows)
    spent = time.process_time() - started
    return {"cpu_s": spent, "mean_cosine": objective(rows, kmeans.centroids)}


def kmeans_holds(out: Path) -> tuple[bool, str]:
    ours, peer = (facts_of(out, "kmeans", side)["mean_cosine"] for side in ("ours", "peer"))
    return ours >= peer, f"mean cosine to the nearest centroid {ours:.4f} against {peer:.4f}"


# score: which of four kinds a document is, full text


def kinds(corpus: Path) -> tuple[object, np.ndarray, np.ndarray]:
    table = texts_of(corpus)
    label = np.array([kind_of(source) for source in table["source"].to_pylist()])
    order = np.random.default_rng(0).permutation(table.num_rows)
    return table["text"], label, order


def kind_of(source: str) -> int:
    if source.startswith("code") or source == "metamath":
        return 0
    if "dictionary" in source or source == "jargon-file":
        return 1
    return 2 if source in ("anarchist-faq", "fortunes", "web-bible", "email-spamassassin", "wesnoth-stories", "endless-sky-stories") else 3


def score_ours(corpus: Path, out: Path) -> dict:
    import pyarrow as pa

    from forerun.curate.embed.static import wordllama_encoder
    from forerun.curate.quality.statistics import text_statistics
    from forerun.curate.quality.student import fit

    texts, label, order = kinds(corpus)
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    encoder = wordllama_encoder()
    targets = np.eye(4)[label[train]]
    sample = texts.take(pa.array(train))
    student = fit(sample, encoder.encode(sample), text_statistics(sample), targets)
    held = texts.take(pa.array(test))
    vectors = encoder.encode(held)
    student.predict(held[:2], vectors[:2], text_statistics(held[:2]))
    started = time.process_time()
    guess = student.predict(held, vectors, text_statistics(held)).argmax(axis=1)
    return {"cpu_s": time.process_time() - started, "accuracy": float((guess == label[test]).mean())}


def score_peer(corpus: Path, out: Path) -> dict:
    import re

    import fasttext

    texts, label, order = kinds(corpus)
    flat = [re.sub(r"\s+", " ", text).lower() for text in texts.to_pylist()]
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    file = out / "fasttext.txt"
    file.write_text("".join(f"__label__{label[index]} {flat[index]}\n" for index in train))
    model = fasttext.train_supervised(str(file), epoch=3, wordNgrams=2, dim=64, minCount=3, bucket=200_000, thread=1, verbose=0)
    held = [flat[index] for index in test]
    started = time.process_time()
    guess = [int(model.predict(text)[0][0][9:]) for text in held]
    return {"cpu_s": time.process_time() - started, "accuracy": float((np.array(guess) == label[test]).mean())}


def score_holds(out: Path) -> tuple[bool, str]:
    ours, peer = (facts_of(out, "score", side)["accuracy"] for side in ("ours", "peer"))
    return ours >= peer, f"held-out accuracy {ours:.4f} against {peer:.4f}"


if __name__ == "__main__":
    sys.exit(main())
