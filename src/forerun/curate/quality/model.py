"""The whole path in one call: types, teacher, student, calibration, report; then scores for any document."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from forerun.base.errors import ConfigError
from forerun.curate.quality.calibrate import Calibration, buckets, calibrate, spread
from forerun.curate.quality.heuristic import NAME as HEURISTIC
from forerun.curate.quality.heuristic import heuristic_labels
from forerun.curate.quality.report import quality_report
from forerun.curate.quality.statistics import TYPES, content_types, text_statistics
from forerun.curate.quality.student import Student, fit
from forerun.curate.quality.teacher import EndpointConfig, endpoint_labels

LEAST_LABELS = 20  # assumed: a student of fewer labels is noise
MIDDLE = 3.0  # the grade that says nothing


@dataclass(frozen=True, kw_only=True)
class QualityConfig:
    """Who labels, how much, and with which seed documents are drawn."""

    num_labels: int = 4000
    """Documents the teacher labels; all when there are fewer."""
    held_out_fraction: float = 0.2
    """Share of the labels kept from the student, for calibration and report."""
    seed: int = 0
    """Of the draw."""
    teacher: EndpointConfig | None = None
    """An OpenAI-compatible endpoint; none uses the heuristic teacher, and the manifest says so."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out_fraction < 1:
            raise ConfigError(
                f"quality.held_out_fraction must lie in 0..1, both excluded, got {self.held_out_fraction}", hint="0.2 is usual"
            )
        if self.num_labels < LEAST_LABELS:
            raise ConfigError(f"quality.num_labels must be at least {LEAST_LABELS}, got {self.num_labels}", hint="4000 is usual")


@dataclass(frozen=True, eq=False)
class Scores:
    """Of each document."""

    score: np.ndarray
    """float32 in 0..1, calibrated within its type."""
    bucket: np.ndarray
    """int8, Q0-Q4."""
    content_type: np.ndarray
    """int8, index into `TYPES`."""

    @property
    def type_names(self) -> list[str]:
        """Content types as words."""
        return [TYPES[index] for index in self.content_type.tolist()]


@dataclass(frozen=True, eq=False)
class QualityModel:
    """Student and calibration; copy the bytes, never refit to reproduce."""

    student: Student
    calibration: Calibration
    report: dict[str, Any] = field(default_factory=dict)

    def score(self, texts: pa.Array | pa.ChunkedArray, vectors: np.ndarray) -> Scores:
        """Calibrated scores of documents with their embedding vectors."""
        statistics = text_statistics(texts)
        types = content_types(statistics)
        score = self.calibration.apply(self.student.predict(texts, vectors, statistics)[:, 0], types)
        return Scores(score, buckets(score), types)


def fit_quality(
    ids: list[str], texts: pa.Array | pa.ChunkedArray, vectors: np.ndarray, groups: np.ndarray, config: QualityConfig, *, labels_file: Path
) -> QualityModel:
    """Label a sample, distil and calibrate.

    Args:
        groups: domain or source index of each document; only the report reads it.
        labels_file: where an endpoint's answers are kept, so that a killed run asks for none twice.
    Returns: the model; with fewer than 20 documents one that puts every document in the middle bucket, and says so.
    """
    statistics = text_statistics(texts)
    types = content_types(statistics)
    drawn = np.sort(np.random.default_rng(config.seed).permutation(len(ids))[: config.num_labels])
    chosen = texts.take(pa.array(drawn))
    few = len(drawn) < LEAST_LABELS
    if few:
        labels, teacher = (
            np.full(len(drawn), MIDDLE),
            f"none: {len(drawn)} documents are too few to learn from, all are in the middle bucket",
        )
    elif config.teacher is None:
        labels, teacher = heuristic_labels(statistics[drawn], types[drawn]), HEURISTIC
    else:
        kinds = [TYPES[index] for index in types[drawn].tolist()]
        labels = endpoint_labels([ids[index] for index in drawn.tolist()], chosen.to_pylist(), kinds, config.teacher, labels_file)
        teacher = f"{config.teacher.model} at an OpenAI-compatible endpoint"
    levels, how = spread(labels, types[drawn])
    held = np.zeros(len(drawn), bool)
    held[np.random.default_rng(config.seed + 1).permutation(len(drawn))[: max(1, int(config.held_out_fraction * len(drawn)))]] = True
    shown = ~held | few
    student = fit(chosen.filter(pa.array(shown)), vectors[drawn[shown]], statistics[drawn[shown]], ((labels[shown] - 1) / 4)[:, None])
    raw = student.predict(chosen, vectors[drawn], statistics[drawn])[:, 0]
    calibration = calibrate(raw[held], levels[held], types[drawn[held]])
    model = QualityModel(student, calibration)
    scores = model.score(texts, vectors)
    report = quality_report(
        score=scores.score[drawn[held]],
        labels=labels[held],
        levels=levels[held],
        types=types[drawn[held]],
        bucket=scores.bucket,
        all_types=types,
        domains=groups,
    )
    report |= {"teacher": teacher, "labels": how, "num_labels": len(drawn), "num_held_out_labels": int(held.sum())}
    report["student_digest"] = student.digest
    return QualityModel(student, calibration, report)
