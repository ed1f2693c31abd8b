"""Finding an experiment's folder and its config from what people type."""

from __future__ import annotations

import runpy
from pathlib import Path

from forerun.base.config import load_json
from forerun.base.errors import RegistryError
from forerun.base.lab import Lab
from forerun.registry.naming import named
from forerun.train.config import RunConfig


def folder_of(lab: Lab, experiment: str) -> Path:
    """An experiment by path, name, number or slug."""
    if (Path(experiment) / "experiment.toml").exists():
        return Path(experiment)
    return lab.experiments / named(experiment, [folder.name for folder in lab.experiments.glob("*")], where=f"in {lab.experiments}")


def config_of(folder: Path) -> RunConfig:
    """The experimenter's own `config.py` (or, without one, config.json). Raises: RegistryError when it does not define CONFIG."""
    path = folder / "config.py"
    if not path.exists():
        return load_json(folder / "config.json", RunConfig)
    config = runpy.run_path(str(path)).get("CONFIG")
    if not isinstance(config, RunConfig):
        raise RegistryError(f"{path} must define CONFIG as a RunConfig, got {type(config).__name__}", hint="`forerun new` shows the shape")
    return config
