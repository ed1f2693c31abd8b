"""The site as files: the same bytes for the same lab, readable from any file host or straight from disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from forerun.base.errors import ConfigError
from forerun.base.files import storage_errors
from forerun.base.lab import Lab
from forerun.dashboard.lab_files import Planner, read_lab
from forerun.dashboard.site import Site

MARK = "static/site.css"
"""A file every site of ours has: only such a folder, or an empty one, is ever replaced."""


def build_site(lab: Lab, out: Path, planner: Planner) -> None:
    """Write all pages of a lab into a folder, whole: an old site is replaced only when the new one is complete.

    Raises: CheckFailed when the ledger does not verify; ConfigError when the folder holds something else; StorageError when
    the disk refuses.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / MARK).exists() and not (out / "style.css").exists()):
        raise ConfigError(f"{out} exists and is not a site", hint="name another folder, or empty this one")
    site = Site(read_lab(lab, planner))
    beside = out.with_name(f".{out.name}.{os.getpid()}.part")
    with storage_errors(out):
        shutil.rmtree(beside, ignore_errors=True)
        try:
            for path, content in site.everything():
                place = beside / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            shutil.rmtree(out, ignore_errors=True)
            beside.rename(out)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
