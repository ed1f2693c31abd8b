"""A mixture swarm from the first command to the last, with the real trainer: registered, trained, regressed, and right about which text helps."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import tiny_run

from forerun.base.config import canonical_json
from forerun.base.lab import Lab
from forerun.cli.main import run
from forerun.curate.store import write_store
from forerun.registry.ledger import read as read_ledger
from token_stores import VOCAB_SIZE, document, spec

NUM_RUNS, NUM_STEPS = 10, 30


def learnable_and_noise(lab: Lab) -> str:
    """Two domains as large as each other: counting upwards, which is learned the sooner the more of it is read, and chance, which never is."""
    rng = random.Random(0)
    rows = []
    for index in range(600):
        start = rng.randrange(100)
        counting = [1 + (start + step) % 100 for step in range(60)]
        noise = [rng.randrange(101, VOCAB_SIZE) for _ in range(60)]
        for domain, tokens in (("counting", counting), ("noise", noise)):
            rows.append(document(f"{domain}-{index}", tokens, domain=domain, held_out=index < 40))
    return write_store(lab, rows, spec()).digest


@pytest.mark.slow
def test_a_swarm_is_registered_and_trained_and_its_fit_prefers_the_text_that_teaches(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path)
    manifest = learnable_and_noise(lab)
    base = tiny_run(manifest)
    base = replace(base, name="s", train=replace(base.train, num_steps=NUM_STEPS), eval=replace(base.eval, every_fraction=1.0))
    (tmp_path / "base.json").write_bytes(canonical_json(base))
    assert run(["mixture", "swarm", manifest, "--base", "base.json", "--out", "swarm", "--num-runs", str(NUM_RUNS)]) == 0
    names = capsys.readouterr().out.split()
    assert names == [f"s-{index:03d}" for index in range(NUM_RUNS)]
    assert run(["mixture", "run", "swarm", "--owner", "tester"]) == 0
    assert [entry.kind for entry in read_ledger(lab)] == ["promise"] * NUM_RUNS
    capsys.readouterr()
    assert run(["mixture", "fit", *names, "--train-tokens", str(base.train.train_tokens), "--json"]) == 0
    fit = json.loads(capsys.readouterr().out)
    tried = [json.loads(path.read_text())["data"]["mixture"][0]["weights"]["counting/q2"] for path in Path("swarm").glob("*.json")]
    farthest = max(abs(weight - sum(tried) / NUM_RUNS) for weight in tried)  # what the swarm says nothing of is not proposed
    assert fit["weights"]["counting/q2"] == pytest.approx(sum(tried) / NUM_RUNS + farthest, abs=0.01)
    assert farthest > 0.05
    assert fit["loo_rank_correlation"] > 0.5
    assert fit["predicted_gain_nats"] > 0
