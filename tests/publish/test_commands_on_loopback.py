"""What leaves the lab, from the command line to the other end: GitHub on the loopback, the plan comment's own script, foreign weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import numpy as np
import pytest
from github_server import GitHubServer
from safetensors.numpy import load_file, save_file
from test_leaving_the_lab import TOML, promised
from tiny_runs import tiny_run

import forerun.publish
from forerun.base.errors import PlatformError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.cli.main import run
from forerun.model.config import ModelConfig
from forerun.registry import ledger
from forerun.registry.changes import close

TEMPLATES = Path(forerun.publish.__file__).parent / "templates" / "github"


def test_issue_comment_and_pull_request_go_out_by_command_and_are_never_doubled(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    lab = Lab(tmp_path)
    promised(lab, "001-x", {"a": 1})
    with GitHubServer() as server:
        place = ["001", "--repo", "lab/runs", "--api", server.address, "--lab", str(tmp_path)]
        for _ in range(2):
            assert run(["publish", "issue", *place]) == 0
        assert [issue["title"] for issue in server.issues] == ["001-x: t"]
        assert run(["publish", "comment", *place, "--text", "half way, on course"]) == 0
        verdict = {"experiment": "001-x", "answer": "missed", "inside50": False, "inside90": False, "words": "Missed: it ended at 3.3."}
        ledger.append(lab, "verdict", {"experiment": "001-x", "verdict": verdict})
        for _ in range(2):
            assert run(["publish", "comment", *place]) == 0
        assert [comment["body"].splitlines()[-1] for comment in server.comments[1]] == ["half way, on course", "Missed: it ended at 3.3."]
        close(lab, "001", "failed", note="diverged", fraction_done=0.4)
        assert run(["publish", "issue", *place]) == 0
        assert len(server.issues) == 1 and "**Closed as failed**, 40% done. diverged" in server.issues[0]["body"]
        for _ in range(2):
            assert run(["publish", "pr", *place]) == 0
        assert len(server.pulls) == 1 and server.pulls[0]["head"]["ref"] == "experiment/001-x"
        names = {name for _, name in server.files}
        assert names >= {"experiments/001-x/config.json", "experiments/001-x/experiment.toml", "ledger/registry.jsonl", "ledger/head.json"}
        capsys.readouterr()
        writes = list(server.writes)
        for command in ("issue", "comment", "pr"):
            assert run(["publish", command, "001", "--lab", str(tmp_path), "--dry-run"]) == 0
        assert server.writes == writes and "90% interval" in capsys.readouterr().out
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(PlatformError, match="no token"):
        run(["publish", "issue", "001", "--repo", "lab/runs", "--lab", str(tmp_path)])


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "stopped", "crashed", "abandoned", "inconclusive"])
def test_every_closing_state_is_reached_by_command_and_shown_in_the_issue_and_by_verify(tmp_path, capsys, outcome):
    promised(Lab(tmp_path), "001-x", {"a": 1})
    assert run(["close", "001", "--outcome", outcome, "--note", "why", "--fraction-done", "0.25", "--lab", str(tmp_path)]) == 0
    assert run(["publish", "issue", "001", "--lab", str(tmp_path), "--dry-run"]) == 0
    assert f"**Closed as {outcome}**, 25% done. why" in capsys.readouterr().out
    assert run(["verify", "--lab", str(tmp_path)]) == 0
    with pytest.raises(PlatformError, match="closed"):
        run(["close", "001", "--outcome", outcome, "--lab", str(tmp_path)])


def workflow_step(name: str) -> str:
    """The script of one step of the plan-comment workflow, as the runner hands it to bash."""
    text = (TEMPLATES / "plan-comment.yml").read_text()
    block = text.split(f"- name: {name}\n")[1].split("run: |\n")[1].split("\n      - ")[0]
    return textwrap.dedent(block)


def git(folder: Path, *arguments: str) -> str:
    author = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c"}
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True, env=os.environ | author)
    return done.stdout.strip()


def test_the_workflows_script_comments_the_plan_of_changed_new_and_removed_experiments(tmp_path):
    git(tmp_path, "init", "-q")
    for name, steps in (("001-longer", 20), ("002-gone", 20), ("003-same", 20)):
        write_json(tmp_path / "experiments" / name / "config.json", tiny_run("0" * 64, num_steps=steps))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "before")
    base = git(tmp_path, "rev-parse", "HEAD")
    write_json(tmp_path / "experiments" / "001-longer" / "config.json", tiny_run("0" * 64, num_steps=200))
    write_json(tmp_path / "experiments" / "004-new" / "config.json", tiny_run("0" * 64, num_steps=50))
    (tmp_path / "experiments" / "002-gone" / "config.json").unlink()
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "after")
    environment = os.environ | {"BASE": base, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", workflow_step("Plan before and after")]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith("<!-- forerun:plan -->")
    sections = {part.splitlines()[0]: part for part in comment.split("### ")[1:]}
    assert list(sections) == [f"experiments/{name}/config.json" for name in ("001-longer", "002-gone", "004-new")]
    longer, gone, new = sections.values()
    for word in ("FLOPs", "memory", "energy", "whole run"):
        assert word in longer
    changed = [line for line in longer.splitlines() if line.startswith(("-", "+"))]
    assert any(line.startswith("-") for line in changed) and any(line.startswith("+") for line in changed)
    assert not any(line.startswith("+") for line in gone.splitlines()) and not any(line.startswith("-") for line in new.splitlines())


def test_the_issue_form_asks_for_what_an_experiment_needs():
    text = (TEMPLATES / "experiment.yml").read_text()
    assert all(f"id: {name}" in text for name in ("hypothesis", "falsified_by", "metric", "prediction", "baseline", "already_seen"))
    assert all(f"{name} =" in TOML for name in ("hypothesis", "falsified_by", "metric", "baseline", "already_seen"))


def mixtral(folder: Path) -> dict[str, np.ndarray]:
    """A Mixtral checkpoint of random numbers, one matrix an expert."""
    settings = {"model_type": "mixtral", "vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings |= {
        "num_key_value_heads": 1,
        "intermediate_size": 6,
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    }
    shapes = {"model.embed_tokens.weight": (31, 8), "model.norm.weight": (8,), "lm_head.weight": (31, 8)}
    for layer in (f"model.layers.{index}" for index in range(2)):
        shapes |= {f"{layer}.{name}.weight": (8,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{layer}.self_attn.{letter}_proj.weight": (4 if letter in "kv" else 8, 8) for letter in "qkvo"}
        shapes |= {f"{layer}.block_sparse_moe.gate.weight": (3, 8)}
        for expert in range(3):
            prefix = f"{layer}.block_sparse_moe.experts.{expert}"
            shapes |= {f"{prefix}.w1.weight": (6, 8), f"{prefix}.w2.weight": (8, 6), f"{prefix}.w3.weight": (6, 8)}
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings))
    return tensors


def test_foreign_weights_come_in_by_command_in_the_form_a_release_has(tmp_path, capsys):
    tensors = mixtral(tmp_path / "theirs")
    assert run(["import", "hf", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")]) == 0
    assert "num_active_params" in capsys.readouterr().out
    config = msgspec.convert(json.loads((tmp_path / "ours" / "config.json").read_bytes())["model"], ModelConfig)
    assert (config.num_experts, config.top_k, config.num_layers, config.num_kv_heads) == (3, 2, 2, 1)
    held = load_file(tmp_path / "ours" / "model.safetensors")
    for ours, theirs in (("w_gate", "w1"), ("w_down", "w2"), ("w_up", "w3")):
        expert = tensors[f"model.layers.1.block_sparse_moe.experts.2.{theirs}.weight"]
        np.testing.assert_array_equal(held[f"weights.layers.1.feed_forward.experts.{ours}"][2], expert.T)
    assert sum(array.size for array in held.values()) == sum(array.size for array in tensors.values()) + 2 * 3  # and a routing bias of 0


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), "does not exist"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "cannot be read"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"holds no \*\.safetensors"),
        (lambda folder: edit(folder, model_type="gpt2"), "model_type must be one of"),
        (lambda folder: edit(folder, num_hidden_layers=3), "is missing"),
        (lambda folder: edit(folder, intermediate_size=12), r"experts/w_gate has shape \(3, 8, 6\), config.json asks for \(3, 8, 12\)"),
        (lambda folder: indexed(folder, "part-1.safetensors"), "lacks part-1.safetensors"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("[]"), "has no weight_map"),
        (lambda folder: edit(folder, num_hidden_layers=1), "have no place"),
        (lambda folder: edit(folder, sliding_window=4), "sliding_window=4 has no equal"),
    ],
)
def test_foreign_weights_that_cannot_be_meant_are_refused_in_one_line(tmp_path, damage, words):
    mixtral(tmp_path / "theirs")
    damage(tmp_path / "theirs")
    with pytest.raises(PlatformError, match=words):
        run(["import", "hf", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")])


def test_weights_the_index_does_not_name_are_left_alone(tmp_path, capsys):
    """Repositories keep the same weights in the trainer's own form beside them."""
    mixtral(tmp_path / "theirs")
    save_file({"layers.0.attention.wq.weight": np.zeros((8, 8), np.float32)}, tmp_path / "theirs" / "consolidated.safetensors")
    indexed(tmp_path / "theirs", "model.safetensors")
    assert run(["import", "hf", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")]) == 0


def indexed(folder: Path, file: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"model.norm.weight": file}}))


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
