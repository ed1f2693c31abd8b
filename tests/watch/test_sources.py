"""Foreign sources: their formats, their bad habits, and resuming where the last read stopped."""

import gzip
import json
import math
import sqlite3
import struct

import httpx
import numpy as np
import pytest
from wandb_stub import Project

from forerun.base.errors import ConfigError, SourceError
from forerun.base.lab import Lab
from forerun.record.copy import copy_run
from forerun.record.run import Segment
from forerun.record.tfrecord import delimited, frame, masked_crc, varint
from forerun.watch.course import judge
from forerun.watch.sources.all import connect
from forerun.watch.sources.http import Http
from forerun.watch.sources.mlflow import MlflowServer
from forerun.watch.sources.tensorboard import EventFiles
from forerun.watch.sources.wandb import WandbRuns, parsed
from forerun.watch.sources.wandb_buckets import BucketedRuns

DAY = "2026-08-20T00:00:00Z"
DAY_S = 1787184000.0
NEXT_DAY = "2026-08-21T00:00:00Z"


def event(step, **scalars):
    """One TensorBoard event by hand, from the protobuf definition."""
    values = b"".join(
        delimited(1, delimited(1, tag.replace("__", "/").encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))
        for tag, value in scalars.items()
    )
    return frame(varint(1 << 3 | 1) + struct.pack("<d", 100.0 + step) + varint(2 << 3) + varint(step) + delimited(5, values))


def rows(first, last, start=DAY_S, **extra):
    return [
        {"_step": step, "_timestamp": start + step, "train/cross_entropy_loss": 3.0 - step / 1000, **extra}
        for step in range(first, last + 1)
    ]


def wandb_source(project, where="e/p/a"):
    source = WandbRuns(*parsed(where), base="http://stub", transport=project.transport())
    source.http._sleep = lambda seconds: None
    return source


def test_the_checksum_is_the_one_of_the_published_vector():
    """RFC 3720, B.4: CRC-32C of 32 zero bytes is 0x8A9136AA, before TFRecord's mask."""
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_torn_tail_is_read_when_it_is_whole(tmp_path):
    path = tmp_path / "events.out.tfevents.1.host"
    whole = event(1, loss=3.0) + event(2, loss=2.5)
    path.write_bytes(whole + event(3, loss=2.0)[:-5])
    source = EventFiles(tmp_path)
    assert source.read().series("loss_nats").step.tolist() == [1, 2]
    path.write_bytes(whole + event(3, loss=2.0) + event(4, grad_norm_total=0.5))
    record = source.read()
    assert record.series("loss_nats").value.tolist() == [3.0, 2.5, 2.0]
    assert record.series("grad_norm").step.tolist() == [4]


def test_a_flipped_byte_stops_that_file_and_is_said(tmp_path):
    data = bytearray(event(1, loss=3.0) + event(2, loss=2.5))
    data[-20] ^= 0xFF
    (tmp_path / "events.out.tfevents.1.host").write_bytes(data)
    record = EventFiles(tmp_path).read()
    assert record.series("loss_nats").step.tolist() == [1]
    assert "checksum" in record.events("source_corrupt")[0]["message"]


def test_csv_takes_comments_empty_cells_and_foreign_names(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("# source: somewhere\nstep,train_loss,note,eval_loss\n1,3.0,a,\n2,nan,b,2.9\n")
    record = connect(f"csv:{path}", Lab(tmp_path)).read()
    assert record.series("eval/macro_loss_nats").step.tolist() == [2]
    assert math.isnan(record.series("loss_nats").value[1])
    path.write_text("loss\n3\n")
    with pytest.raises(SourceError, match="no column step"):
        connect(f"csv:{path}", Lab(tmp_path)).read()


def test_a_path_of_a_table_or_of_a_run_is_a_source(tmp_path):
    lab = Lab(tmp_path / "lab")
    (tmp_path / "run.csv").write_text("step,loss\n1,3.5\n")
    table = connect(str(tmp_path / "run.csv"), lab).read()
    assert table.series("loss_nats").last == 3.5
    copy_run(table, lab, "mine")
    assert connect("mine", lab).read().series("loss_nats").last == 3.5
    assert connect(str(lab.run("mine")), Lab(tmp_path / "other")).read().series("loss_nats").last == 3.5


@pytest.mark.parametrize("name", ["", "..", "../mine", "/tmp/mine", "a\\b"])
def test_a_run_s_name_never_leads_out_of_the_lab(tmp_path, name):
    with pytest.raises(ConfigError, match="one word without slashes"):
        Lab(tmp_path).run(name)


def test_unknown_kinds_and_absent_files_are_one_clear_line(tmp_path):
    for source in ("comet:x", "csv:absent.csv", "tensorboard:absent", "mlflow:absent.db#1", "trackio:absent.db"):
        with pytest.raises(SourceError):
            connect(source, Lab(tmp_path)).read()


def test_null_keys_are_left_out_and_later_reads_ask_only_for_new_steps():
    history = rows(0, 9)
    history[4]["eval_dropless/paloma/macro_loss"] = 2.8
    project = Project({"a": {"created": DAY, "rows": history}})
    source = wandb_source(project)
    record = source.read()
    assert record.series("eval/macro_loss_nats").step.tolist() == [4]
    assert len(record.series("loss_nats")) == 10
    project.runs["a"]["rows"] += rows(10, 12)
    assert source.read().series("loss_nats").step.tolist() == list(range(13))
    last = [json.loads(spec) for spec in project.asked[-1][1]["specs"]]
    assert {spec["keys"][2]: spec["minStep"] for spec in last} == {"train/cross_entropy_loss": 10, "eval_dropless/paloma/macro_loss": 5}


def test_a_fork_s_copied_history_and_replayed_steps_count_once():
    """Run b began a day later with its parent's rows up to step 9, replays from step 6."""
    own = rows(6, 12, DAY_S + 86_400, **{"grad/norm/total": 1.0})
    project = Project({"a": {"created": DAY, "state": "crashed", "rows": rows(0, 9)}, "b": {"created": NEXT_DAY, "rows": rows(0, 5) + own}})
    record = wandb_source(project, "e/p/a,b").read()
    assert [segment.first_step for segment in record.info.segments] == [0, 6]
    series = record.series("loss_nats")
    assert series.step.tolist() == list(range(13))
    assert series.time[6] == DAY_S + 86_400 + 6


def test_a_take_over_step_given_by_hand_is_kept():
    project = Project({"a": {"created": DAY, "rows": rows(0, 9)}, "b": {"created": DAY, "rows": rows(0, 12)}})
    record = wandb_source(project, "e/p/a,b@7").read()
    assert record.info.segments[1] == Segment(run_id="b", first_step=7, time=DAY_S)
    assert len(record.series("loss_nats")) == 13


def test_a_run_that_ended_is_followed_to_the_next_of_its_group():
    project = Project({"a": {"created": DAY, "state": "crashed", "group": "hero", "rows": rows(0, 9)}})
    source = wandb_source(project)
    source.read()
    project.runs["b"] = {"created": NEXT_DAY, "group": "hero", "rows": rows(8, 15, DAY_S + 86_400)}
    source._announced.clear()
    source.read()
    record = source.read()
    assert record.events("successor")[0]["message"] == "run b goes on"
    assert record.series("loss_nats").step.tolist() == list(range(16))


def test_busy_servers_are_asked_again_and_hopeless_ones_are_one_error():
    project = Project({"a": {"created": DAY, "rows": rows(0, 3)}}, refuse=[(429, {"Retry-After": "2"}), (502, {}), (503, {})])
    assert len(wandb_source(project).read().series("loss_nats")) == 4
    waits = []
    http = Http("http://stub", httpx.MockTransport(lambda request: httpx.Response(429, headers={"Retry-After": "7"})), sleep=waits.append)
    with pytest.raises(SourceError, match="HTTP 429"):
        http.get("/", {})
    assert waits == [7.0] * 5


def test_private_projects_and_wrong_runs_say_what_to_do():
    project = Project({"a": {"created": DAY, "rows": rows(0, 3)}})
    with pytest.raises(SourceError, match="new id at every restart"):
        wandb_source(project, "e/p/wrong").read()
    for where in ("e/p", "e/p/", "e/p/a@x"):
        with pytest.raises(SourceError):
            parsed(where)


def test_bucket_deltas_read_what_is_new_and_fall_back_when_not_understood():
    project = Project({"a": {"created": DAY, "heartbeat": "1", "rows": rows(0, 9)}})
    project.runs["a"]["heartbeat"] = DAY
    source = BucketedRuns(wandb_source(project))
    assert len(source.read().series("loss_nats")) == 10
    project.runs["a"]["rows"] += rows(10, 14)
    assert len(source.read().series("loss_nats")) == 10
    project.runs["a"]["heartbeat"] = NEXT_DAY
    assert len(source.read().series("loss_nats")) == 15
    assert source.fast
    project.buckets = False
    project.runs["a"]["rows"] += rows(15, 16)
    assert len(source.read().series("loss_nats")) == 17
    assert not source.fast


def test_mlflow_pages_are_followed_and_unchanged_metrics_not_asked_again():
    history = [{"key": "loss", "step": step, "value": 3.0 - step / 10, "timestamp": 1000 + step} for step in range(5)]
    asked = []

    def answer(request):
        asked.append(request.url.path.rsplit("/", 1)[1])
        if "get-history" in request.url.path:
            page = int(request.url.params.get("page_token", 0))
            return httpx.Response(200, json={"metrics": history[page : page + 2], "next_page_token": str(page + 2) if page + 2 < 5 else ""})
        metrics = [{"key": "loss", "step": 4, "value": 2.6, "timestamp": 1004}]
        return httpx.Response(200, json={"run": {"info": {"start_time": 1000, "status": "RUNNING"}, "data": {"metrics": metrics}}})

    source = MlflowServer("http://stub", "r", httpx.MockTransport(answer))
    assert source.read().series("loss_nats").step.tolist() == [0, 1, 2, 3, 4]
    source.read()
    assert asked.count("get-history") == 3


def test_mlflow_and_trackio_files_are_read_only_and_name_their_runs(tmp_path):
    mlflow, trackio = tmp_path / "mlflow.db", tmp_path / "p.db"
    with sqlite3.connect(mlflow) as connection:
        connection.executescript(
            "CREATE TABLE runs(run_uuid, start_time); CREATE TABLE metrics(key, value, timestamp, run_uuid, step, is_nan);"
        )
        connection.execute("INSERT INTO runs VALUES ('r1', 1000)")
        connection.executemany("INSERT INTO metrics VALUES ('loss', ?, 2000, 'r1', ?, ?)", [(3.0, 1, 0), (0.0, 2, 1)])
    with sqlite3.connect(trackio) as connection:
        connection.execute("CREATE TABLE metrics(id INTEGER PRIMARY KEY, run_name, step, timestamp, metrics)")
        connection.execute("INSERT INTO metrics VALUES (1, 'one', 5, '2026-01-01T00:00:00', ?)", (json.dumps({"loss": 2.0, "lr": "NaN"}),))
    record = connect(f"mlflow:{mlflow}", Lab(tmp_path)).read()
    np.testing.assert_array_equal(record.series("loss_nats").value, [3.0, math.nan])
    record = connect(f"trackio:{trackio}#one", Lab(tmp_path)).read()
    assert record.series("loss_nats").step.tolist() == [5]
    with pytest.raises(SourceError, match="has no run 'two'"):
        connect(f"trackio:{trackio}#two", Lab(tmp_path)).read()


def test_a_run_s_folder_below_mlruns_is_read_and_named_when_it_is_none(tmp_path):
    metrics = tmp_path / "mlruns" / "0" / "r1" / "metrics"
    (metrics / "train").mkdir(parents=True)
    (metrics / "train" / "loss").write_text("1700000000000 3.5 1\n1700000001000 nan 2\n")
    (metrics / "val_loss").write_text("1700000001000 3.25 2\n")
    record = connect(f"mlflow:{metrics.parent}", Lab(tmp_path)).read()
    np.testing.assert_array_equal(record.series("loss_nats").value, [3.5, math.nan])
    assert record.series("eval/macro_loss_nats").time.tolist() == [1_700_000_001.0]
    (metrics / "val_loss").write_text("3.25\n")
    for folder, said in ((metrics.parent, "line 1 must hold milliseconds"), (metrics, "has no folder metrics")):
        with pytest.raises(SourceError, match=said):
            connect(f"mlflow:{folder}", Lab(tmp_path)).read()


def test_databases_of_another_form_are_one_line(tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE metrics(id INTEGER PRIMARY KEY, run_name, step, timestamp, metrics)")
        connection.execute("INSERT INTO metrics VALUES (1, 'one', 5, 'yesterday', ?)", (json.dumps({"loss": 2.0}),))
    with pytest.raises(SourceError, match="no such table: runs"):
        connect(f"mlflow:{tmp_path / 'other.db'}#r", Lab(tmp_path)).read()
    assert math.isnan(connect(f"trackio:{tmp_path / 'other.db'}", Lab(tmp_path)).read().series("loss_nats").time[0])
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("INSERT INTO metrics VALUES (2, 'one', 6, '', 'loss 2.0')")
    with pytest.raises(SourceError, match="row 2 holds no metrics"):
        connect(f"trackio:{tmp_path / 'other.db'}", Lab(tmp_path)).read()


def test_a_wandb_chart_export_is_read_and_one_run_is_named_where_there_are_several(tmp_path):
    path = tmp_path / "wandb_export.csv"
    head = '"Step","small - train/loss","small - train/loss__MIN","small - train/loss__MAX","big - v2 - train/loss","big - v2 - train/loss__MIN","big - v2 - train/loss__MAX"'
    path.write_text(head + '\n"1","3.5","3.4","3.6","","",""\n"2","3.25","3.2","3.3","2.5","2.4","2.6"\n')
    with pytest.raises(SourceError, match=r"several runs: \['big - v2', 'small'\]"):
        connect(f"csv:{path}", Lab(tmp_path)).read()
    small = connect(f"csv:{path}#small", Lab(tmp_path)).read()
    assert small.series("loss_nats").value.tolist() == [3.5, 3.25]
    big = connect(f"csv:{path}#big - v2", Lab(tmp_path)).read()
    assert (big.series("loss_nats").step.tolist(), big.series("loss_nats").value.tolist()) == ([2], [2.5])


def test_a_tensorboard_download_takes_its_metric_from_the_file_s_name(tmp_path):
    path = tmp_path / "run-exp1-tag-val_loss.csv"
    path.write_text("Wall time,Step,Value\n1700000000.5,10,3.25\n1700000060.5,20,3.0\n")
    series = connect(f"csv:{path}", Lab(tmp_path)).read().series("eval/macro_loss_nats")
    assert (series.step.tolist(), series.value.tolist(), series.time.tolist()) == ([10, 20], [3.25, 3.0], [1700000000.5, 1700000060.5])


def test_json_lines_with_nan_and_absent_keys_are_read(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"_step": 1, "lm loss": 3.5, "text": "x"}\n\n{"_step": 2, "lm loss": NaN}\n{"_step": 3, "grad-norm": 0.5}\n')
    record = connect(f"jsonl:{path}", Lab(tmp_path)).read()
    np.testing.assert_array_equal(record.series("loss_nats").value, [3.5, math.nan])
    assert record.series("grad_norm").step.tolist() == [3]
    path.write_text('{"_step": 1}\n{"_step": \n')
    with pytest.raises(SourceError, match="line 2 is not JSON"):
        connect(f"jsonl:{path}", Lab(tmp_path)).read()
    path.write_text('{"_step": 1, "loss": 3.0}\n{"_step": 2, "lo')
    assert connect(f"jsonl:{path}", Lab(tmp_path)).read().series("loss_nats").step.tolist() == [1]  # the second is being written


WRITINGS = {
    "pandas.csv": ",Iteration,Train Loss\n0,1,3.5\n1,2,3.25\n",
    "semicolons.csv": "step;loss\n1;3,5\n2;3,25\n",
    "tabs.csv": "step\tloss\n1\t3.5\n2\t3.25\n",
    "spaces.csv": "step, loss\n1.0, 3.5\n2.0, 3.25\n",
    "appended.csv": "step,loss\n1,3.5\nstep,loss\n2,3.25\n",
    "more_cells.csv": "step,loss\n1,3.5,x\n2,3.25,y\n",
    "transformers.csv": "_step,train/global_step,train/loss\n0,1,3.5\n1,2,3.25\n",
    "neox.csv": "Step,run - train/lm_loss,run - train/lm_loss__MIN\n1,3.5,3.5\n2,3.25,3.2\n",
    "fairseq.jsonl": '{"num_updates": "1", "loss": "3.5"}\n{"num_updates": "2", "loss": "3.25"}\n{"done": true}\n',
    "nested.jsonl": '{"step": 1, "metrics": {"loss": 3.5}}\n{"step": 2, "metrics": {"loss": 3.25}}\n',
    "list.json": '[{"step": 1, "loss": 3.5}, {"step": 2, "loss": 3.25}]',
    "trainer_state.json": '{"global_step": 2, "log_history": [\n{"step": 1, "loss": 3.5}, {"step": 2, "loss": 3.25}]}',
}


@pytest.mark.parametrize("name", WRITINGS)
def test_one_loss_curve_is_read_from_every_writing_of_it(tmp_path, name):
    path = tmp_path / name
    path.write_text(WRITINGS[name])
    series = connect(f"csv:{path}", Lab(tmp_path)).read().series("loss_nats")
    assert (series.step.tolist(), series.value.tolist()) == ([1, 2], [3.5, 3.25])
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert connect(f"csv:{packed}", Lab(tmp_path)).read().series("loss_nats").value.tolist() == [3.5, 3.25]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"loss\n3.5,junk\n", "no column step or global_step, but ['loss']"),
        ("a.csv.gz", gzip.compress(b"step,loss\n1,3\n")[:-9], "cannot be read: Compressed file ended"),
        ("a.csv", "step,loss\n1,3\n".encode("utf-16"), "text has to be UTF-8"),
        ("a.json", b'{"loss": 3}', "holds no list of rows"),
        ("a.json", b'{"step": 1, "loss": 3}\n{"step": 2, "loss": 3}', "JSON lines end in .jsonl"),
        ("a.parquet", b"PAR1" + bytes(40) + b"PAR1", "is not Parquet"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
def test_a_file_that_is_no_table_is_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as refused:
        connect(f"csv:{tmp_path / name}", Lab(tmp_path)).read()
    assert said in str(refused.value)


def test_a_table_as_forecasts_read_it_is_one_of_evaluations(tmp_path):
    path = tmp_path / "evals.csv"
    path.write_text("rung,step,loss_nats,eval\nbig,10,3.5,wiki\nbig,20,3.25,wiki\n")
    assert connect(str(path), Lab(tmp_path)).read().series("eval/wiki/loss_nats").value.tolist() == [3.5, 3.25]
    path.write_text("rung,step,loss_nats\nsmall,10,3.5\nbig,10,3.0\n")
    with pytest.raises(SourceError, match="several runs"):
        connect(str(path), Lab(tmp_path)).read()
    assert connect(f"csv:{path}#big", Lab(tmp_path)).read().series("eval/macro_loss_nats").value.tolist() == [3.0]


def test_a_mean_over_the_run_at_its_end_is_no_step_of_it(tmp_path):
    """transformers closes its history with `train_loss`, the mean loss since the start."""
    path = tmp_path / "trainer_state.json"
    history = [{"step": step, "loss": 3.0 - step / 1000} for step in range(10, 410, 10)]
    path.write_text(json.dumps({"log_history": [*history, {"step": 400, "train_loss": 2.8, "train_runtime": 60.0}]}))
    assert connect(f"json:{path}", Lab(tmp_path)).read().series("loss_nats").last == 3.0 - 0.4


def test_times_in_milliseconds_and_as_dates_are_seconds(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("step,timestamp,loss\n1,1700000000000,3.5\n2,2023-11-14T22:14:20+00:00,3.25\n")
    assert connect(f"csv:{path}", Lab(tmp_path)).read().series("loss_nats").time.tolist() == [1_700_000_000.0, 1_700_000_060.0]


def test_tensorboard_folders_are_splits_restarts_or_runs(tmp_path):
    """One event file may be named too; two folders that log one tag at the same time are two runs."""

    def write(folder, *events):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "events.out.tfevents.1.host").write_bytes(b"".join(events))

    write("splits/train", event(1, loss=3.0), event(2, loss=2.5))
    write("splits/eval", event(1, loss=3.1), event(2, loss=2.6))
    record = EventFiles(tmp_path / "splits").read()
    assert record.series("loss_nats").value.tolist() == [3.0, 2.5]
    assert np.round(record.series("eval/macro_loss_nats").value, 3).tolist() == [3.1, 2.6]
    write("restarts/first", event(1, loss=3.0), event(2, loss=2.5))
    write("restarts/second", event(3, loss=2.25), event(4, loss=2.0))
    assert EventFiles(tmp_path / "restarts").read().series("loss_nats").value.tolist() == [3.0, 2.5, 2.25, 2.0]
    write("runs/small", event(1, loss=3.0), event(2, loss=2.5))
    write("runs/large", event(1, loss=2.0), event(2, loss=1.5))
    with pytest.raises(SourceError, match=r"holds several runs: \['large', 'small'\]"):
        EventFiles(tmp_path / "runs").read()
    one = EventFiles(tmp_path / "runs" / "small" / "events.out.tfevents.1.host").read()
    assert one.series("loss_nats").value.tolist() == [3.0, 2.5]


def test_where_a_trainer_logs_its_own_step_that_one_counts():
    """transformers and Lightning call the tracker every few steps; its `_step` counts the calls."""
    history = [
        {"_step": call, "_timestamp": DAY_S + call, "train/global_step": 10 * (call + 1), "train/loss": 3.0 - call / 100}
        for call in range(5)
    ]
    project = Project({"a": {"created": DAY, "rows": history}})
    source = wandb_source(project)
    assert source.read().series("loss_nats").step.tolist() == [10, 20, 30, 40, 50]
    project.runs["a"]["rows"] += [{"_step": 5, "_timestamp": DAY_S + 9, "train/global_step": 60, "train/loss": 2.9}]
    assert source.read().series("loss_nats").step.tolist() == [10, 20, 30, 40, 50, 60]
    assert BucketedRuns(wandb_source(project)).read().series("loss_nats").step.tolist() == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("step", ["inf", "nan", "later"])
def test_a_step_that_is_no_number_is_named_with_its_row(tmp_path, step):
    path = tmp_path / "run.csv"
    path.write_text(f"step,loss\n1,3.5\n{step},3.25\n")
    with pytest.raises(SourceError, match=f"row 2 has step '{step}'"):
        connect(f"csv:{path}", Lab(tmp_path)).read()


def rewound(tmp_path, steps):
    path = tmp_path / "run.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{3 - row / 10_000}\n" for row, step in enumerate(steps)))
    return connect(f"csv:{path}", Lab(tmp_path)).read()


def test_steps_trained_twice_count_once_and_are_no_alarm(tmp_path):
    record = rewound(tmp_path, [*range(500), *range(450, 700)])
    assert record.series("loss_nats").step.tolist() == list(range(700))
    assert record.series("loss_nats").value[450] == 3 - 500 / 10_000
    assert [segment.first_step for segment in record.info.segments] == [0, 450]
    report = judge(record)
    assert not report.alarms
    assert "restarts without a change" in next(finding.evidence for finding in report.findings if finding.rule == "segments")


def test_a_restart_from_zero_hides_what_was_undone_and_is_named(tmp_path):
    record = rewound(tmp_path, [*range(500), *range(1, 60)])
    assert record.series("loss_nats").step.tolist() == [0, *range(1, 60)]
    report = judge(record)
    assert report.state == "off_course"
    assert report.diagnosis[0].cause == "restarted from scratch: checkpoint not found"
    caught_up = rewound(tmp_path, [*range(500), *range(1, 700)])
    assert judge(caught_up).state != "off_course"


def test_a_file_in_no_order_is_sorted_not_cut(tmp_path):
    steps = np.random.default_rng(0).permutation(300).tolist()
    assert rewound(tmp_path, steps).series("loss_nats").step.tolist() == list(range(300))
