"""The journal: what is acknowledged survives, what is torn is counted, what is sealed is lossless."""

import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from forerun.base.errors import RecordError, StorageError
from forerun.record import journal as journal_module
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import load_run, start_run
from forerun.record.segments import segment_files

WRITER = """
import sys
from pathlib import Path
from forerun.record.journal import Journal
run, writer = Path(sys.argv[1]), int(sys.argv[2])
with open(run / f"ack{writer}", "w") as acknowledged, Journal(run, writer) as journal:
    step = 0
    while True:
        journal.log(step, {"loss_nats": step + writer / 10, "grad_norm": 1.0})
        acknowledged.seek(0)
        acknowledged.write(f"{step}\\n")
        acknowledged.flush()
        step += 1
"""


@pytest.fixture
def run_dir(tmp_path):
    start_run(tmp_path / "run", num_steps=1000)
    return tmp_path / "run"


def test_a_row_is_readable_as_soon_as_log_returns(run_dir):
    with Journal(run_dir) as journal:
        journal.log(1, {"loss_nats": 2.5, "grad_norm": np.float32(0.1)})
        series = open_run(run_dir).series("grad_norm")
        assert series.step.tolist() == [1]
        assert series.value.tolist() == [float(np.float32(0.1))]


def test_values_survive_sealing_bit_for_bit_with_nan_and_infinities(run_dir):
    values = [0.1, math.nan, math.inf, -math.inf, 1e-300, 123456789.123456789]
    with Journal(run_dir) as journal:
        for step, value in enumerate(values):
            journal.log(step, {"a": value, "narrow": float(np.float32(value)) if abs(value) < 1e30 else value})
    record = open_run(run_dir)
    np.testing.assert_array_equal(record.series("a").value, values)
    schema = pq.read_schema(segment_files(run_dir / "w0")[0])
    assert str(schema.field("a").type) == "double"


def test_float32_values_are_sealed_as_float32(run_dir):
    with Journal(run_dir) as journal:
        for step in range(10):
            journal.log(step, {"a": float(np.float32(0.1 * step))})
    assert str(pq.read_schema(segment_files(run_dir / "w0")[0]).field("a").type) == "float"


def test_a_metric_missing_from_a_row_is_absent_not_zero(run_dir):
    with Journal(run_dir) as journal:
        journal.log(1, {"a": 1.0})
        journal.log(2, {"b": 2.0})
        journal.log(3, {"a": 3.0, "b": math.nan})
    record = open_run(run_dir)
    assert record.series("a").step.tolist() == [1, 3]
    assert record.series("b").step.tolist() == [2, 3]
    assert len(record.series("never logged")) == 0


def test_a_torn_last_line_is_skipped_counted_and_does_not_spoil_the_next_row(run_dir):
    journal = Journal(run_dir)
    journal.log(1, {"a": 1.0})
    with (run_dir / "w0" / "journal.jsonl").open("ab") as file:
        file.write(b'{"step":2,"time":1,"a":')
    record = open_run(run_dir)
    assert (record.series("a").step.tolist(), record.num_torn_lines) == ([1], 1)
    _drop_without_closing(journal)
    with Journal(run_dir) as journal:
        journal.log(3, {"a": 3.0})
        record = open_run(run_dir)
        assert (record.series("a").step.tolist(), record.num_torn_lines) == ([1, 3], 1)
    record = open_run(run_dir)
    assert (record.series("a").step.tolist(), record.num_torn_lines) == ([1, 3], 1)


def test_every_crash_point_of_sealing_shows_each_row_once(run_dir, monkeypatch):
    """Between the renamed segment and the fresh journal both hold the rows."""
    journal = Journal(run_dir)
    for step in range(5):
        journal.log(step, {"a": float(step)})
    monkeypatch.setattr(Journal, "_start_journal", _crash)
    with pytest.raises(KeyboardInterrupt):
        journal._seal()
    assert open_run(run_dir).series("a").step.tolist() == [0, 1, 2, 3, 4]
    monkeypatch.undo()
    os.close(journal._lock_file)
    journal._closed.set()
    with Journal(run_dir) as again:
        again.log(5, {"a": 5.0})
    assert open_run(run_dir).series("a").step.tolist() == [0, 1, 2, 3, 4, 5]


def test_sealing_by_size_keeps_reading_seamless(run_dir, monkeypatch):
    monkeypatch.setattr(journal_module, "SEAL_ROWS", 7)
    with Journal(run_dir) as journal:
        for step in range(24):
            journal.log(step, {"a": float(step)})
            assert open_run(run_dir).series("a").step.tolist() == list(range(step + 1))
    assert len(segment_files(run_dir / "w0")) == 4


def test_kill_nine_with_four_writers_loses_no_acknowledged_row(run_dir):
    children = [subprocess.Popen([sys.executable, "-c", WRITER, str(run_dir), str(writer)], start_new_session=True) for writer in range(4)]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not all(_acknowledged(run_dir, writer) > 200 for writer in range(4)):
        time.sleep(0.05)
    for child in children:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    record = open_run(run_dir)
    for writer in range(4):
        last = _acknowledged(run_dir, writer)
        series = record.series("loss_nats", writer)
        assert last > 200
        assert series.step[: last + 1].tolist() == list(range(last + 1))
        assert series.value[last] == last + writer / 10


def test_a_second_process_cannot_write_the_same_journal(run_dir):
    with Journal(run_dir), pytest.raises(RecordError, match="written by another process"):
        Journal(run_dir)


def test_a_full_disk_raises_and_the_rows_before_it_stay(run_dir):
    """A file size limit refuses the write as a full disk would."""
    script = (
        "import resource, sys; from pathlib import Path; from forerun.record.journal import Journal\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "for step in range(1000): journal.log(step, {'a': 1.0})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(run_dir)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "StorageError" in done.stderr or "File too large" in done.stderr
    series = open_run(run_dir).series("a")
    assert len(series) > 10
    assert series.step.tolist() == list(range(len(series)))


def test_a_failed_fsync_raises_at_the_next_row(run_dir, monkeypatch):
    journal = Journal(run_dir)
    journal.log(1, {"a": 1.0})
    monkeypatch.setattr(journal_module.os, "fsync", _refuse)
    journal._sync()
    with pytest.raises(StorageError, match="could not be made durable"):
        journal.log(2, {"a": 2.0})
    monkeypatch.undo()
    with pytest.raises(StorageError):
        journal.close()


def test_bad_values_and_names_are_refused_with_the_metric_named(run_dir):
    with Journal(run_dir) as journal:
        with pytest.raises(RecordError, match="note='text'"):
            journal.log(1, {"note": "text"})
        with pytest.raises(RecordError, match="step"):
            journal.log(1, {"step": 1.0})


def test_replayed_steps_count_once_and_the_later_segment_wins(tmp_path):
    run_dir = tmp_path / "run"
    start_run(run_dir, num_steps=10)
    with Journal(run_dir) as journal:
        for step in range(1, 9):
            journal.log(step, {"loss_nats": float(step)})
        journal.log(8, {"eval/macro_loss_nats": 8.0})
    start_run(run_dir, num_steps=10, first_step=5)
    with Journal(run_dir) as journal:
        journal.log(5, {"loss_nats": 50.0})
        journal.log(6, {"loss_nats": 60.0})
        record = open_run(run_dir)
        assert record.series("loss_nats").value.tolist() == [1, 2, 3, 4, 50, 60]
        assert len(record.series("eval/macro_loss_nats")) == 0
        assert record.last_step == 6
    assert [segment.first_step for segment in load_run(run_dir).segments] == [0, 5]


def test_a_changed_config_must_be_declared(tmp_path):
    start_run(tmp_path / "run", num_steps=10, config_digest="a" * 64)
    with pytest.raises(RecordError, match="forerun amend"):
        start_run(tmp_path / "run", num_steps=10, config_digest="b" * 64, first_step=3)
    start_run(tmp_path / "run", num_steps=10, config_digest="b" * 64, first_step=3, changed="other data", kind="data")


def test_a_folder_without_a_run_is_one_clear_error(tmp_path):
    with pytest.raises(RecordError, match="holds no run"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text("{broken")
    with pytest.raises(RecordError, match="cannot be read"):
        open_run(tmp_path)


def test_events_keep_their_fields_and_order_over_writers(run_dir):
    with Journal(run_dir, 0) as first, Journal(run_dir, 1) as second:
        first.event("checkpoint_saved", 10, seconds=1.5)
        second.event("sample", 11, text="text that is no metric")
        first.event("finished", 12)
    kinds = [event["kind"] for event in open_run(run_dir).events()]
    assert kinds == ["checkpoint_saved", "sample", "finished"]
    assert open_run(run_dir).events("sample")[0]["text"] == "text that is no metric"


def _acknowledged(run_dir, writer):
    path = run_dir / f"ack{writer}"
    words = path.read_text().split() if path.exists() else []
    return int(words[0]) if words else -1


def _drop_without_closing(journal):
    """What a crash leaves: nothing sealed, the lock gone."""
    journal._closed.set()
    journal._syncer.join()
    for handle in (journal._journal, journal._events, journal._lock_file):
        os.close(handle)


def _crash(*_):
    raise KeyboardInterrupt


def _refuse(handle):
    raise OSError(5, "Input/output error")
