"""A step's identity holds everything that decides its files; a folder is done only with all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import subprocess
import sys
import typing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from curate.text_samples import sentence, write_lines
from forerun.base.config import decode
from forerun.base.errors import DataError
from forerun.curate.build_identity import STEP_CODE, BuildConfig, identity_of
from forerun.curate.cluster.ask_names import NamerConfig
from forerun.curate.engine.config import EngineConfig
from forerun.curate.ingest.source import SourceFile
from forerun.curate.quality.teacher import EndpointConfig
from forerun.curate.steps import StepFolder, StepKey, alone, code_digest
from forerun.curate.text.compare import BAND_CODE, CONTAMINATION_CODE, FUZZY_CODE
from forerun.curate.text.filters import FilterConfig
from forerun.curate.text.pipeline import EXACT_CODE, FILTER_CODE, TextConfig, take_steps
from forerun.curate.text.walk import Walk


def key(**changes) -> StepKey:
    given = {"name": "n", "version": 1, "parameters": {"a": 1}, "inputs": ("x",), "modules": ("forerun.curate.steps",)}
    return StepKey(**(given | changes))


def leaves(config: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field of a config, however deep."""
    found = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found += leaves(value, (*path, field.name)) if dataclasses.is_dataclass(value) else [(*path, field.name)]
    return found


def other_value(config: Any, path: tuple[str, ...]) -> Any:
    """A copy of the config in which one field has another valid value."""
    name, *rest = path
    value = getattr(config, name)
    if rest:
        return dataclasses.replace(config, **{name: other_value(value, tuple(rest))})
    kind = typing.get_type_hints(type(config))[name]
    options = [option for option in typing.get_args(kind) if typing.get_origin(kind) is typing.Literal and option != value]
    if options:
        candidates = options
    elif value is None:
        candidates = [made(url="http://host/v1", model="m") for made in (EndpointConfig, NamerConfig)]
    elif isinstance(value, bool):
        candidates = [not value]
    elif isinstance(value, int):
        candidates = [value + 1, value - 1]
    elif isinstance(value, float):
        candidates = [value * 0.9, value + 0.1, value + 1e-3]
    elif isinstance(value, tuple):
        candidates = [(*value, "en"), (*value, "email"), (*value, 0.5)]
    else:
        candidates = [f"{value}x", "http://host/v1"]
    for candidate in candidates:
        try:
            changed = dataclasses.replace(config, **{name: candidate})
            decode(dataclasses.asdict(changed), type(changed), where="test")
        except Exception:  # noqa: BLE001  not a valid value of this field; the next may be
            continue
        return changed
    raise AssertionError(f"no other valid value for {'.'.join(path)}={value!r}")


BASE = TextConfig(filters=FilterConfig(languages=("en",)), held_out_fraction=0.1)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """Identities of the steps that a config takes over a small corpus; stages with the same identity are taken over."""
    folder = tmp_path_factory.mktemp("walked")
    sources = []
    for name in ("a", "en"):
        write_lines(folder / f"{name}.jsonl", [sentence(random.Random(f"{name}{i}"), 40) for i in range(6)])
        sources.append(SourceFile(name=name, path=str(folder / f"{name}.jsonl")))

    def identities(config: TextConfig) -> list[str]:
        walk = Walk(folder / "work", EngineConfig(runner="loop"), quiet=True)
        with contextlib.suppress(DataError):  # some other values leave no document; the steps before are what is compared
            take_steps(walk, sources, config)
        return [step.identity for step in walk.steps]

    return identities


@pytest.mark.parametrize("path", leaves(BASE), ids=".".join)
def test_every_parameter_of_the_text_stages_changes_the_identity_of_the_run(path, walked):
    assert walked(other_value(BASE, path)) != walked(BASE)


@pytest.mark.parametrize("path", leaves(BuildConfig()), ids=".".join)
def test_every_parameter_of_the_store_is_in_the_identity_of_the_build(path):
    changed = other_value(BuildConfig(), path)
    assert identity_of("n", [], [], changed) != identity_of("n", [], [], BuildConfig())


def test_what_is_stated_about_a_source_reaches_the_manifest_and_redoes_no_stage(tmp_path):
    write_lines(tmp_path / "a.jsonl", [sentence(random.Random(f"a{i}"), 40) for i in range(6)])
    plain = SourceFile(name="a", path=str(tmp_path / "a.jsonl"))
    stated = dataclasses.replace(plain, category="tales", synthetic=True, machine_translated=False)
    found = []
    for source in (plain, stated):
        walk = Walk(tmp_path / "work", EngineConfig(runner="loop"), quiet=True)
        cleaned = take_steps(walk, [source], TextConfig())
        assert cleaned is not None
        found.append((cleaned.sources, [step.identity for step in walk.steps]))
    (before, same), ((after,), steps) = found
    assert steps == same
    assert (after.category, after.synthetic, after.machine_translated) == ("tales", True, False)
    assert identity_of("n", [], [after], BuildConfig()) != identity_of("n", [], list(before), BuildConfig())


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "m"},
        {"version": 2},
        {"parameters": {"a": 2}},
        {"inputs": ("y",)},
        {"inputs": ("x", "")},
        {"modules": ("forerun.curate.steps", "forerun.curate.build")},
    ],
    ids=str,
)
def test_name_version_parameters_inputs_and_code_all_change_the_identity(changes):
    assert key(**changes).identity != key().identity


def imported_by(modules: set[str]) -> set[str]:
    """What some modules of the pipeline import of it, through any number of others."""
    found, waiting = set(modules), list(modules)
    while waiting:
        spec = find_spec(waiting.pop())
        assert spec is not None and spec.origin is not None
        new = set(re.findall(r"^\s*from (forerun\.curate[\w.]*) import", Path(spec.origin).read_text(), re.MULTILINE)) - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize(
    ("deciding", "code"),
    [
        ({"text.exact"}, EXACT_CODE),
        ({"text.filters"}, FILTER_CODE),
        ({"text.minhash", "text.lsh"}, BAND_CODE),
        ({"text.fuzzy", "text.survivors", "text.evidence"}, FUZZY_CODE),
        ({"text.decontaminate", "text.leaks"}, CONTAMINATION_CODE),
        ({"embed.encoders", "embed.quantize", "embed.tfidf"}, STEP_CODE["embed"]),
        ({"cluster.domains"}, STEP_CODE["cluster"]),
        ({"quality.model"}, STEP_CODE["quality"]),
        ({"tokenise"}, STEP_CODE["tokenise"]),
    ],
)
def test_the_code_of_a_step_is_all_that_its_decisions_call(deciding, code):
    needed = imported_by({f"forerun.curate.{name}" for name in deciding})
    assert needed - set(code) == set()


def test_changed_source_code_changes_the_identity(tmp_path, monkeypatch):
    (tmp_path / "some_step.py").write_text("LIMIT = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    code_digest.cache_clear()
    before = key(modules=("some_step",)).identity
    (tmp_path / "some_step.py").write_text("LIMIT = 2\n")
    code_digest.cache_clear()
    assert key(modules=("some_step",)).identity != before


def test_a_folder_is_done_only_while_every_file_is_there_with_its_size(tmp_path):
    folder = StepFolder(tmp_path, key())
    path = folder.prepare()
    assert folder.outcome() is None
    for name in ("a", "b"):
        (path / name).write_bytes(name.encode())
    outcome = folder.finish(["b", "a"], documents_in=2, documents_out=1, dropped={"r": 1, "none": 0}, report={})
    assert folder.outcome() == outcome and outcome.dropped == {"r": 1}
    (path / "b").write_bytes(b"longer")
    assert folder.outcome() is None
    assert not (path / "b").exists() and (path / "a").exists()  # the good part stays, the bad one is made again


def test_a_folder_is_worked_in_by_one_run_at_a_time(tmp_path):
    with alone(tmp_path):
        holder = f"from pathlib import Path; from forerun.curate.steps import alone\nwith alone(Path({str(tmp_path)!r})): print('in')"
        second = subprocess.run([sys.executable, "-c", holder], capture_output=True, text=True, check=False)
        assert second.returncode != 0 and f"another run works in {tmp_path}" in second.stderr
    assert subprocess.run([sys.executable, "-c", holder], capture_output=True, text=True, check=True).stdout == "in\n"
