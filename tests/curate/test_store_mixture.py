"""Mixtures respect epochs and tiny cells, later phases keep the past, and a swarm's best direction is found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forerun.base.errors import ConfigError, DataError
from forerun.base.lab import Lab
from forerun.curate.mixture import plan_mixture, rescaled, with_phase
from forerun.curate.mixture_fit import fit_mixture, swarm
from forerun.curate.remove import remove_document
from forerun.curate.store import write_store
from forerun.curate.swarm_runs import METRIC, fit_from_runs
from forerun.loader.batches import Batches
from forerun.loader.config import DataConfig, MixturePhase
from forerun.loader.manifest import Cell, Manifest
from forerun.loader.store import open_store
from forerun.record.journal import Journal
from forerun.record.run import start_run
from token_stores import document, random_documents, spec


def manifest_of(tokens: dict[str, int]) -> Manifest:
    cells = tuple(
        Cell(
            name=name,
            domain=name.split("/")[0],
            quality=int(name[-1]),
            split="train",
            num_documents=1,
            num_tokens=count,
            num_bytes=count,
            shards=(),
        )
        for name, count in tokens.items()
    )
    return Manifest(name="m", tokenizer_digest="", vocab_size=10, dtype="uint16", end_of_document=0, sources=(), cells=cells, held_out=())


def test_a_plan_without_wishes_is_proportional_and_its_exposure_even():
    plan = plan_mixture(manifest_of({"a/q1": 300, "b/q3": 100}), train_tokens=200)
    assert plan.phase.weights == pytest.approx({"a/q1": 0.75, "b/q3": 0.25})
    assert plan.exposure == pytest.approx({"a/q1": 0.5, "b/q3": 0.5})


def test_a_cell_that_would_be_read_too_often_gives_its_surplus_to_the_others():
    plan = plan_mixture(manifest_of({"a/q1": 1000, "b/q3": 10}), train_tokens=400, wanted={"a/q1": 0.5, "b/q3": 0.5}, epoch_cap=8)
    assert plan.phase.weights == pytest.approx({"a/q1": 0.8, "b/q3": 0.2})  # 8 epochs of 10 tokens are 80 of 400
    assert plan.exposure["b/q3"] == pytest.approx(8)
    assert "capped at 8 epochs" in plan.notes[0]


def test_a_run_longer_than_all_epochs_together_is_refused():
    with pytest.raises(ConfigError, match="hold 110 tokens, 1000 are needed"):
        plan_mixture(manifest_of({"a/q1": 100, "b/q3": 10}), train_tokens=1000, epoch_cap=8)


def test_weights_too_small_to_be_read_are_merged_into_the_nearest_quality_and_said_so():
    plan = plan_mixture(manifest_of({"a/q0": 1, "a/q1": 600_000, "a/q4": 600_000, "b/q2": 1}), train_tokens=1000)
    assert set(plan.phase.weights) == {"a/q1", "a/q4"}
    assert any("a/q0" in note and "merged into a/q1" in note for note in plan.notes)
    assert any("b/q2" in note and "left out" in note for note in plan.notes)
    assert sum(plan.phase.weights.values()) == pytest.approx(1)


def test_a_cell_whose_documents_were_all_removed_is_left_out_and_said_so(tmp_path: Path):
    lab = Lab(tmp_path)
    manifest = write_store(lab, [document("gone", [3] * 20, domain="small"), *random_documents(50)], spec())
    assert "small/q2" in plan_mixture(manifest, train_tokens=100).phase.weights
    amended = remove_document(lab, manifest.digest, document("gone", [])["id"], "asked to")
    plan = plan_mixture(amended, train_tokens=100)
    assert "small/q2" not in plan.phase.weights
    assert "small/q2 is left out: all its documents were removed" in plan.notes


@pytest.mark.parametrize(("train_tokens", "epoch_cap"), [(0, 8.0), (-1, 8.0), (100, 0.0), (100, float("nan"))])
def test_a_plan_for_no_tokens_or_no_epochs_is_refused(train_tokens: int, epoch_cap: float):
    with pytest.raises(ConfigError, match="at least 1 training token and an epoch cap above 0"):
        plan_mixture(manifest_of({"a/q1": 300}), train_tokens=train_tokens, epoch_cap=epoch_cap)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_weights_that_are_no_weights_are_refused(value: float):
    with pytest.raises(ConfigError, match="weight of 'a/q1' must be a number from 0 on"):
        plan_mixture(manifest_of({"a/q1": 300, "b/q3": 100}), train_tokens=200, wanted={"a/q1": value, "b/q3": 1.0})
    with pytest.raises(ConfigError, match="weight"):
        MixturePhase(weights={"a/q1": value, "b/q3": 1.0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epoch_cap": 0.0}, "epoch_cap must be above 0"),
        ({"epoch_cap": float("nan")}, "epoch_cap must be above 0"),
        ({"max_seq_len": -1}, "max_seq_len must not be negative"),
        ({"target_tokens": -5}, "target_tokens must not be negative"),
        ({"mixture": (MixturePhase(weights={"a/q1": 1.0}), MixturePhase(weights={"b/q3": 1.0}))}, "begin at different fractions"),
    ],
)
def test_data_that_cannot_be_read_is_refused_by_name(changes: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        DataConfig(**({"manifest": "m"} | changes))


def test_quality_tilt_prefers_better_buckets_within_every_domain():
    weights = plan_mixture(
        manifest_of({"a/q1": 100, "a/q3": 100, "b/q1": 100, "b/q3": 100}), train_tokens=100, quality_tilt=0.5
    ).phase.weights
    assert weights["a/q3"] / weights["a/q1"] == pytest.approx(np.exp(1.0))


def test_an_amended_mixture_or_horizon_leaves_every_past_batch_as_it_was(tmp_path: Path):
    lab = Lab(tmp_path)
    store = open_store(lab, write_store(lab, random_documents(300), spec()).digest)
    start = DataConfig(
        manifest=store.manifest.digest, max_seq_len=16, mixture=(plan_mixture(store.manifest, train_tokens=40 * 64).phase,), epoch_cap=50
    )
    changed = with_phase(start, MixturePhase(start_fraction=0.5, weights={"stars/q1": 0.5, "cooking/q2": 0.5}))
    shorter = rescaled(changed, old_num_steps=40, new_num_steps=30)
    streams = [
        Batches(store, data, num_steps=num_steps, batch_size=4, seq_len=16)
        for data, num_steps in ((start, 40), (changed, 40), (shorter, 30))
    ]
    for step in range(30):
        original, amended, cut = (stream.batch(step).tokens for stream in streams)
        np.testing.assert_array_equal(amended, cut)
        assert np.array_equal(original, amended) == (step < 20)
    assert {piece.cell for step in range(20, 40) for piece in streams[1].pieces(step)} == {"stars/q1", "cooking/q2"}


def test_a_tiny_target_share_never_starves_a_cell_to_nothing(tmp_path: Path):
    lab = Lab(tmp_path)
    documents = [document(str(index), [3] * 40) for index in range(200)] + [document("s", [4] * 9, domain="small")]
    store = open_store(lab, write_store(lab, documents, spec()).digest)
    data = DataConfig(manifest=store.manifest.digest, max_seq_len=16, target_tokens=10**9)
    with pytest.raises(ConfigError, match="every cell is shorter"):
        Batches(store, data, num_steps=2, batch_size=2, seq_len=16)


def test_a_swarm_fit_finds_the_direction_that_lowers_the_loss():
    centre = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    mixtures = swarm(centre, 24, seed=1)
    rng = np.random.default_rng(0)
    losses = [3.0 - 0.5 * mixture["c"] + 0.2 * mixture["a"] + 0.005 * rng.standard_normal() for mixture in mixtures]
    fit = fit_mixture(mixtures, losses)
    assert fit.weights["c"] > centre["c"] + 0.1
    assert fit.loo_rank_correlation > 0.8
    assert fit.predicted_loss_nats < 3.0 - 0.5 * 0.2 + 0.2 * 0.4
    limited = fit_mixture(mixtures, losses, limits={"c": 0.25})
    assert limited.weights["c"] <= 0.25


@pytest.mark.parametrize("same", [np.arange(12), np.array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8])])
def test_left_out_errors_are_those_of_really_leaving_out_every_run_of_a_mixture(same: np.ndarray):
    from forerun.curate.mixture_fit import _left_out, _ridge

    rng = np.random.default_rng(3)
    rows, target = rng.standard_normal((9 + len(same), 4))[same], rng.standard_normal(12)
    rows, target = rows - rows.mean(axis=0), target - target.mean()
    _, errors = _left_out(rows, target, 0.5, same)
    for index in range(12):
        others = same != same[index]
        slope = _ridge(rows[others] - rows[others].mean(axis=0), target[others] - target[others].mean(), 0.5)
        honest = target[index] - target[others].mean() - (rows[index] - rows[others].mean(axis=0)) @ slope
        assert errors[index] == pytest.approx(honest, rel=1e-6)


def test_runs_of_one_mixture_repeated_do_not_make_a_fit_on_noise_look_good():
    mixtures = swarm({"a": 0.5, "b": 0.3, "c": 0.2}, 10, seed=4)
    noise = np.random.default_rng(6).standard_normal(10)
    jitter = 1e-3 * np.random.default_rng(7).standard_normal(30)
    repeated = fit_mixture(mixtures * 3, (np.tile(noise, 3) + jitter).tolist())
    assert repeated.loo_error_nats > 0.5  # knowing a mixture's other seeds would bring it to a thousandth


def test_equal_losses_rank_nothing_and_broken_ones_are_named():
    mixtures = swarm({"a": 0.5, "b": 0.3, "c": 0.2}, 12, seed=2)
    assert fit_mixture(mixtures, [3.0] * 12).loo_rank_correlation == 0
    with pytest.raises(DataError, match="loss 3 of the runs is nan"):
        fit_mixture(mixtures, [3.0, 3.1, 3.2, float("nan"), *[3.0] * 8])
    with pytest.raises(DataError, match="12 runs of 1 different mixtures"):
        fit_mixture(mixtures[:1] * 12, [3.0] * 12)


def test_a_cell_that_never_varied_keeps_its_weight():
    mixtures = [{"a": 0.2, "b": weight / 2, "c": weight / 2, "d": 0.8 - weight} for weight in np.linspace(0.1, 0.7, 12)]
    fit = fit_mixture(mixtures, [3 - 0.5 * mixture["d"] for mixture in mixtures])
    assert fit.weights["a"] == pytest.approx(0.2)
    assert fit.weights["d"] > 0.6


def test_a_proposal_lies_no_farther_out_than_the_swarm_went():
    centre = {name: 0.25 for name in "abcd"}
    mixtures = swarm(centre, 30, seed=5, concentration=2000.0)
    losses = [3.0 - 5 * mixture["a"] for mixture in mixtures]
    fit = fit_mixture(mixtures, losses)
    middle = np.mean([[mixture[name] for name in "abcd"] for mixture in mixtures], axis=0)
    farthest = max(np.linalg.norm([mixture[name] for name in "abcd"] - middle) for mixture in mixtures)
    assert np.linalg.norm([fit.weights[name] for name in "abcd"] - middle) <= farthest * 1.000001
    assert fit.weights["a"] > 0.26


def test_a_fit_on_unrelated_losses_says_that_it_is_noise():
    mixtures = swarm({"a": 0.5, "b": 0.3, "c": 0.2}, 20, seed=2)
    losses = np.random.default_rng(5).standard_normal(20).tolist()
    assert fit_mixture(mixtures, losses).loo_rank_correlation < 0.5
    with pytest.raises(DataError, match="too few"):
        fit_mixture(mixtures[:3], losses[:3])


def swarm_run(
    lab: Lab, name: str, manifest: str, *, last_step: int = 4, num_steps: int = 4, phases: int = 1, weight: float = 0.5, loss: float = 3.0
) -> None:
    """A run's record as the trainer leaves it: frozen config and evaluations."""
    folder = lab.run(name)
    folder.mkdir(parents=True)
    phase = {"start_fraction": 0.0, "weights": {"stars/q2": weight, "stars/q1": 1 - weight}}
    (folder / "config.json").write_text(json.dumps({"data": {"manifest": manifest, "mixture": [phase] * phases}}))
    start_run(folder, num_steps=num_steps)
    with Journal(folder) as journal:
        for step in range(1, last_step + 1):
            journal.log(step, {METRIC: loss - step / 10})


def test_a_fit_takes_finished_runs_of_one_store_only(tmp_path: Path):
    lab = Lab(tmp_path)
    one = write_store(lab, random_documents(20, domains=("stars",)), spec()).digest
    other = write_store(lab, random_documents(20, seed=1, domains=("stars",)), spec()).digest
    for index in range(8):
        swarm_run(lab, f"r{index}", one, weight=0.3 + index / 20, loss=3 + index / 10)
    names = [f"r{index}" for index in range(8)]
    found = fit_from_runs(lab, names, train_tokens=100, epoch_cap=8.0)
    assert found.num_runs == 8
    assert found.weights["stars/q1"] > 0.5
    data = DataConfig(manifest=one, max_seq_len=4, mixture=(MixturePhase(weights=found.weights),))
    assert Batches(open_store(lab, one), data, num_steps=5, batch_size=5, seq_len=4).exposure["stars/q1"] > 0  # readable as it is
    swarm_run(lab, "elsewhere", other)
    swarm_run(lab, "short", one, last_step=3)
    swarm_run(lab, "two", one, phases=2)
    swarm_run(lab, "longer", one, last_step=8, num_steps=8)
    swarm_run(lab, "broken", one, loss=float("nan"))
    for name, said in (
        ("elsewhere", "read 2 manifests"),
        ("short", "ended at step 3 of 4"),
        ("two", "2 mixture phases"),
        ("no", "not exist"),
        ("longer", "has 8 steps|has 4 steps"),
        ("broken", "ended with a loss of nan"),
        ("r3", "r3 is named twice"),
    ):
        with pytest.raises(DataError, match=said):
            fit_from_runs(lab, [*names, name], train_tokens=100, epoch_cap=8.0)
