"""One walk over the text stages: for each its identity, the tasks whose parts are missing, and counts read from the finished parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forerun.base.errors import DataError
from forerun.curate.engine.config import EngineConfig
from forerun.curate.engine.run import run_tasks
from forerun.curate.engine.tasks import Task
from forerun.curate.steps import Outcome, StepFolder, StepKey
from forerun.curate.text.attributes import part_name
from forerun.curate.text.stages import set_aside_part
from forerun.loader.manifest import Step

STAGES = "forerun.curate.text.stages"
LIGHT = 8  # measured: sorting, joining and copying parts is 4-40 times as fast per byte as hashing or scanning them
SHARED_CODE = (STAGES, "forerun.curate.text.attributes", "forerun.curate.text.walk")
WORDS_CODE = tuple(f"forerun.curate.text.{name}" for name in ("words", "spelling", "registers"))  # how bytes become words
RULES_CODE = tuple(
    f"forerun.curate.quality.{name}" for name in ("statistics", "heuristic", "report")
)  # scores and types of texts without a model


@dataclass(frozen=True)
class Attribute:
    """A finished attribute tree, or the partitions themselves."""

    folder: StepFolder
    outcome: Outcome

    def part(self, index: int) -> Path:
        """The file of one partition."""
        return self.folder.path / part_name(index)


@dataclass
class Walk:
    """What all stages of a run share, and the steps it has taken."""

    root: Path
    """Step folders lie in it."""
    engine: EngineConfig
    quiet: bool
    steps: list[Step] = field(default_factory=list)

    def run(self, label: str, tasks: Sequence[Task], folder: Path, *, light: bool = False) -> dict[str, str]:
        """Run tasks; returns those set aside, with the reason.

        Args:
            light: the tasks only move data, so that workers pay for much larger amounts only.
        """
        engine = replace(self.engine, worker_bytes=self.engine.worker_bytes * LIGHT) if light else self.engine
        return run_tasks(label, tasks, folder / "running", engine, quiet=self.quiet) if tasks else {}

    def taken(self, key: StepKey, outcome: Outcome) -> None:
        """Note a step for the manifest. Raises: DataError when its counts do not add up, which means a part was lost."""
        lost = outcome.documents_in - outcome.documents_out - sum(outcome.dropped.values())
        if lost:
            raise DataError(
                f"step {key.name}: {outcome.documents_in} documents in, {outcome.documents_out} out, {sum(outcome.dropped.values())} dropped",
                hint=f"{lost} are unaccounted for; delete {self.root / key.name} and run again",
            )
        self.steps.append(
            Step(
                name=key.name,
                identity=key.identity,
                documents_in=outcome.documents_in,
                documents_out=outcome.documents_out,
                dropped=outcome.dropped,
                report=outcome.report,
            )
        )


def attribute_step(
    walk: Walk, key: StepKey, partitions: Attribute, earlier: Sequence[Attribute], call: str, arguments: dict[str, Any], *, light: bool
) -> Attribute:
    """An attribute whose parts are made one by one: `call(partition, earlier, out, **arguments)`."""
    folder = StepFolder(walk.root, key)
    outcome = folder.outcome()
    if outcome is None:
        folder.prepare()
        tasks = part_tasks(folder, partitions, earlier, call, arguments)
        aside = walk.run(key.name.replace("_", " "), tasks, folder.path, light=light)
        for name in aside:
            index = part_index(name)
            set_aside_part(partitions.part(index), parts(earlier, index), folder.path / part_name(index))
        outcome = finish_attribute(folder, partitions, earlier, report={"set_aside": aside} if aside else {})
    walk.taken(key, outcome)
    return Attribute(folder, outcome)


def part_tasks(
    folder: StepFolder, partitions: Attribute, earlier: Sequence[Attribute], call: str, arguments: dict[str, Any], *, below: str = ""
) -> list[Task]:
    """One task for every partition whose part is missing in the folder, or in a folder below it."""
    out = folder.path / below
    return [
        Task(
            name=f"part-{index:05d}",
            call=call,
            arguments={
                "partition": str(partitions.part(index)),
                "earlier": [str(path) for path in parts(earlier, index)],
                "out": str(out / part_name(index)),
                **arguments,
            },
            num_bytes=text_bytes(partitions.part(index)),
        )
        for index in range(num_partitions(partitions))
        if not (out / part_name(index)).exists()
    ]


def finish_attribute(
    folder: StepFolder, partitions: Attribute, earlier: Sequence[Attribute], *, report: dict[str, Any], more: Sequence[str] = ()
) -> Outcome:
    """Count what the parts say about the documents that earlier attributes left in, and declare the step done.

    Args:
        more: further files of the step.
    """
    documents_in, dropped = 0, Counter()
    for index in range(num_partitions(partitions)):
        table = pq.read_table(folder.path / part_name(index), columns=["reason"])
        before = np.ones(table.num_rows, bool)
        for path in parts(earlier, index):
            before &= np.asarray(pq.read_table(path, columns=["reason"])["reason"].is_null())
        documents_in += int(before.sum())
        dropped.update(counted(table["reason"].filter(pa.array(before))))
    names = [part_name(index) for index in range(num_partitions(partitions))]
    return folder.finish(
        [*names, *more],
        documents_in=documents_in,
        documents_out=documents_in - sum(dropped.values()),
        dropped=dict(dropped),
        report=report,
    )


def counted(reasons: pa.ChunkedArray) -> dict[str, int]:
    """How often each reason occurs; nulls are no reason."""
    entries = pc.value_counts(reasons.drop_null()).to_pylist() if len(reasons) else []
    return {entry["values"]: entry["counts"] for entry in entries}


def parts(attributes: Sequence[Attribute], index: int) -> list[Path]:
    """The files of one partition."""
    return [attribute.part(index) for attribute in attributes]


def num_partitions(partitions: Attribute) -> int:
    """How many there are."""
    return partitions.outcome.report["partitions"]


def text_bytes(path: Path) -> int:
    """Bytes of a file's text column before compression, from its footer."""
    footer = pq.read_metadata(path)
    column = footer.schema.names.index("text")
    return sum(footer.row_group(index).column(column).total_uncompressed_size for index in range(footer.num_row_groups))


def part_index(name: str) -> int:
    """Of a task's name or a part's."""
    return int(name.removesuffix(".parquet").rsplit("-", 1)[-1])
