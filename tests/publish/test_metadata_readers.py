"""The metadata of a release as its own readers see it: mlcroissant reads the rows, rocrate the files. They live in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forerun.publish.metadata import CROISSANT, write_metadata

PEER = os.environ.get("FORERUN_METADATA_PYTHON", "")  # python with mlcroissant, pyarrow and rocrate

READERS = """
import json, logging, sys
notes = []
class Keep(logging.Handler):
    def emit(self, record): notes.append(record.getMessage())
logging.getLogger("absl").addHandler(Keep())
import mlcroissant
data = mlcroissant.Dataset(sys.argv[1] + "/croissant.json")
rows = [dict(row) for row in data.records("metrics")]
from rocrate.rocrate import ROCrate
crate = ROCrate(sys.argv[1])
print(json.dumps({"rows": [[row["metrics/step"], row["metrics/value"]] for row in rows], "notes": notes,
                  "files": sorted(entity.id for entity in crate.data_entities), "name": crate.name}))
"""


def bundle(folder: Path) -> Path:
    folder.mkdir()
    pq.write_table(pa.table({"metric": ["loss_nats"] * 2, "step": [1, 2], "value": [3.5, 3.25]}), folder / "metrics.parquet")
    (folder / "README.md").write_text("# r")
    write_metadata(folder, name="r", description="two rows")
    return folder


def test_every_file_is_listed_with_size_and_digest(tmp_path):
    listed = json.loads((bundle(tmp_path / "r") / CROISSANT).read_bytes())["distribution"]
    assert [(part["@id"], len(part["sha256"])) for part in listed] == [("README.md", 64), ("metrics.parquet", 64)]


@pytest.mark.peers
def test_both_readers_accept_the_metadata_without_a_warning_and_find_rows_and_files(tmp_path):
    if not Path(PEER).is_file():
        pytest.skip("no interpreter with the peers is named; see docs/reference/ledger.md")
    done = subprocess.run([PEER, "-c", READERS, str(bundle(tmp_path / "r"))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["notes"] == []
    assert found["rows"] == [[1, 3.5], [2, 3.25]] and found["name"] == "r"
    assert found["files"] == ["README.md", "metrics.parquet"]
