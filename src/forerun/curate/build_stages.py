"""The stages of the second half over a work folder: each takes over what an earlier attempt left there, and leaves its own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from forerun.base.config import load_json, plain
from forerun.base.errors import DataError
from forerun.base.files import write_atomic
from forerun.curate.cluster.domains import ClusterConfig, DomainModel, find_domains, renamed
from forerun.curate.cluster.files import load_domains, save_domains
from forerun.curate.embed.encoders import EmbedConfig
from forerun.curate.embed.quantize import QuantizationError
from forerun.curate.embed.tfidf import fit_tfidf, word_profiles
from forerun.curate.engine.config import EngineConfig
from forerun.curate.engine.run import run_tasks
from forerun.curate.engine.tasks import Task
from forerun.curate.quality.files import load_quality, save_quality
from forerun.curate.quality.model import QualityConfig, QualityModel, fit_quality
from forerun.curate.quality.teacher import teacher_key
from forerun.curate.sample import each_text, sample_texts, vectors_of, with_vectors
from forerun.curate.store import StoreWriter
from forerun.curate.text.walk import text_bytes
from forerun.curate.tokenise import TokeniseConfig, train_tokenizer
from forerun.curate.tokenizer_file import read_tokenizer

TASKS = "forerun.curate.build_tasks"
PROFILE_DOCUMENTS = 4000  # assumed: documents the intruder test draws from


def embedded(partitions: Sequence[Path], config: EmbedConfig, work: Path, engine: EngineConfig, quiet: bool) -> QuantizationError:
    """Write int8 vectors of every partition; returns what int8 cost."""
    waiting = [index for index in range(len(partitions)) if not vector_file(work, index).exists()]
    fitted = work / "tfidf.npz" if config.encoder == "tfidf" else None
    if waiting and fitted is not None and not fitted.exists():
        fit_tfidf(sample_texts(partitions)["text"], num_dimensions=config.num_dimensions).save(fitted)
    tasks = [
        Task(
            name=f"vectors-{index:06d}",
            call=f"{TASKS}:embed_part",
            arguments={
                "partition": str(partitions[index]),
                "out": str(vector_file(work, index)),
                "lost": str(work / f"quantization-{index:06d}.json"),
                "fitted": str(fitted or ""),
                "config": plain(config),
            },
            num_bytes=text_bytes(partitions[index]),
        )
        for index in waiting
    ]
    run_all("embed", tasks, work, engine, quiet)
    errors = QuantizationError()
    for index in range(len(partitions)):
        errors += load_json(work / f"quantization-{index:06d}.json", QuantizationError)
    return errors


def spilled(
    partitions: Sequence[Path],
    writer: StoreWriter,
    tokenizer_engine: str,
    held_out_fraction: float,
    work: Path,
    engine: EngineConfig,
    quiet: bool,
) -> None:
    """Every partition tokenised, scored and spilled for the store."""
    tasks = [
        Task(
            name=f"store-{index:06d}",
            call=f"{TASKS}:store_part",
            arguments={
                "partition": str(path),
                "vectors": str(vector_file(work, index)),
                "run": str(writer.run_folder(index)),
                "models": str(work),
                "engine": tokenizer_engine,
                "vocab_size": writer.spec.vocab_size,
                "held_out_fraction": held_out_fraction,
            },
            num_bytes=text_bytes(path),
        )
        for index, path in enumerate(partitions)
        if not writer.run_folder(index).is_dir()
    ]
    run_all("tokenise and store", tasks, work, engine, quiet)


def run_all(label: str, tasks: Sequence[Task], work: Path, engine: EngineConfig, quiet: bool) -> None:
    """All tasks to their end. Raises: DataError when one kills its workers: every document needs its vector and its place."""
    aside = run_tasks(label, tasks, work / "running", engine, quiet=quiet) if tasks else {}
    if aside:
        raise DataError(f"{min(aside)} {aside[min(aside)]}", hint="lower normalize.partition_bytes, or use a machine with more memory")


def vector_file(work: Path, index: int) -> Path:
    """Where a partition's vectors lie."""
    return work / f"vectors-{index:06d}.npy"


def training_sample(partitions: Sequence[Path], work: Path) -> pa.Table:
    """The documents that models are trained on, with their vectors."""
    return with_vectors(sample_texts(partitions), [vector_file(work, index) for index in range(len(partitions))])


def domains_of(sample: pa.Table, config: ClusterConfig, work: Path, answers: Path) -> DomainModel:
    """The domain model, found or read.

    Args:
        answers: folder that keeps what a namer said, also for later builds.
    """
    path = work / "domains.npz"
    if not path.exists():
        profiles = word_profiles(sample["text"][:PROFILE_DOCUMENTS])
        vectors = vectors_of(sample)
        model = find_domains(vectors, each_text(sample), sample["source"].to_pylist(), config, profiles=profiles)
        if config.namer is not None:
            model = renamed(
                model, config.namer, vectors, lambda at: sample["text"][at].as_py(), answers=answers / "names.jsonl", seed=config.seed
            )
        save_domains(model, path)
    return load_domains(path)


def quality_of(sample: pa.Table, domains: DomainModel, config: QualityConfig, work: Path, labels: Path) -> QualityModel:
    """The quality model, learned or read.

    Args:
        labels: folder that keeps the answers of each teacher, also for later builds.
    """
    path = work / "quality.npz"
    if not path.exists():
        vectors = vectors_of(sample)
        groups, _ = domains.assign(vectors)
        model = fit_quality(
            sample["id"].to_pylist(), sample["text"], vectors, groups, config, labels_file=labels / f"{teacher_key(config.teacher)}.jsonl"
        )
        save_quality(model, path)
    return load_quality(path)


def tokenizer_of(sample: pa.Table, config: TokeniseConfig, work: Path) -> str:
    """The tokenizer as JSON, trained, taken or read."""
    path = work / "tokenizer.json"
    if not path.exists():
        given = config.tokenizer
        text = read_tokenizer(Path(given)) if given else train_tokenizer(each_text(sample), config)
        write_atomic(path, text.encode())
    return path.read_text(encoding="utf-8")
