"""Everything a run leaves to others in one folder: weights, model card, data order, metrics, ledger with its verifier, metadata."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forerun.base.config import canonical_json, file_digest, load_json
from forerun.base.files import storage_errors, write_atomic, write_json
from forerun.base.lab import Lab
from forerun.base.units import count, flops
from forerun.loader.batches import Batches
from forerun.loader.store import open_store
from forerun.model.count import num_active_params, num_params, train_flops
from forerun.publish.bill import Bill, bill
from forerun.publish.metadata import write_metadata
from forerun.publish.weights import Weights, load_weights, optimizer_arrays, save_arrays, write_weights
from forerun.record.reader import open_run
from forerun.record.series import RunRecord
from forerun.registry import verifier
from forerun.train.config import RunConfig


def release(
    lab: Lab, run_id: str, out: Path, *, with_optimizer: bool = False, device: str = "", price_per_device_hour: float = 0.0
) -> Path:
    """Write the bundle of a run.

    Args:
        device, price_per_device_hour: for energy and cost in the card; see `publish/bill.py`.
    Raises: CheckpointError without a good checkpoint, RecordError without a record.
    """
    record = open_run(lab.run(run_id))
    config = load_json(lab.run(run_id) / "config.json", RunConfig)
    weights = load_weights(lab, run_id, config)
    write_weights(out, weights.params, weights.router_bias, config.model)
    if with_optimizer:
        save_arrays(out / "optimizer.safetensors", optimizer_arrays(weights.optimizer))
    _write_metrics(out / "metrics.parquet", record)
    write_json(out / "run_config.json", config)
    write_json(out / "data_order.json", data_order(lab, config))
    for source, name in ((lab.manifests / f"{config.data.manifest}.json", "data_manifest.json"), (lab.ledger, "ledger/registry.jsonl")):
        if source.exists():
            write_atomic(out / name, source.read_bytes())
    head = lab.ledger.with_name("head.json")
    if head.exists():
        write_atomic(out / "ledger" / "head.json", head.read_bytes())
    write_atomic(out / "ledger" / "verify.py", Path(verifier.__file__).read_bytes())
    tokenizer = lab.store / config.data.manifest / "tokenizer.json"
    if tokenizer.exists():
        write_atomic(out / "tokenizer.json", tokenizer.read_bytes())
    write_atomic(
        out / "README.md",
        card(record, config, weights, bill(config, record, device=device, price_per_device_hour=price_per_device_hour)).encode(),
    )
    write_metadata(
        out, name=run_id, description=f"{count(num_params(config.model))} parameter mixture-of-experts model trained with forerun"
    )
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    write_atomic(out / "SHA256SUMS", "".join(f"{file_digest(path)}  {path.relative_to(out)}\n" for path in files).encode())
    return out


def data_order(lab: Lab, config: RunConfig) -> dict[str, Any]:
    """What decides which tokens each step read, with digests of some batches so that a rebuilt order can be checked."""
    train = config.train
    batches = Batches(
        open_store(lab, config.data.manifest), config.data, num_steps=train.num_steps, batch_size=train.batch_size, seq_len=train.seq_len
    )
    steps = sorted({0, train.num_steps // 2, train.num_steps - 1})
    digests = {str(step): hashlib.sha256(np.ascontiguousarray(batches.batch(step).tokens, "<i4").tobytes()).hexdigest() for step in steps}
    return {
        "schema": 1,
        "data": json.loads(canonical_json(config.data)),
        "num_steps": train.num_steps,
        "batch_size": train.batch_size,
        "seq_len": train.seq_len,
        "token_digests": digests,
        "documents_of_a_step": "forerun data at-step STEP --lab LAB",
    }


def card(record: RunRecord, config: RunConfig, weights: Weights, costs: Bill) -> str:
    """The model card, `README.md`."""
    info = record.info
    promise = (
        f"promise `{info.registration_id}` of experiment `{info.experiment}`"
        if info.registration_id
        else "**no promise: an unregistered run**"
    )
    spent = train_flops(config.model, config.train.seq_len, weights.step * config.train.batch_tokens)
    evals = [(name, record.series(name).last) for name in record.metrics() if name.startswith("eval")]
    rows = [
        ("steps", f"{weights.step} of {config.train.num_steps}"),
        ("parameters", f"{count(num_params(config.model))}, {count(num_active_params(config.model))} active"),
        ("tokens", count(weights.step * config.train.batch_tokens)),
        ("compute", flops(spent)),
        *costs.rows(),
        ("data manifest", f"`{config.data.manifest}`"),
        ("ledger", f"`ledger/registry.jsonl`; check it with `python ledger/verify.py .`; {promise}"),
    ]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "pipeline_tag: text-generation",
            "---",
            f"# {info.run_id}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
            "",
            "## Evaluation",
            "",
            "| metric | value |",
            "|---|---|",
            *(f"| `{name}` | {value:.4f} |" for name, value in evals if math.isfinite(value)),
            "",
            "## Use",
            "",
            "```python",
            "from transformers import AutoModelForCausalLM",
            'model = AutoModelForCausalLM.from_pretrained("PATH", trust_remote_code=True)',
            "```",
            "",
        ]
    )


def _write_metrics(path: Path, record: RunRecord) -> None:
    names = record.metrics()
    series = [record.series(name) for name in names]
    table = pa.table(
        {
            "metric": pa.array([name for name, one in zip(names, series) for _ in range(len(one))], pa.string()),
            "step": np.concatenate([one.step for one in series]) if series else np.empty(0, np.int64),
            "value": np.concatenate([one.value for one in series]) if series else np.empty(0),
        }
    )
    with storage_errors(path):
        pq.write_table(table, path, compression="zstd")
