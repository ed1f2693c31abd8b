"""What a run does when things go wrong or are changed: saves that fail, bad steps, stalls, forks, other schedules, suites on disk."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import lab_with_store, tiny_run

from forerun.base.errors import CheckFailed, ConfigError, DataError
from forerun.loader.store import open_store
from forerun.optim.config import ScheduleConfig
from forerun.optim.schedule import schedule
from forerun.record.reader import open_run
from forerun.train.checkpoint import Checkpoints
from forerun.train.config import SpikePolicy
from forerun.train.fork import paired, prepare
from forerun.train.loop import train
from forerun.train.pulse import STALLED_EXIT_CODE
from forerun.train.spikes import batch_of
from forerun.train.suites import suite_rows

STATE = {"a": np.arange(6, dtype=np.float32)}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    lab, manifest = lab_with_store(tmp_path_factory.mktemp("lab"))
    config = tiny_run(manifest, num_steps=12)
    config = replace(config, checkpoint=replace(config.checkpoint, milestones=(0.5,)))
    config = replace(config, eval=replace(config.eval, sample_prompts=("abc",)))
    train(config, lab, run_id="whole", registration=None, quiet=True)
    return lab, config


def test_a_save_that_the_disk_refuses_is_an_outcome_and_not_an_exception(tmp_path):
    (tmp_path / "in_the_way").write_text("a file where the folder should be")
    checkpoints = Checkpoints(tmp_path / "in_the_way", config_digest="c")
    checkpoints.begin(STATE, 1)
    outcome = checkpoints.finish()
    assert outcome is not None and outcome.step == 1 and "in_the_way" in outcome.problem


def test_checkpoints_kept_for_ever_outlive_a_change_of_the_milestones(tmp_path):
    Checkpoints(tmp_path, config_digest="c", milestones=frozenset({2})).save(STATE, 2)
    later = Checkpoints(tmp_path, config_digest="d", num_rolling=1)
    for step in (3, 4, 5):
        later.save(STATE, step)
    assert later.steps() == [2, 5]


def test_samples_and_heartbeat_free_short_runs_leave_a_complete_record(done):
    lab, _ = done
    record = open_run(lab.run("whole"))
    samples = record.events("sample")
    assert [event["step"] for event in samples] == [3, 6, 9, 12]
    assert all(event["prompt"] == "abc" for event in samples)
    assert record.events("finished")[-1]["step"] == 12


def test_an_unchanged_fork_repeats_the_original_to_the_bit_and_a_changed_one_does_not(done):
    lab, config = done
    prepare(lab, "whole", 6, "same", last_step=config.train.num_steps)
    train(config, lab, run_id="same", registration=None, quiet=True)
    control = paired(lab, "whole", "same")
    assert (control.first_step, control.last_step, control.loss_nats, control.macro_loss_nats) == (7, 12, 0.0, 0.0)
    prepare(lab, "whole", 6, "hot", last_step=config.train.num_steps)
    hot = replace(config, optim=replace(config.optim, adam_learning_rate=0.05))
    train(hot, lab, run_id="hot", registration=None, quiet=True, changed="adam_learning_rate 0.05")
    assert paired(lab, "whole", "hot").loss_nats != 0.0
    with pytest.raises(ConfigError, match="no checkpoint of step 5"):
        prepare(lab, "whole", 5, "none", last_step=config.train.num_steps)
    with pytest.raises(ConfigError, match="has no step of its own"):
        prepare(lab, "whole", 6, "none", last_step=6)
    assert not lab.run("none").exists()


def test_a_longer_context_from_a_stated_step_reads_the_same_tokens(done):
    lab, config = done
    short = replace(config, data=replace(config.data, max_seq_len=64))
    train(short, lab, run_id="context", registration=None, quiet=True, stop_after=6)
    long = replace(
        short,
        train=replace(short.train, seq_len=64, batch_size=4),
        model=replace(short.model, qk_mult=1.3 * (0.1 * math.log(2) + 1)),
    )
    result = train(long, lab, run_id="context", registration=None, quiet=True, changed="context 32 -> 64")
    record = open_run(lab.run("context"))
    assert record.series("loss_nats").step.tolist() == list(range(1, 13)) and result.num_steps == 12
    assert record.info.segments[-1].changed == "context 32 -> 64"


@pytest.mark.parametrize("policy", ["skip", "rewind", "stop"])
def test_bad_steps_are_named_with_their_documents_and_never_repeated_for_ever(done, policy):
    lab, config = done
    config = replace(config, spikes=SpikePolicy(on_nonfinite=policy, grad_norm_limit=1e-9, max_skips=3, rewind_batches=2))
    with pytest.raises(CheckFailed, match="bad steps so far"):
        train(config, lab, run_id=f"bad-{policy}", registration=None, quiet=True)
    record = open_run(lab.run(f"bad-{policy}"))
    bad = record.events("nonfinite")
    assert len(bad) == (1 if policy == "stop" else 4)
    assert all(event["documents"] for event in bad)
    assert len(record.events("crashed")) == 1
    if policy == "rewind":
        assert [event["batch"] for event in bad] == [0, 2, 4, 6]


def test_passed_over_batches_shift_the_data_order_from_their_step_on():
    assert [batch_of(step, [(3, 2), (5, 10)]) for step in (0, 2, 3, 4, 5)] == [0, 2, 5, 6, 17]


def test_a_stalled_process_names_its_phase_writes_its_stacks_and_ends(tmp_path):
    code = f"""
        import time
        from pathlib import Path
        from forerun.record.journal import Journal
        from forerun.record.run import start_run
        from forerun.train.pulse import Pulse
        run = Path({str(tmp_path)!r}) / "run"
        start_run(run, num_steps=1)
        with Journal(run) as journal, Pulse(journal, watchdog_s=0.4, every_s=0.1) as pulse:
            pulse.phase("save", 7)
            time.sleep(60)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, env=os.environ, timeout=50)
    assert ended.returncode == STALLED_EXIT_CODE
    record = open_run(tmp_path / "run")
    assert record.events("stalled")[0]["phase"] == "save" and record.events("heartbeat")
    assert "sleep" in (tmp_path / "run" / "stacks-0.txt").read_text() or "<string>" in (tmp_path / "run" / "stacks-0.txt").read_text()


def test_a_shortened_run_keeps_its_rate_and_falls_from_there_to_the_same_end():
    planned = schedule(ScheduleConfig(), 100)
    short = schedule(ScheduleConfig(planned_steps=100, reaimed_at_step=60), 80)
    for step in (0, 30, 60):
        assert float(short(step)) == pytest.approx(float(planned(step)), rel=1e-6)
    assert float(short(70)) == pytest.approx((float(planned(60)) + 0.05) / 2, rel=1e-5)
    assert float(short(80)) == pytest.approx(0.05, rel=1e-5)


def test_suites_on_disk_become_rows_by_folder_or_by_file(done, tmp_path):
    lab, config = done
    store = open_store(lab, config.data.manifest)
    (tmp_path / "paloma" / "c4" / "val").mkdir(parents=True)
    with gzip.open(tmp_path / "paloma" / "c4" / "val" / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": "abc"}) + "\n" + json.dumps({"text": "de"}) + "\n")
    rows = suite_rows(tmp_path / "paloma", store, 32, 8)["c4"]
    assert rows.num_bytes == 5  # the bytes of both texts; the token between them stands for none
    assert rows.num_tokens == 6
    assert rows.batch.segment_ids[0, :8].tolist() == [1, 1, 1, 1, 2, 2, 0, 0]
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "wiki_2026.json").write_text(json.dumps(["abc", {"text": "d"}]))
    assert list(suite_rows(tmp_path / "fresh", store, 32, 8)) == ["wiki_2026"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no text"):
        suite_rows(tmp_path / "empty", store, 32, 8)


def test_a_vocabulary_smaller_than_the_store_s_is_refused_before_anything_is_written(done):
    """Ids without a row would be clamped to the last one: a run that learns a text nobody wrote."""
    lab, config = done
    small = replace(config, model=replace(config.model, vocab_size=config.model.vocab_size - 1))
    with pytest.raises(ConfigError, match=r"model\.vocab_size must be at least"):
        train(small, lab, run_id="clamped", registration=None, quiet=True)
    assert not lab.run("clamped").exists()


def test_a_mirror_nobody_knows_is_refused_before_anything_is_written(done):
    lab, config = done
    with pytest.raises(ConfigError, match="--mirror must be one of wandb, trackio"):
        train(config, lab, run_id="mirrored", registration=None, quiet=True, mirror="tensorboard")
    assert not lab.run("mirrored").exists()
