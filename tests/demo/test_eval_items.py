"""Published test sets become items to keep out: long enough, once each, with the place they come from."""

from __future__ import annotations

import gzip
import json
import zipfile

import pytest

from forerun.base.errors import DataError
from forerun.demo.corpus.evals import EvalPackage, read_items

QUESTION = "What is the boiling point of water at the height of the sea?"
ANSWER = "At the height of the sea water boils at one hundred degrees."


def package(tmp_path, **members: bytes):
    path = tmp_path / "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"made/data/{name}", data)
    return path


def recipe(*sets: str) -> EvalPackage:
    return EvalPackage(requirement="made==1.0", sha256="0" * 64, folder="made/data", sets=sets)


def test_questions_and_answers_of_any_depth_are_items_and_short_ones_and_cut_down_copies_are_not(tmp_path):
    line = json.dumps({"question": QUESTION, "answer": {"long": [ANSWER], "short": "100 C"}}).encode()
    wheel = package(tmp_path, **{"A/test.jsonl": line, "A/test-tiny.jsonl": line, "B.jsonl.gz": gzip.compress(line), "C/t.jsonl": line})
    found = list(read_items(wheel, recipe("A", "B.jsonl.gz")))
    assert found == [
        ("made/A/test.jsonl#1 question", QUESTION),
        ("made/A/test.jsonl#1 answer long", ANSWER),
        ("made/B.jsonl.gz#1 question", QUESTION),
        ("made/B.jsonl.gz#1 answer long", ANSWER),
    ]


def test_a_missing_set_and_a_broken_line_are_named(tmp_path):
    with pytest.raises(DataError, match="holds no made/data/D"):
        list(read_items(package(tmp_path, **{"A/test.jsonl": b"{}"}), recipe("D")))
    with pytest.raises(DataError, match=r"A/test.jsonl#2 is not JSON"):
        list(read_items(package(tmp_path, **{"A/test.jsonl": b"{}\nno"}), recipe("A")))
