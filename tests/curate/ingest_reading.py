"""Reading sources in tests: documents and problems of a path, apart."""

from __future__ import annotations

from forerun.curate.ingest.read import documents_of
from forerun.curate.ingest.records import Document, IngestConfig, Problem, SchemaWatch
from forerun.curate.ingest.source import SourceFile, input_files

DEFAULT = IngestConfig()


def read(path, config: IngestConfig = DEFAULT, **source) -> tuple[list[Document], list[Problem]]:
    described = SourceFile(name="s", path=str(path), **source)
    watch = SchemaWatch(described)
    found = [one for file in input_files(described) for one in documents_of(file, described, config, watch)]
    return [one for one in found if isinstance(one, Document)], [one for one in found if isinstance(one, Problem)]


def reasons(problems: list[Problem]) -> list[str]:
    return [problem.reason for problem in problems]
