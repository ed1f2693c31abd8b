"""Clusters reach the objective of a reference, merging keeps its floor, names set domains apart, checks cannot be gamed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from forerun.base.errors import ConfigError, DataError
from forerun.curate.cluster.checks import adjusted_rand_index, intruder_test, word_judge
from forerun.curate.cluster.domains import ClusterConfig, find_domains
from forerun.curate.cluster.kmeans import assign, train
from forerun.curate.cluster.merge import merge
from forerun.curate.cluster.names import name_domains


def blobs(num: int, centres: int, noise: float, seed: int = 0, dims: int = 32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    middle = rng.standard_normal((centres, dims))
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    label = rng.integers(0, centres, num)
    rows = middle[label] + noise / np.sqrt(dims) * rng.standard_normal((num, dims))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), label


def test_spherical_kmeans_is_not_worse_than_faiss():
    import faiss

    rows, _ = blobs(6000, 300, 0.7)
    reference = faiss.Kmeans(rows.shape[1], 600, niter=10, seed=1, spherical=True, min_points_per_centroid=1)
    reference.train(rows)
    theirs = float(reference.index.search(rows, 1)[0].mean())
    ours = train(rows, 600, seed=1)
    assert ours.mean_cosine >= theirs - 1e-4
    assert ours.weights.sum() == 6000


def test_training_again_or_assigning_in_pieces_gives_the_same_bits():
    rows, _ = blobs(3000, 40, 0.8)
    one, two = train(rows, 60, seed=3), train(rows, 60, seed=3)
    np.testing.assert_array_equal(one.vectors, two.vectors)
    whole = assign(rows, one.vectors)
    pieces = [assign(rows[start : start + 77], one.vectors) for start in range(0, 3000, 77)]
    for index in (0, 1):
        np.testing.assert_array_equal(whole[index], np.concatenate([piece[index] for piece in pieces]))


def test_too_few_documents_are_refused_rather_than_leaving_empty_clusters():
    rows, _ = blobs(10, 3, 0.1)
    with pytest.raises(DataError, match="cannot make 20 clusters"):
        train(rows, 20, seed=0)
    with pytest.raises(DataError, match="distinct"):
        train(np.repeat(rows[:2], 20, axis=0), 10, seed=0)


def test_merging_recovers_the_groups_and_every_domain_reaches_the_floor():
    rng = np.random.default_rng(1)
    groups = np.eye(32)[:5]
    vectors = np.repeat(groups, 12, axis=0) + 0.05 * rng.standard_normal((60, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    weights = rng.integers(1, 50, 60)
    domains = merge(vectors, weights, 5, floor=0.05)
    assert adjusted_rand_index(domains.labels, np.repeat(np.arange(5), 12)) == 1.0
    for floor in (0.02, 0.1, 0.24):
        found = merge(vectors, weights, 10, floor=floor)
        assert found.fractions.min() >= floor - 1e-12
        assert len(found.fractions) <= 1 / floor
    assert merge(vectors, weights, 10, floor=0.6).labels.max() == 0


def test_no_single_move_lowers_the_loss_after_merging():
    vectors, _ = blobs(40, 8, 0.9, seed=4)
    weights = np.random.default_rng(5).integers(1, 9, 40)
    domains = merge(vectors, weights, 4, floor=0.05)

    def loss(labels: np.ndarray) -> float:
        return sum(
            weights[labels == g].sum() - np.linalg.norm((vectors[labels == g] * weights[labels == g, None]).sum(axis=0)) for g in range(4)
        )

    best, mass = loss(domains.labels), weights.sum()
    for index in range(40):
        for target in range(4):
            moved = domains.labels.copy()
            moved[index] = target
            if min(np.bincount(moved, weights, minlength=4)) >= 0.05 * mass:
                assert loss(moved) > best - 1e-6


def test_names_are_the_words_that_set_a_domain_apart_and_the_source_when_it_dominates():
    texts = ["the galaxy and the stars"] * 20 + ["the oven and the butter"] * 20 + ["the oven and some sauce"] * 20
    sources = ["astro"] * 20 + ["web", "mail"] * 20
    names = name_domains(texts, sources, np.repeat([0, 1, 2], 20), 3)
    assert names[0].title.startswith("astro: ")
    assert {"galaxy", "stars"} == set(names[0].terms)
    assert names[1].terms[0] == "butter"
    assert names[2].terms[0] == "sauce"
    assert len({name.slug for name in names}) == 3


def test_rand_index_is_one_for_renamed_and_near_zero_for_random_labels():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 2000)
    assert adjusted_rand_index(labels, (labels + 2) % 5) == 1.0
    assert abs(adjusted_rand_index(labels, rng.integers(0, 5, 2000))) < 0.01


def test_an_intruder_is_found_in_real_domains_and_by_chance_in_random_ones():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 400)
    words = np.zeros((400, 40), np.float32)
    for row, label in zip(words, truth):
        row[rng.choice(np.arange(label * 10, label * 10 + 10), 5, replace=False)] = 1 / np.sqrt(5)
    judge = word_judge(sparse.csr_matrix(words))
    assert intruder_test(truth, judge)["accuracy"] > 0.95
    assert intruder_test(rng.permutation(truth), judge)["accuracy"] < 0.3


def test_a_catch_all_domain_lowers_the_intruder_score_by_its_size():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 8, 1600)
    words = np.zeros((1600, 80), np.float32)
    for row, label in zip(words, truth):
        row[rng.choice(np.arange(label * 10, label * 10 + 10), 5, replace=False)] = 1 / np.sqrt(5)
    judge = word_judge(sparse.csr_matrix(words))
    gamed = np.where(rng.random(1600) < 0.5, 8, truth)
    assert intruder_test(gamed, judge)["accuracy"] < intruder_test(truth, judge)["accuracy"] - 0.2


@pytest.mark.parametrize("kinds", [0, 1, 2, 5])
def test_documents_that_an_encoder_cannot_tell_apart_make_fewer_domains_and_no_error(kinds: int):
    vectors = np.eye(16, dtype=np.float32)[np.arange(300) % max(kinds, 1)] * (kinds > 0)  # kinds 0: nothing known, all zero
    model = find_domains(vectors, ["word and word"] * 300, ["s"] * 300, ClusterConfig())
    assert model.report["num_fine"] == max(kinds, 1)
    labels, _ = model.assign(vectors)
    assert len(set(labels.tolist())) == len(model.names) <= max(kinds, 1)


def test_impossible_floors_are_refused():
    with pytest.raises(ConfigError, match="at most 1"):
        ClusterConfig(num_domains=40, floor=0.05)
    with pytest.raises(ConfigError, match="num_fine"):
        ClusterConfig(num_domains=40, num_fine=10)
