"""From an experiment folder to a promise in the ledger: check, freeze, chain. Takes well under a second."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.base.config import decode, digest_of, file_digest
from forerun.base.errors import RegistryError
from forerun.base.files import write_json
from forerun.base.lab import Lab
from forerun.record.run import load_run
from forerun.registry import ledger
from forerun.registry.experiment import Experiment, load

ANALYSIS_SUFFIXES = (".py", ".sql", ".ipynb", ".R", ".jl", ".sh")  # assumed: what people write analyses in


@dataclass(frozen=True, kw_only=True)
class Registration:
    """One promise as the ledger holds it."""

    id: str
    """First 16 hex digits of its ledger line's digest."""
    experiment: str
    """Name of the experiment's folder."""
    time: str
    body: dict[str, Any]
    change: str = ""
    """What the amendment says that allows the config asked for; empty for the config registered first."""

    @property
    def config_digest(self) -> str:
        """Digest of the frozen config the promise is about."""
        return self.body["config_digest"]

    @property
    def promise(self) -> Experiment:
        """What was promised."""
        return decode(self.body["promise"], Experiment, where=f"ledger: {self.experiment}")


def register(lab: Lab, folder: Path, config: dict[str, Any], *, code: Path | None = None) -> Registration:
    """Check an experiment, freeze its config into `config.json`, and chain the promise.

    Args:
        config: the run config as plain data; its digest is what the launch gate compares.
        code: root of the analysis code, for its commit and lock file; None leaves them out.
    Raises: RegistryError for a broken rule, or when this config is promised already under another experiment.
    """
    experiment = load(folder)
    config_digest = digest_of(config)
    for known in registrations(lab):
        if known.config_digest == config_digest and known.experiment == folder.name:
            return known
        if known.config_digest == config_digest:
            raise RegistryError(
                f"this config is already promised by experiment {known.experiment!r}", hint="change the config, or amend that experiment"
            )
        if known.experiment == folder.name:
            raise RegistryError(
                f"experiment {folder.name!r} is registered with another config",
                hint="`forerun amend` declares a change; a new idea is a new experiment",
            )
    _check_domains(lab, experiment, config)
    forecast_digest = ""
    if experiment.prediction.forecast:
        path = lab.forecasts / experiment.prediction.forecast
        if not path.exists():
            raise RegistryError(f"prediction.forecast names {path}, which does not exist", hint="`forerun forecast` writes it")
        forecast_digest = file_digest(path)
    write_json(folder / "config.json", config)
    body: dict[str, Any] = {
        "experiment": folder.name,
        "promise": experiment,
        "config_digest": config_digest,
        "manifest": config.get("data", {}).get("manifest", ""),
        "forecast_digest": forecast_digest,
        "seeds": {"train": config.get("train", {}).get("seed", 0), "data": config.get("data", {}).get("seed", 0)},
        "experiment_digest": file_digest(folder / "experiment.toml"),
        "earlier_runs": earlier_runs(lab, config_digest),
        "analysis": analysis_of(folder),
        "judge_digest": judge_digest(),
        **(_code_state(code) if code else {}),
    }
    return _registration(ledger.append(lab, "promise", body))


def earlier_runs(lab: Lab, config_digest: str) -> list[str]:
    """Runs of this very config that the lab has already: whoever promises now may have seen how they ended."""
    found = (load_run(path.parent) for path in sorted(lab.runs.glob("*/run.json")))
    return [info.run_id for info in found if info.config_digest == config_digest]


def analysis_of(folder: Path) -> dict[str, str]:
    """Digest of every file of analysis code in an experiment's folder, by relative path; `config.py` is frozen as `config.json` instead."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in ANALYSIS_SUFFIXES and path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in found if path != folder / "config.py"}


def judge_digest() -> str:
    """Digest of the code that will judge: rules, verdict and the reading of records, as installed."""
    package = Path(__file__).parent.parent
    sources = sorted(path for part in ("registry", "record") for path in (package / part).glob("*.py"))
    return digest_of({path.relative_to(package).as_posix(): file_digest(path) for path in sources})


def registrations(lab: Lab) -> list[Registration]:
    """All promises, oldest first."""
    return [_registration(entry) for entry in ledger.read(lab) if entry.kind == "promise"]


def _check_domains(lab: Lab, experiment: Experiment, config: dict[str, Any]) -> None:
    """A metric of one held-out domain must be of a domain the data has; checked where the manifest is at hand."""
    path = lab.manifests / f"{config.get('data', {}).get('manifest', '')}.json"
    if not path.is_file():
        return
    held_out = [cell["name"] for cell in json.loads(path.read_bytes()).get("held_out", [])]
    rules = (experiment.success_rule(), *experiment.stop_rules(), *experiment.alarm_rules())
    for metric in (experiment.metric, *(metric for rule in rules for metric in rule.metrics)):
        prefix, _, rest = metric.partition("/")
        domain = rest.rpartition("/")[0]
        if prefix.startswith("eval") and domain and domain not in held_out:
            raise RegistryError(
                f"metric {metric!r} names the domain {domain!r}, which the data does not hold out", hint=f"domains: {', '.join(held_out)}"
            )


def _registration(entry: ledger.Entry) -> Registration:
    return Registration(id=entry.digest[:16], experiment=entry.body["experiment"], time=entry.time, body=entry.body)


def _code_state(code: Path) -> dict[str, str]:
    state = {}
    git = subprocess.run(["git", "-C", str(code), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if git.returncode == 0:
        state["commit"] = git.stdout.strip()
    lock = code / "requirements" / "runtime.txt"
    if lock.exists():
        state["lock_digest"] = file_digest(lock)
    return state
