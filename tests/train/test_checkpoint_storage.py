"""Saves and restores on storage that is full, read-only, slow or gone: an outcome in words, in bounded time, with the older ones intact."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time

import numpy as np
import psutil
import pytest
from storage import can_mount, disk_on_a_file, frozen, make_read_only, small_disk

from forerun.base.errors import CheckpointError
from forerun.train.checkpoint import MANIFEST, Checkpoints

needs_mount = pytest.mark.skipif(not can_mount(), reason="mounting needs root")
needs_freeze = pytest.mark.skipif(not (shutil.which("fsfreeze") and shutil.which("mkfs.ext4")), reason="needs util-linux and e2fsprogs")


def state_of(mib: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers that no compression shrinks."""
    return {"a": np.random.default_rng(seed).random(int(mib * (1 << 20)) // 8)}


@needs_mount
def test_a_disk_that_fills_up_fails_that_save_in_words_and_leaves_the_older_one(tmp_path):
    with small_disk(tmp_path / "disk", 4) as disk:
        checkpoints = Checkpoints(disk / "checkpoints", config_digest="c", num_rolling=3)
        checkpoints.save(state_of(3.0, seed=1), 1)
        checkpoints.begin(state_of(3.0, seed=2), 2)
        outcome = checkpoints.finish()
        assert outcome is not None and "No space left" in outcome.problem
        assert checkpoints.steps() == [1]
        np.testing.assert_array_equal(checkpoints.restore(1, state_of(3.0))["a"], state_of(3.0, seed=1)["a"].astype(np.float32))


@needs_mount
def test_a_disk_that_turns_read_only_fails_that_save_in_words(tmp_path):
    with small_disk(tmp_path / "disk", 16) as disk:
        checkpoints = Checkpoints(disk / "checkpoints", config_digest="c")
        checkpoints.save(state_of(0.1), 1)
        make_read_only(disk)
        checkpoints.begin(state_of(0.1), 2)
        outcome = checkpoints.finish()
        assert outcome is not None and "read-only" in outcome.problem.lower()
        assert checkpoints.steps() == [1]


@needs_mount
@needs_freeze
def test_a_disk_that_hangs_holds_nobody_up_and_is_used_again_when_it_comes_back(tmp_path):
    with disk_on_a_file(tmp_path / "disk") as disk:
        checkpoints = Checkpoints(disk / "checkpoints", config_digest="c", timeout_s=0.5)
        checkpoints._timeout_s = 60.0
        checkpoints.save(state_of(0.1), 1)
        checkpoints._timeout_s = 0.5
        with frozen(disk):
            started = time.monotonic()
            checkpoints.begin(state_of(0.1), 2)
            outcome = checkpoints.finish()
            assert outcome is not None and "not written after 0.5 s" in outcome.problem
            blocked, before = checkpoints.begin(state_of(0.1), 3)  # nothing new is started behind a save that hangs
            assert before is not None and "not written" in before.problem
            assert blocked < 5 and time.monotonic() - started < 30
        checkpoints._timeout_s = 60.0
        checkpoints.finish()
        checkpoints.save(state_of(0.1), 4)
        assert checkpoints.steps()[-1] == 4


def test_a_restore_that_hangs_ends_with_its_timeout(tmp_path):
    checkpoints = Checkpoints(tmp_path, config_digest="c")
    checkpoints.save(state_of(0.1), 1)
    manifest = tmp_path / "000000001" / MANIFEST
    content = manifest.read_bytes()
    manifest.unlink()
    os.mkfifo(manifest)  # a file whose first byte never comes
    checkpoints._timeout_s = 0.3
    with pytest.raises(CheckpointError, match=r"not read within 0\.3 s"):
        checkpoints.restore(1, state_of(0.1))
    with manifest.open("wb") as pipe:  # let the reading thread go
        pipe.write(content)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"null", b"[]", b'{"arrays": null}', b'{"arrays": {"a": {}}}', b'{"arrays": {"a": [1]}}']
)
def test_a_manifest_damaged_in_any_way_is_refused_in_words_and_the_older_one_used(tmp_path, content):
    checkpoints = Checkpoints(tmp_path, config_digest="c", num_rolling=3)
    checkpoints.save(state_of(0.01, seed=1), 1)
    checkpoints.save(state_of(0.01, seed=2), 2)
    (tmp_path / "000000002" / MANIFEST).write_bytes(content)
    restored = checkpoints.restore_newest(state_of(0.01))
    assert restored is not None and restored.step == 1
    assert "manifest cannot be read" in restored.refused[0]
    checkpoints.save(state_of(0.01, seed=3), 3)  # clearing old ones away must not stumble over it either
    assert 3 in checkpoints.steps()


LIMITED = """
import json, resource, sys
from pathlib import Path
import numpy as np
from forerun.train.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), config_digest="c")
checkpoints.save({"a": np.random.default_rng(0).random(1 << 12)}, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
checkpoints.begin({"a": np.random.default_rng(1).random(1 << 17)}, 2)
outcome = checkpoints.finish()
print(json.dumps([outcome.problem, checkpoints.steps()]))
"""

REFUSED = """
import json, os, sys
from pathlib import Path
import numpy as np
from forerun.train.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), config_digest="c")
state = {"a": np.zeros(8)}
checkpoints.save(state, 1)
if os.geteuid() == 0:
    os.seteuid(65534)
else:
    os.chmod(sys.argv[1], 0o555)
checkpoints.begin(state, 2)
problem = checkpoints.finish().problem
os.seteuid(os.getuid())
print(json.dumps([problem, checkpoints.steps()]))
"""


@pytest.mark.parametrize(("code", "words"), [(LIMITED, "too large"), (REFUSED, "permission denied")])
def test_a_process_that_may_write_no_more_says_so_as_root_and_as_anybody(tmp_path, code, words):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True, capture_output=True, text=True, timeout=120
    )
    problem, steps = json.loads(done.stdout.splitlines()[-1])
    assert words in problem.lower()
    assert steps == [1]


def test_memory_does_not_grow_with_the_number_of_saves(tmp_path):
    checkpoints, state, mib = Checkpoints(tmp_path, config_digest="c"), state_of(4), 4
    used = []
    for step in range(1, 65):
        checkpoints.save(state, step)
        used.append(psutil.Process().memory_info().rss / (1 << 20))
    assert used[-1] - used[31] < 16 * mib  # buffers kept alive would show as 32 x 4 MiB; threads' own heaps fill up before


def test_a_restore_needs_little_more_memory_than_the_state_it_reads(tmp_path):
    mib = 128
    Checkpoints(tmp_path, config_digest="c").save(state_of(mib), 1)
    code = f"""
        import resource, sys
        from pathlib import Path
        import jax, numpy as np
        from forerun.train.checkpoint import Checkpoints
        checkpoints = Checkpoints(Path(sys.argv[1]), config_digest="c")
        jax.numpy.zeros(8).block_until_ready()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        like = {{"a": jax.ShapeDtypeStruct(({mib << 17},), np.float64)}}
        state = checkpoints.restore(1, like)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=True, capture_output=True, text=True, timeout=120
    )
    # 128 MiB read as it lies on disk, its destination, and half of it again as float32: a second copy of each would be beyond
    assert float(done.stdout) < 3.6 * mib
