"""When and from what a result was made."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def provenance() -> dict[str, object]:
    """Date, commit, versions and cores, for the head of a result file."""
    here = Path(__file__).parent
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit or "unknown",
        "python": platform.python_version(),
        "jax": version("jax"),
        "cores": os.cpu_count(),
    }
