import json

import pytest

from forerun.base.errors import PlatformError
from forerun.cli.main import run
from forerun.ladder.public import marin_hero, marin_ladder


@pytest.fixture
def ladder_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rungs, target = marin_ladder()
    rows = ["rung,colour,train_steps,compute_per_step", *(f"{r.name},blue,{r.train_steps},{r.compute_per_step!r}" for r in rungs)]
    (tmp_path / "rungs.csv").write_text("\n".join(rows))
    evals = [f"{r.name},{step},{loss!r}" for r in rungs for step, loss in zip(r.steps, r.losses)]
    (tmp_path / "evals.csv").write_text("\n".join(["# a comment", "rung,step,loss_nats", *evals]))
    (tmp_path / "target.json").write_text(json.dumps({"train_steps": target.train_steps, "compute_per_step": target.compute_per_step}))
    steps, losses = marin_hero()
    (tmp_path / "outcome.csv").write_text("\n".join(["step,loss_nats", *(f"{int(s)},{float(v)!r}" for s, v in zip(steps, losses))]))
    return tmp_path


ARGUMENTS = ["forecast", "--rungs", "rungs.csv", "--evals", "evals.csv", "--target", "target.json"]


def test_forecast_then_score_works_on_files_alone(ladder_files, capsys):
    assert run([*ARGUMENTS, "--json"]) == 0
    (ladder_files / "f.json").write_text(capsys.readouterr().out)
    assert run(["forecast", "score", "f.json", "--evals", "outcome.csv", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["coverage90"] >= 0.8
    assert result["num_outside"] > 0


def test_the_published_rule_is_reachable_and_the_text_shows_profile_and_compute(ladder_files, capsys):
    assert run([*ARGUMENTS, "--method", "marin2026", "--compute", "fit_compute"]) == 0
    out = capsys.readouterr().out
    assert "2.0388" in out
    assert "floor profile" in out
    assert "compute: fit_compute" in out


def test_a_lab_keeps_the_forecast_and_plots_lie_beside_their_numbers(ladder_files, capsys):
    assert run([*ARGUMENTS, "--lab", "lab", "--plots", "plots", "--json"]) == 0
    identity = json.loads(capsys.readouterr().out)["id"]
    assert (ladder_files / "lab" / "ledger" / "forecasts" / f"{identity}.json").exists()
    for name, rows in (("forecast", 20), ("floor_profile", 9), ("backtest", 1)):
        assert (ladder_files / "plots" / f"{name}.svg").read_text().startswith("<svg")
        assert (ladder_files / "plots" / f"{name}.csv").read_text().count("\n") == rows + 1


def edited(folder, name, old, new):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("evals.csv", "d768,1141,", "d768,500,", "steps must rise"),
        ("evals.csv", "d768,1141,3.5393", "d768,1141,nan #", "must be"),
        ("evals.csv", "d768,1141,3.5393", "d768,1141,-3.5393", "positive"),
        ("evals.csv", "d768,570", "d999,570", "does not list"),
        ("evals.csv", "loss_nats", "loss", "column 'loss_nats' is missing"),
        ("rungs.csv", "11420", "many", "must be a number"),
        ("rungs.csv", "11420", "9000", "past train_steps"),
        ("rungs.csv", "d768", "d1024", "listed 2 times"),
        ("target.json", "train_steps", "steps", "train_steps must be a number, got None"),
        ("target.json", "390251", "390251.5", "must be a whole number"),
        ("target.json", "390251", '"many"', "must be a number"),
        ("target.json", "390251", "0", "at least 1"),
    ],
)
def test_bad_input_is_one_clear_line(ladder_files, name, old, new, words):
    edited(ladder_files, name, old, new)
    with pytest.raises(PlatformError, match=words) as caught:
        run(ARGUMENTS)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_two_evaluations_in_one_table_must_be_told_apart(ladder_files, capsys):
    lines = (ladder_files / "evals.csv").read_text().splitlines()
    body = [line for line in lines if not line.startswith("#")][1:]
    both = ["rung,step,loss_nats,eval", *(f"{line},paloma" for line in body), *(f"{line},c4" for line in body)]
    (ladder_files / "evals.csv").write_text("\n".join(both))
    with pytest.raises(PlatformError, match="mixes 2 evaluations: c4, paloma"):
        run(ARGUMENTS)
    assert run([*ARGUMENTS, "--eval", "c4"]) == 0


@pytest.mark.parametrize("content", ["", "rung,step,loss_nats\n", "\x00\xff"])
def test_empty_or_foreign_files_are_refused(ladder_files, content):
    (ladder_files / "evals.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(PlatformError):
        run(ARGUMENTS)
