"""Bucketed reads, exports, catalogue, query, import: each against a slow twin or another reader."""

import csv
import sqlite3

import numpy as np
import pyarrow.parquet as pq
import pytest

from forerun.base.errors import RecordError
from forerun.base.lab import Lab
from forerun.record import journal as journal_module
from forerun.record.buckets import read_buckets
from forerun.record.catalogue import list_runs, rebuild
from forerun.record.copy import copy_run
from forerun.record.export import export
from forerun.record.journal import Journal
from forerun.record.names import our_name
from forerun.record.query import query
from forerun.record.reader import open_run
from forerun.record.run import start_run
from forerun.watch.sources.tables import connect as connect_table
from forerun.watch.sources.tensorboard import connect as connect_tensorboard


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab with one run of several sealed segments, a live tail, a replaced stretch and sparse evaluations."""
    monkeypatch.setattr(journal_module, "SEAL_ROWS", 300)
    lab = Lab(tmp_path)
    rng = np.random.default_rng(0)
    start_run(lab.run("r"), num_steps=3000, experiment="001-x")
    with Journal(lab.run("r")) as journal:
        for step in range(1, 1501):
            journal.log(step, {"loss_nats": float(rng.normal(3, 0.1)), "grad_norm": float("nan") if step == 700 else 1.0})
    start_run(lab.run("r"), num_steps=3000, first_step=1201)
    with Journal(lab.run("r")) as journal:
        for step in range(1201, 2501):
            row = {"loss_nats": float(rng.normal(2, 0.1))}
            if step % 500 == 0:
                row["eval/macro_loss_nats"] = 2.5
            journal.log(step, row)
    return lab


@pytest.mark.parametrize("num_buckets", [10, 100, 1000, 5000])
def test_buckets_equal_those_of_a_plain_loop(lab, num_buckets):
    record = open_run(lab.run("r"))
    buckets = read_buckets(record, "loss_nats", num_buckets)
    series = record.series("loss_nats")
    assert buckets.count.sum() == len(series)
    assert len(buckets.low) <= num_buckets
    assert buckets.low.min() == series.value.min()
    assert buckets.high.max() == series.value.max()
    for first, last, low, high, mean, count in zip(
        buckets.first_step, buckets.last_step, buckets.low, buckets.high, buckets.mean, buckets.count
    ):
        inside = series.value[(series.step >= first) & (series.step <= last)]
        assert (len(inside), inside.min(), inside.max()) == (count, low, high)
        np.testing.assert_allclose(inside.mean(), mean, rtol=1e-12)  # sums in another order


def test_buckets_leave_out_what_is_not_finite_and_cope_with_nothing(lab):
    record = open_run(lab.run("r"))
    assert read_buckets(record, "grad_norm", 50).count.sum() == 1199
    assert len(read_buckets(record, "no such metric").low) == 0


def test_buckets_of_a_range_stay_inside_it(lab):
    buckets = read_buckets(open_run(lab.run("r")), "loss_nats", 10, first_step=100, last_step=199)
    assert buckets.last_step.max() <= 199 + 16
    assert buckets.first_step.min() >= 100 - 16


def test_exports_read_back_to_the_same_series(lab, tmp_path):
    record = open_run(lab.run("r"))
    readers = {
        "csv": lambda path: connect_table(str(path)).read(),
        "parquet": lambda path: connect_table(str(path)).read(),
        "tensorboard": lambda path: connect_tensorboard(str(path.parent)).read(),
    }
    for kind, read in readers.items():
        path = export(record, kind, tmp_path / kind / ("" if kind == "tensorboard" else f"run.{kind}"))
        back = read(path)
        for metric in ("loss_nats", "eval/macro_loss_nats"):
            assert back.series(metric).step.tolist() == record.series(metric).step.tolist()
            tolerance = 1e-6 if kind == "tensorboard" else 0  # event files hold float32
            np.testing.assert_allclose(back.series(metric).value, record.series(metric).value, rtol=tolerance)


def test_csv_leaves_cells_empty_where_a_step_lacks_a_metric(lab, tmp_path):
    rows = list(csv.DictReader(export(open_run(lab.run("r")), "csv", tmp_path / "r.csv").open()))
    assert [row["step"] for row in rows if row["eval/macro_loss_nats"]] == ["1500", "2000", "2500"]


def test_the_catalogue_is_rebuilt_from_files_and_lists_what_it_cannot_read(lab):
    (lab.runs / "broken").mkdir()
    (lab.runs / "broken" / "run.json").write_text("{")
    (line,) = list_runs(lab)
    assert (line.run_id, line.experiment, line.last_step, line.num_steps, line.registered) == ("r", "001-x", 2500, 3000, False)
    rebuild(lab).unlink()
    connection = sqlite3.connect(rebuild(lab))
    assert connection.execute("SELECT run_id FROM unreadable").fetchall() == [("broken",)]
    assert connection.execute("SELECT num_rows FROM metrics WHERE metric = 'loss_nats'").fetchone() == (2500,)


def test_sql_sees_one_row_a_step_and_a_bad_query_is_one_line(lab):
    record = open_run(lab.run("r"))
    names, rows = query(record, 'SELECT count(*) AS n, count("eval/macro_loss_nats") AS evals FROM metrics')
    assert (names, rows) == (["n", "evals"], [(2500, 3)])
    with pytest.raises(RecordError, match="quote names") as refused:
        query(record, "SELECT nothing FROM metrics")
    assert "\n" not in str(refused.value)


def test_a_copied_run_keeps_series_segments_and_events(lab):
    record = open_run(lab.run("r"))
    assert copy_run(record, lab, "copy") == 2500
    copy = open_run(lab.run("copy"))
    np.testing.assert_array_equal(copy.series("loss_nats").value, record.series("loss_nats").value)
    np.testing.assert_array_equal(copy.series("loss_nats").time, record.series("loss_nats").time)
    assert [segment.first_step for segment in copy.info.segments] == [0, 1201]
    assert copy.events()[-1]["kind"] == "stopped"  # nothing is added to a copy: it is no run one waits for
    with pytest.raises(RecordError, match="already"):
        copy_run(record, lab, "copy")


def test_every_row_is_sealed_after_closing_replaced_ones_included(lab):
    metadata = [pq.read_metadata(path) for path in lab.run("r").glob("w0/seg-????????????.parquet")]
    assert sum(meta.num_rows for meta in metadata) == 2800


@pytest.mark.parametrize(
    ("foreign", "ours", "factor"),
    [
        ("train/cross_entropy_loss", "loss_nats", 1.0),
        ("grad/norm/stacked_blocks.stacked.mlp", "grad_norm/stacked_blocks.stacked.mlp", 1.0),
        ("eval_dropless/paloma/macro_loss", "eval/macro_loss_nats", 1.0),
        ("eval_dropless/paloma/c4_en-llama3/loss", "eval/c4_en-llama3/loss_nats", 1.0),
        ("train/router/layer_17/routing_entropy", "router_entropy_nats/layer_17", 1.0),
        ("throughput/mfu", "mfu", 0.01),
        ("my/own/metric", "my/own/metric", 1.0),
    ],
)
def test_public_keys_become_the_glossary_s_names(foreign, ours, factor):
    assert our_name(foreign) == (ours, factor)
