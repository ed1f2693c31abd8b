"""`forerun ladder gate`: the arithmetic on tables, refusals, exit codes."""

from __future__ import annotations

import json

import pytest

from forerun.base.errors import PlatformError
from forerun.cli.main import run

SCALES = (3.82e17, 2.81e18, 1.16e19, 3.46e19)
HEADER = "name,compute,loss_nats,tokens_per_second,eval"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Baseline runs on the published law of two evaluations, and a variant worth 1.25 times the compute at the first two scales."""
    monkeypatch.chdir(tmp_path)
    write("baseline.csv", [(c, name, floor, 1.0) for name, floor in (("paloma", 1.6), ("dclm", 1.9)) for c in SCALES])
    write("variant.csv", [(c, name, floor, 1.25) for name, floor in (("paloma", 1.6), ("dclm", 1.9)) for c in SCALES[:2]])
    return tmp_path


def write(path: str, runs: list[tuple[float, str, float, float]]) -> None:
    rows = [f"r,{c!r},{floor + 88.32 * (gain * c) ** -0.0941!r},1000,{name}" for c, name, floor, gain in runs]
    with open(path, "w") as file:
        file.write("\n".join([HEADER, *rows]))


def command(*arguments: str) -> int:
    return run(["ladder", "gate", "--baseline", "baseline.csv", "--variant", "variant.csv", *arguments])


def test_a_planted_speed_up_is_read_back_for_every_evaluation(tables, capsys):
    assert command("--floor", "paloma=1.6", "--floor", "dclm=1.9", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["eval"] for each in found] == ["dclm", "paloma"]
    ratios = [one["ratio"] for each in found for one in each["answer"]["speedups"]]
    assert ratios == pytest.approx([1.25] * 4, rel=1e-3)
    assert all(one["low90"] <= one["ratio"] <= one["high90"] for each in found for one in each["answer"]["speedups"])


def test_a_slower_variant_does_not_pass_and_says_so_with_exit_code_one(tables, capsys):
    write("variant.csv", [(SCALES[0], "paloma", 1.6, 0.9)])
    assert command("--floor", "1.6", "--seed-noise", "0.001") == 1
    text = capsys.readouterr().out
    assert "speed-up 0.900" in text and "does not pass" in text and "lack of fit p = 1.000" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--floor", "1.6"], "does not say which evaluation"),
        (["--floor", "paloma=1.6"], "no floor for the evaluation 'dclm'"),
        (["--floor", "paloma=x", "--floor", "dclm=1.9"], "must be a number"),
        (["--floor", "paloma=3.6", "--floor", "dclm=1.9"], "at or below the law's floor"),
    ],
)
def test_a_floor_that_cannot_be_meant_is_refused(tables, arguments, words):
    with pytest.raises(PlatformError, match=words):
        command(*arguments)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("r,5e18,3.1,1000,paloma", "no baseline near"),
        ("r,3.82e17,nan,1000,paloma", "must be finite"),
        ("r,-1,3.1,1000,paloma", "must be positive"),
    ],
)
def test_a_variant_that_cannot_be_compared_is_refused(tables, row, words):
    (tables / "variant.csv").write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(PlatformError, match=words):
        command("--floor", "1.6")
