"""Clusters reach the objective of a reference, merging keeps its floor, names set domains apart, checks cannot be gamed."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from scipy import sparse

from forerun.base.errors import ConfigError, DataError, SourceError
from forerun.curate.cluster.ask_names import NamerConfig, title_in
from forerun.curate.cluster.checks import adjusted_rand_index, intruder_test, word_judge
from forerun.curate.cluster.domains import ClusterConfig, find_domains, renamed
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


class _Model(BaseHTTPRequestHandler):
    """Names groups after the first telling word, and finds names by the words of an excerpt, as a model would."""

    prompts: list[str]
    broken: int = 0

    def do_POST(self) -> None:
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
        kind = type(self)
        kind.prompts.append(prompt)
        if prompt.startswith("Which"):
            excerpt = prompt.split("Excerpt:")[1]
            options = re.findall(r"^(\d)\. About (\w+)$", prompt, re.MULTILINE)
            answer = next((place for place, word in options if word in excerpt), "none of them")
        else:
            answer = "<think>stars 5?</think>\n**Name: About " + re.findall(r"apart: (\w+)", prompt)[0] + "**\nbecause 3 words"
        if kind.broken:
            kind.broken, answer = kind.broken - 1, "..."
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": answer}}]}).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_an_endpoint_names_domains_its_names_are_tested_blind_and_nothing_is_asked_twice(tmp_path, monkeypatch):
    class Handler(_Model):
        prompts = []  # noqa: RUF012  of one test
        broken = 1

    monkeypatch.setattr("forerun.curate.cluster.ask_names.time.sleep", lambda seconds: None)
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    words = ("galaxy", "butter", "harbour")
    texts = [f"{words[index % 3]} {words[index % 3]}s and number {index}" for index in range(240)]
    vectors = np.eye(8, dtype=np.float32)[np.arange(240) % 3] + 0.01 * np.random.default_rng(0).standard_normal((240, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    plain = find_domains(vectors, texts, ["a", "b"] * 120, ClusterConfig(num_domains=3))
    namer = NamerConfig(url=f"http://127.0.0.1:{http.server_address[1]}/v1", model="m")
    model = renamed(plain, namer, vectors, texts.__getitem__, answers=tmp_path / "n.jsonl", seed=1)
    assert {name.title for name in model.names} == {f"About {word}" for word in words}
    assert {name.slug for name in model.names} == {f"about-{word}" for word in words}
    assert model.report["names_test"] == {"accuracy": 1.0, "chance": 1 / 3, "num_trials": 9, "judge": "m"}
    assert "by m at an OpenAI-compatible endpoint" in model.report["naming"]
    assert all("apart" not in prompt for prompt in Handler.prompts if prompt.startswith("Which"))  # blind
    Handler.prompts.clear()
    again = renamed(plain, namer, vectors, texts.__getitem__, answers=tmp_path / "n.jsonl", seed=1)
    assert Handler.prompts == []
    assert again.names == model.names
    Handler.broken = 10**6
    with pytest.raises(SourceError, match="holds no name"):
        renamed(plain, namer, vectors, texts.__getitem__, answers=tmp_path / "other.jsonl", seed=1)
    http.shutdown()
    http.server_close()


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Astronomy and telescopes", "Astronomy and telescopes"), ('"Cooking recipes."', "Cooking recipes"), ("# 3. **Sea travel**", "Sea travel"),
        ("Title: Sea travel\n\nThese documents...", "Sea travel"), ("<think>hm", None), ("<think>x</think> 天文学", "天文学"), ("...", None), ("", None),
        ("I am sorry, but I cannot name this group since the excerpts are about many different things.", None),
    ],
)  # fmt: skip
def test_a_title_is_found_in_what_models_write(answer: str, title: str | None):
    assert title_in(answer) == title


def test_domains_of_other_scripts_get_a_folder_name_of_their_own():
    names = name_domains(["галактика и звезда"] * 9 + ["масло и печь"] * 9, ["a", "b", "c"] * 6, np.repeat([0, 1], 9), 2)
    assert [name.slug for name in names] == ["domain-0", "domain-1"]
    assert "галактика" in names[0].title
    unspaced = ["星雲は銀河の中にあり望遠鏡で見える", "銀河と星雲を望遠鏡で見た"] * 6 + [
        "小麦粉とバターを混ぜて焼く",
        "バターを焼いて小麦粉を足す",
    ] * 6
    names = name_domains(unspaced, ["a", "b", "c"] * 8, np.repeat([0, 1], 12), 2)
    assert {"銀河", "星雲"} <= set(names[0].terms)
    assert {"小麦", "バタ"} <= set(names[1].terms)


def test_impossible_floors_are_refused():
    with pytest.raises(ConfigError, match="at most 1"):
        ClusterConfig(num_domains=40, floor=0.05)
    with pytest.raises(ConfigError, match="num_fine"):
        ClusterConfig(num_domains=40, num_fine=10)
