"""Published cell totals: exact, by cell, as a mixture file, rounded; and what is refused."""

import json

import pytest

from forerun.base.errors import DataError
from forerun.base.lab import Lab
from forerun.dashboard.atlas.book import book_of
from forerun.dashboard.atlas.table import import_table

TOTAL = 23_106_103_007_622
"""Tokens of the public run's data."""


def test_the_public_table_adds_up_and_has_the_published_shares(tmp_path):
    book = import_table(Lab(tmp_path), "harrier", "harrier", TOTAL)
    assert (book.num_tokens, len(book.cells), len(book.domains)) == (TOTAL, 200, 40)
    assert book.domains[:3] == ["c26", "c32", "c28"]
    assert [round(100 * tokens / TOTAL, 2) for tokens in book.qualities] == [3.81, 17.45, 28.36, 31.11, 19.27]
    assert round(book.enrichment("c26", 4), 2) == 2.02
    assert book_of(Lab(tmp_path), "harrier").num_tokens == TOTAL


def test_a_mixture_file_and_a_table_by_cell_read_the_same(tmp_path):
    cells = {"c00q0": 10, "c00q4": 20, "c01q2": 5}
    (tmp_path / "mix.json").write_text(json.dumps({"candidate": "x", "available_tokens": cells, "phase0_weights": {}}))
    (tmp_path / "cells.csv").write_text("# a comment\ncell,num_tokens\nc00/q0,10\nc00/q4,20\nc01/q2,5\n")
    lab = Lab(tmp_path)
    one = import_table(lab, str(tmp_path / "mix.json"), "one", 35)
    other = import_table(lab, str(tmp_path / "cells.csv"), "other", 35)
    assert one.grid == other.grid == {"c00": [10, 0, 0, 0, 20], "c01": [0, 0, 5, 0, 0]}


def test_a_rounded_table_is_apportioned_to_the_stated_total(tmp_path):
    table = """Some prose.

| step | tokens |
|---|---|
| raw | 5 |

| domain | B tokens | share % | Q0 % | Q1 % | Q2 % | Q3 % | Q4 % |
|---|---|---|---|---|---|---|---|
| a | 1.2 | 60 | 10 | 20 | 30 | 20 | 20 |
| b | 0.8 | 40 | 0 | 0 | 50 | 25 | 25 |

More prose.
"""
    (tmp_path / "table.md").write_text(table)
    book = import_table(Lab(tmp_path), str(tmp_path / "table.md"), "t", 2_000_000_003)
    assert book.num_tokens == 2_000_000_003
    assert book.grid["a"][0] == pytest.approx(0.12e9, abs=2)
    assert book.grid["b"][:2] == [0, 0]


@pytest.mark.parametrize(
    ("name", "text", "total", "words"),
    [
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,2,3,4,5\n", 16, "the cells hold 15 tokens"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,2,x,4,5\n", None, "row 2 has no number in column 4"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,2,3.5,4,5\n", None, "expected a whole number"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,-2,3,4,5\n", None, "expected a whole number"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,nan,3,4,5\n", None, "row 2 has no number in column 3"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,2,3,4,inf\n", None, "row 2 has no number in column 6"),
        ("t.csv", "domain,q0,q1,q2,q3,q4\na,1,2,3,4,5\na,1,2,3,4,5\n", None, "domain 'a' occurs twice"),
        ("t.csv", "tokens,cell\n5\n", None, "cell 1 is named ''"),
        ("t.csv", "cell,tokens\nlaw,5\n", None, "cell 1 is named 'law'"),
        ("t.csv", "cell,tokens\nc1q1,5\nc1q1,6\n", None, "occurs twice"),
        ("t.csv", "a,b\n1,2\n", None, "needed: domain"),
        ("t.csv", "", None, "holds no table"),
        ("t.json", "[1]", None, "holds no cells"),
        ("t.json", "{", None, "not JSON"),
        (
            "t.md",
            "| domain | B tokens | Q0 % | Q1 % | Q2 % | Q3 % | Q4 % |\n|---|---|---|---|---|---|---|\n| a | 1 | 1 | 1 | 1 | 1 | 1 |\n",
            None,
            "--total",
        ),
    ],
)
def test_what_does_not_add_up_or_cannot_be_read_is_one_line(tmp_path, name, text, total, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        import_table(Lab(tmp_path), str(tmp_path / name), "t", total)


@pytest.mark.parametrize("name", ["", "A", "../x", "a/b", ".x"])
def test_a_name_that_is_no_plain_folder_is_refused(tmp_path, name):
    with pytest.raises(DataError, match="--as"):
        import_table(Lab(tmp_path), "harrier", name)
