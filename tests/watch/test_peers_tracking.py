"""The real SDKs against our readers, writers and the ingest endpoint.

They are never dependencies: PEERS_PYTHON names an interpreter that has wandb, tensorboard, tensorboardX, mlflow-skinny, sqlalchemy,
alembic and trackio, for example one made with `python -m venv`.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from record_ingest import serving

import forerun
from forerun.base.lab import Lab
from forerun.record.export import export
from forerun.record.journal import Journal
from forerun.record.reader import open_run
from forerun.record.run import start_run
from forerun.watch.sources.all import connect
from forerun.watch.sources.wandb import WandbRuns, parsed

pytestmark = pytest.mark.peers


def peer(script, tmp_path, **environment):
    """Run a script with the peers' interpreter; returns the JSON of its last line."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    settings = {**os.environ, "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path), **environment}
    done = subprocess.run([python, "-c", script], env=settings, capture_output=True, text=True, timeout=180, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    last = done.stdout.strip().splitlines()[-1:]
    return json.loads(last[0]) if last and "json" in script else None


WANDB_LOG = """
import math, wandb
run = wandb.init(project="p", entity="lab", id="sdk-run", resume="allow", config={"lr": 1}, settings=wandb.Settings(x_disable_meta=True))
for i in range(300):
    wandb.log({"train/cross_entropy_loss": 3 + math.sin(i), "m1": float("nan") if i == 5 else i, "nested": {"a": i}, "text": "x"})
wandb.finish()
"""

WANDB_READ = """
import json, wandb
run = wandb.Api(timeout=30).run("lab/p/sdk-run")
sampled = run.history(keys=["m1", "train/cross_entropy_loss"], samples=100, pandas=False)
print(json.dumps({"state": run.state, "last": run.lastHistoryStep, "sampled": len(sampled), "scan": len(list(run.scan_history(keys=["m1"], page_size=100)))}))
"""


def test_the_wandb_sdk_logs_to_the_endpoint_resumes_and_reads_back(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    lab = Lab(tmp_path)
    with serving(lab) as url:
        where = {"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40}
        peer(WANDB_LOG, tmp_path, **where)
        assert peer(WANDB_READ, tmp_path, **where) == {"state": "finished", "last": 299, "sampled": 100, "scan": 300}
        peer(WANDB_LOG, tmp_path, **where)
        record = WandbRuns(*parsed("lab/p/sdk-run"), base=url).read()
        assert record.series("loss_nats").step.tolist() == list(range(600))
    own = open_run(lab.run("sdk-run"))
    np.testing.assert_allclose(own.series("loss_nats").value[:300], 3 + np.sin(np.arange(300)))
    assert np.isnan(own.series("m1").value[5])
    assert own.series("nested.a").last == 299
    assert [event["kind"] for event in own.events()] == ["finished", "finished"]


@pytest.mark.parametrize("package", ["torch.utils.tensorboard", "tensorboardX"])
def test_event_files_of_other_writers_are_read(tmp_path, package):
    if package.startswith("torch"):
        script = """
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
writer = EventFileWriter("logs")
for step in range(200):
    writer.add_event(Event(step=step, wall_time=1.0 + step, summary=Summary(value=[Summary.Value(tag="train/loss_x", simple_value=step / 2)])))
writer.close()
"""
    else:
        script = """
from tensorboardX import SummaryWriter
writer = SummaryWriter("logs")
for step in range(200):
    writer.add_scalar("train/loss_x", step / 2, step)
writer.close()
"""
    peer(script, tmp_path)
    series = connect(f"tensorboard:{tmp_path / 'logs'}", Lab(tmp_path)).read().series("train/loss_x")
    assert series.value.tolist() == [step / 2 for step in range(200)]


def test_tensorboard_reads_our_event_files(tmp_path):
    lab = Lab(tmp_path)
    start_run(lab.run("r"), num_steps=10)
    with Journal(lab.run("r")) as journal:
        for step in range(10):
            journal.log(step, {"loss_nats": step / 2})
    export(open_run(lab.run("r")), "tensorboard", tmp_path / "out")
    script = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator("out", size_guidance={"scalars": 0})
reader.Reload()
print(json.dumps([(event.step, event.value) for event in reader.Scalars("loss_nats")]))
"""
    assert peer(script, tmp_path) == [[step, step / 2] for step in range(10)]


def test_mlflow_s_sqlite_store_is_read(tmp_path):
    script = """
import json, mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run() as run:
    for step in range(30):
        mlflow.log_metrics({"loss": 3 - step / 100, "odd": float("nan")}, step=step)
print(json.dumps(run.info.run_id))
"""
    run_id = peer(script, tmp_path)
    record = connect(f"mlflow:{tmp_path / 'mlflow.db'}#{run_id}", Lab(tmp_path)).read()
    np.testing.assert_allclose(record.series("loss_nats").value, 3 - np.arange(30) / 100)
    assert np.isnan(record.series("odd").value).all()


def test_trackio_s_file_is_read(tmp_path):
    script = """
import trackio
trackio.init(project="p", name="one", embed=False)
for step in range(30):
    trackio.log({"loss": 3 - step / 100, "odd": float("inf")}, step=step)
trackio.finish()
"""
    peer(script, tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    (path,) = (tmp_path / "trackio").glob("p*.db")
    record = connect(f"trackio:{path}#one", Lab(tmp_path)).read()
    np.testing.assert_allclose(record.series("loss_nats").value, 3 - np.arange(30) / 100)
    assert np.isinf(record.series("odd").value).all()


MIRRORED = f"""
import sys; sys.path.insert(0, {os.path.dirname(os.path.dirname(forerun.__file__))!r})
import json, pathlib
from forerun.record.journal import Journal
from forerun.record.mirror import Mirror
from forerun.record.run import start_run
run = pathlib.Path("lab/r")
start_run(run, num_steps=5)
with Journal(run, mirror=Mirror(KIND, project="p", run_id="r", folder=pathlib.Path("."))) as journal:
    for step in range(5):
        journal.log(step, {{"loss_nats": 1.0 * step, "grad_norm": float("nan")}})
"""
"""Needs both packages in one interpreter: the peers' one reads our source tree."""


def test_an_offline_mirror_synced_later_is_the_run(tmp_path):
    """Offline the SDK keeps its own file; `wandb sync` sends it on, here to our endpoint."""
    peer(MIRRORED.replace("KIND", '"wandb"').replace("import json, pathlib", "import pathlib"), tmp_path, WANDB_MODE="offline")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    other = Lab(tmp_path / "other")
    with serving(other) as url:
        sync = f"from wandb.cli.cli import cli; cli(['sync', {str(folder)!r}])"
        peer(sync, tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY="0" * 40)
    synced, own = open_run(other.run("r")), open_run(tmp_path / "lab" / "r")
    for record in (synced, own):
        assert record.series("loss_nats").step.tolist() == [0, 1, 2, 3, 4]
        assert record.series("loss_nats").value.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert np.isnan(record.series("grad_norm").value).all()


def test_a_journal_mirrors_to_trackio_and_the_watch_reads_it_back(tmp_path):
    script = MIRRORED.replace("KIND", '"trackio"').replace("import json, pathlib", "import pathlib")
    peer(script, tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    (path,) = (tmp_path / "trackio").glob("p*.db")
    series = connect(f"trackio:{path}#r", Lab(tmp_path)).read().series("loss_nats")
    assert dict(zip(series.step.tolist(), series.value.tolist())) == {step: float(step) for step in range(5)}
