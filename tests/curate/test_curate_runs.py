"""`forerun curate run` as a process: killed anywhere it goes on, and neither kills, hash seeds, workers nor engines change a byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curate.text_samples import planted, sentence, write_lines

RECIPE = """
name = "small"
[[sources]]
name = "a"
path = "a.jsonl"
licence = "CC0-1.0"
[[sources]]
name = "b"
path = "b/*.txt"
licence = "MIT"
[text.normalize]
partition_bytes = 40000
[build.tokenise]
vocab_size = 400
[build.cluster]
num_domains = 2
num_fine = 8
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    write_lines(tmp_path / "a.jsonl", planted())
    (tmp_path / "b").mkdir()
    for number in range(30):
        (tmp_path / "b" / f"{number}.txt").write_text(sentence(random.Random(f"b{number}"), 90))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def command(recipe: Path, lab: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys; from forerun.cli.main import main; sys.exit(main())",
        "curate",
        "run",
        str(recipe),
        "--lab",
        str(lab),
        "--json",
        *more,
    ]


def digest(recipe: Path, lab: Path, *more: str, **environment: str) -> str:
    done = subprocess.run(command(recipe, lab, *more), capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["manifest"]


def store_bytes(lab: Path, manifest: str) -> dict[str, bytes]:
    folder = lab / "store" / manifest
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_run_killed_where_it_was_busiest_ends_with_the_same_store_and_redoes_only_the_lost_part(recipe, tmp_path):
    whole = digest(recipe, tmp_path / "one")
    process = subprocess.Popen(command(recipe, tmp_path / "two"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    work = tmp_path / "two" / "work"
    while process.poll() is None and not list(work.glob("band_keys/*/part-00001.parquet")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet") if not path.name.startswith(".")}
    assert any("band_keys" in str(path) for path in before) and not list(work.glob("passed/*/done.json"))
    assert digest(recipe, tmp_path / "two") == whole
    assert {path for path, written in before.items() if path.exists() and path.stat().st_mtime_ns != written} == set()
    assert store_bytes(tmp_path / "one", whole) == store_bytes(tmp_path / "two", whole)


@pytest.mark.slow
def test_a_run_killed_at_twenty_moments_ends_with_the_same_store(recipe, tmp_path):
    started = time.monotonic()
    whole = digest(recipe, tmp_path / "one")
    seconds = time.monotonic() - started
    rng = random.Random(0)
    for attempt in range(20):
        process = subprocess.Popen(command(recipe, tmp_path / "two"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=seconds * rng.uniform(0.1, 1.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if attempt % 5 == 4:  # a fresh start now and then, so that early moments are hit too
            assert digest(recipe, tmp_path / "two") == whole
            subprocess.run(["rm", "-r", str(tmp_path / "two")], check=True)
    assert digest(recipe, tmp_path / "two") == whole
    assert store_bytes(tmp_path / "one", whole) == store_bytes(tmp_path / "two", whole)


@pytest.mark.slow
def test_hash_seeds_and_workers_do_not_change_a_byte(recipe, tmp_path):
    runs = {
        "seed 0": digest(recipe, tmp_path / "0", PYTHONHASHSEED="0"),
        "seed 1": digest(recipe, tmp_path / "1", PYTHONHASHSEED="1"),
        "1 worker": digest(recipe, tmp_path / "2", "--workers", "1", "--set", "engine.worker_bytes=0"),
        "2 workers": digest(recipe, tmp_path / "3", "--workers", "2", "--set", "engine.worker_bytes=0"),
    }
    assert len(set(runs.values())) == 1, runs
    contents = [store_bytes(tmp_path / str(number), manifest) for number, manifest in enumerate(runs.values())]
    assert all(content == contents[0] for content in contents)


@pytest.mark.slow
def test_a_ray_cluster_of_several_nodes_gives_the_bytes_of_this_process(recipe, tmp_path):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    here = digest(recipe, tmp_path / "here", "--runner", "loop")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        more = ("--runner", "ray", "--set", f"engine.ray_address={cluster.address}")
        assert digest(recipe, tmp_path / "ray", *more) == here
        assert store_bytes(tmp_path / "here", here) == store_bytes(tmp_path / "ray", here)
    finally:
        cluster.shutdown()
