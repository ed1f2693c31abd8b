"""The first two stages: sources to raw parts, raw parts to partitions by id. From here on the order of the input is gone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.config import digest_of, load_json, plain
from forerun.base.errors import DataError
from forerun.curate.engine.tasks import Task
from forerun.curate.ingest.read import ReadSummary, grouped
from forerun.curate.ingest.records import IngestConfig, require_same_schema
from forerun.curate.ingest.source import InputFile, SourceFile, content_digest, listed
from forerun.curate.steps import StepFolder, StepKey
from forerun.curate.text.attributes import part_name, write_part
from forerun.curate.text.normalize import NormalizeConfig
from forerun.curate.text.stages import SET_ASIDE, id_ranges
from forerun.curate.text.walk import SHARED_CODE, STAGES, Attribute, Walk, counted, text_bytes
from forerun.loader.manifest import Stated

INGEST_CODE = tuple(
    f"forerun.curate.ingest.{name}" for name in ("html", "lists", "read", "records", "source", "streams", "tables", "trees", "web")
)
NAMED_EXAMPLES = 20  # assumed: names a report lists; the files hold all


@dataclass(frozen=True)
class RawGroup:
    """Files read together, and where their documents lie."""

    source: SourceFile
    files: tuple[InputFile, ...]
    key: StepKey
    folder: Path

    @property
    def summary(self) -> ReadSummary | None:
        """None while it is not read, or was set aside."""
        path = self.folder / "summary.json"
        return load_json(path, ReadSummary) if path.exists() else None


@dataclass(frozen=True)
class RawSource:
    """One source, read."""

    source: SourceFile
    groups: tuple[RawGroup, ...]
    num_documents_in: int
    documents_digest: str
    """The same for the same documents in any order and in any files."""


def ingest(walk: Walk, sources: Sequence[SourceFile], config: IngestConfig) -> list[RawSource]:
    """Read every file that was not read before.

    Raises: DataError or SourceError when a source is unusable, or changes its schema from file to file.
    """
    groups = [group for source in sources for group in _groups(walk, source, config)]
    tasks = [
        Task(
            name=group.key.identity[:16],
            call=f"{STAGES}:ingest_group",
            arguments={
                "files": [plain(file) for file in group.files],
                "source": plain(group.source),
                "config": plain(config),
                "out": str(group.folder),
            },
            num_bytes=sum(file.num_bytes for file in group.files),
        )
        for group in groups
        if group.summary is None
    ]
    aside = walk.run("ingest", tasks, walk.root / "ingest")
    raw = [_raw_source(source, [group for group in groups if group.source is source]) for source in sources]
    key = StepKey(
        name="ingest",
        version=1,
        parameters=config,
        inputs=tuple(digest_of([plain(_without_place(one.source)), one.documents_digest]) for one in raw),
        modules=INGEST_CODE,
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        folder.prepare()
        read = [(group, summary) for group in groups if (summary := group.summary) is not None]
        problems = pa.concat_tables([pq.read_table(group.folder / "problems.parquet") for group, _ in read])
        write_part(
            problems.sort_by([("source", "ascending"), ("reason", "ascending"), ("place", "ascending")]), folder.path / "problems.parquet"
        )
        num_documents = sum(summary.num_documents for _, summary in read)
        outcome = folder.finish(
            ["problems.parquet"],
            documents_in=num_documents + problems.num_rows,
            documents_out=num_documents,
            dropped=counted(problems["reason"]),
            report=_ingest_report(read, groups, aside),
        )
    walk.taken(key, outcome)
    return raw


def _groups(walk: Walk, source: SourceFile, config: IngestConfig) -> list[RawGroup]:
    found = []
    files_in, left_out = listed(source)
    if left_out and not walk.quiet:
        named = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        print(f"{source.name}: {len(left_out)} files are not read, their names do not say how: {named}", file=sys.stderr)
    for files in grouped(files_in):
        key = StepKey(
            name="ingest",
            version=1,
            parameters=config,
            inputs=(digest_of(plain(_without_place(source))), *(f"{file.name} {file.format} {content_digest(file)}" for file in files)),
            modules=INGEST_CODE,
        )
        found.append(RawGroup(source, files, key, StepFolder(walk.root, key).path))
    return found


def _without_place(source: SourceFile) -> SourceFile:
    """What of a source decides its documents: not where it lies, how its version is called, nor what else is stated about it."""
    return replace(source, path="", revision="", format="by_name", **vars(Stated()))


def _raw_source(source: SourceFile, groups: Sequence[RawGroup]) -> RawSource:
    total, digest = 0, 0
    known: dict[str, tuple[str, ...]] = {}
    for group in groups:
        summary = group.summary
        if summary is None:
            continue
        total += summary.num_documents + summary.num_problems
        digest += int(summary.documents_digest, 16)
        for name, kinds in summary.schema.items():
            require_same_schema(name, set(known.setdefault(name, kinds)), set(kinds), f"{source.name}: {group.files[0].name}")
    for name, stated in (("id_field", source.id_field), ("licence_field", source.licence_field)):
        if stated and known.get(stated) == ("missing",):
            raise DataError(f"no document of source {source.name!r} has its {name} {stated!r}", hint=f"correct {name}, or leave it out")
    return RawSource(source, tuple(groups), total, f"{digest % (1 << 128):032x}")


def _ingest_report(read: Sequence[tuple[RawGroup, ReadSummary]], groups: Sequence[RawGroup], aside: dict[str, str]) -> dict[str, Any]:
    report: dict[str, Any] = {"num_bytes": sum(summary.num_bytes for _, summary in read)}
    repaired = sum(summary.num_repaired for _, summary in read)
    broken = [sentence for _, summary in read for sentence in summary.broken]
    if repaired:
        report["repaired"] = repaired
    if broken:
        report["broken_files"] = broken[:NAMED_EXAMPLES]
    if aside:
        names = {group.key.identity[:16]: f"{group.source.name}: {', '.join(file.name for file in group.files[:3])}" for group in groups}
        report["set_aside"] = {names[name]: reason for name, reason in aside.items()}
    return report


def normalize_step(walk: Walk, raw: Sequence[RawSource], config: NormalizeConfig) -> Attribute:
    """Every document by id, in partitions that are the same whatever the order and the files it came in."""
    key = StepKey(
        name="normalize",
        version=1,
        parameters=config,
        inputs=tuple(f"{one.source.name} {one.source.licence} {one.documents_digest}" for one in raw),
        modules=(*SHARED_CODE, "forerun.curate.text.normalize", "forerun.curate.text.gather"),
    )
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        path = folder.prepare()
        parts = [(group, part) for one in raw for group in one.groups for part in sorted(group.folder.glob("raw-*.parquet"))]
        documents_in = sum(pq.read_metadata(part).num_rows for _, part in parts)
        if not documents_in:
            reasons = ", ".join(f"{reason} {count}" for reason, count in walk.steps[-1].dropped.items())
            raise DataError(
                f"no document is left of {sum(one.num_documents_in for one in raw)} read", hint=f"dropped: {reasons or 'none read'}"
            )
        names = {f"{group.key.identity[:16]}-{part.stem[4:]}": part for group, part in parts}
        aside = _make_runs(walk, path, names, config)
        total = sum(summary.num_bytes for one in raw for group in one.groups if (summary := group.summary) is not None)
        num_partitions = max(1, -(-total // config.partition_bytes))
        _make_partitions(walk, path, sorted(names), num_partitions)
        dropped = pa.concat_tables([pq.read_table(path / "dropped" / f"{name}.parquet") for name in sorted(names)])
        write_part(dropped.sort_by([(name, "ascending") for name in dropped.column_names]), path / "dropped.parquet")
        report: dict[str, Any] = {"partitions": num_partitions, **_repeated_names(path, num_partitions)}
        if aside:
            report["set_aside"] = {str(names[name].relative_to(walk.root)): reason for name, reason in aside.items()}
        outcome = folder.finish(
            [*(part_name(index) for index in range(num_partitions)), "dropped.parquet"],
            documents_in=documents_in,
            documents_out=sum(pq.read_metadata(path / part_name(index)).num_rows for index in range(num_partitions)),
            dropped=counted(dropped["reason"]),
            report=report,
        )
        folder.clear("runs")
        folder.clear("dropped")
    walk.taken(key, outcome)
    return Attribute(folder, outcome)


def _make_runs(walk: Walk, path: Path, names: dict[str, Path], config: NormalizeConfig) -> dict[str, str]:
    tasks = [
        Task(
            name=name,
            call=f"{STAGES}:normalize_raw",
            arguments={
                "raw": str(part),
                "run": str(path / "runs" / f"{name}.parquet"),
                "dropped": str(path / "dropped" / f"{name}.parquet"),
                "config": plain(config),
            },
            num_bytes=text_bytes(part),
        )
        for name, part in names.items()
        if not (path / "runs" / f"{name}.parquet").exists()
    ]
    aside = walk.run("normalize", tasks, path)
    for name in aside:
        documents = pq.read_table(names[name], columns=["source", "source_id"])
        nothing = pa.nulls(documents.num_rows, pa.string())
        gone = pa.table({"id": nothing, **{c: documents[c] for c in ("source", "source_id")}, "reason": [SET_ASIDE] * documents.num_rows})
        write_part(gone, path / "dropped" / f"{name}.parquet")
    return aside


def _make_partitions(walk: Walk, path: Path, names: Sequence[str], num_partitions: int) -> None:
    runs = [str(run) for name in names if (run := path / "runs" / f"{name}.parquet").exists()]
    total = sum(text_bytes(Path(run)) for run in runs)
    tasks = [
        Task(
            name=f"part-{index:05d}",
            call=f"{STAGES}:gather_range",
            arguments={"runs": runs, "low": low, "high": high, "out": str(path / part_name(index))},
            num_bytes=total // num_partitions,
        )
        for index, (low, high) in enumerate(id_ranges(num_partitions))
        if not (path / part_name(index)).exists()
    ]
    aside = walk.run("partition by id", tasks, path, light=True)
    if aside:
        raise DataError(
            f"partition {min(aside)} {aside[min(aside)]}", hint="lower normalize.partition_bytes, or use a machine with more memory"
        )


def _repeated_names(path: Path, num_partitions: int) -> dict[str, Any]:
    """Names that a source gives to documents with different texts: nothing is dropped for it, but it is said."""
    columns = ["source", "source_id", "id"]
    table = pa.concat_tables([pq.read_table(path / part_name(index), columns=columns) for index in range(num_partitions)])
    table = table.filter(pc.not_equal(table["source_id"], ""))
    texts = table.group_by(["source", "source_id"]).aggregate([("id", "count_distinct")])
    several = texts.filter(pc.greater(texts["id_count_distinct"], 1)).sort_by([("source", "ascending"), ("source_id", "ascending")])
    if not several.num_rows:
        return {}
    examples = several.slice(0, NAMED_EXAMPLES)
    names = [f"{source}: {name}" for source, name in zip(examples["source"].to_pylist(), examples["source_id"].to_pylist())]
    return {"names_with_several_texts": several.num_rows, "examples": names}
