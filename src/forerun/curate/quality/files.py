"""A fitted quality model as one file, checked against its digest when read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from forerun.base.config import digest_of
from forerun.base.errors import DataError
from forerun.curate.arrays import write_arrays
from forerun.curate.quality.calibrate import Calibration
from forerun.curate.quality.model import QualityModel
from forerun.curate.quality.student import Student


def save_quality(model: QualityModel, path: Path) -> None:
    """Write the model whole or not at all."""
    student = model.student
    facts = {"cuts": model.calibration.cuts, "report": model.report, "digest": _digest(student, model.calibration)}
    write_arrays(
        path,
        dense=student.dense,
        hashed=student.hashed,
        centre=student.centre,
        spread=student.spread,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
    )


def load_quality(path: Path) -> QualityModel:
    """Read what `save_quality` wrote. Raises: DataError when weights or cuts are not those the digest names."""
    with np.load(path) as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        student = Student(arrays["dense"], arrays["hashed"], arrays["centre"], arrays["spread"])
    calibration = Calibration({name: tuple(values) for name, values in facts["cuts"].items()})
    if _digest(student, calibration) != facts["digest"]:
        raise DataError(f"{path} was changed: its weights or cuts do not match their digest", hint="delete it and run again")
    return QualityModel(student, calibration, facts["report"])


def _digest(student: Student, calibration: Calibration) -> str:
    return digest_of([student.digest, calibration.cuts])
