"""Quality is judged within a type, learned from whole label sets only, and buckets mean the same in every type."""

from __future__ import annotations

import json
import random
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from forerun.base.errors import DataError, SourceError
from forerun.cli.main import run
from forerun.curate.quality import teacher as teacher_module
from forerun.curate.quality.answer import grade_in, label_of
from forerun.curate.quality.calibrate import buckets, calibrate, spread
from forerun.curate.quality.files import load_quality, save_quality
from forerun.curate.quality.heuristic import heuristic_labels
from forerun.curate.quality.model import QualityConfig, fit_quality
from forerun.curate.quality.report import explained, quality_report, spearman
from forerun.curate.quality.statistics import TYPES, column_of, content_types, text_statistics
from forerun.curate.quality.student import fit
from forerun.curate.quality.teacher import EndpointConfig, endpoint_labels, excerpt, teacher_key

PROSE = "The old harbour was quiet that evening, and the boats lay still. Nobody had expected the storm to turn back to sea."
CODE = "def area(width, height):\n    total = width * height;\n    return {'area': (total), 'ok': total > 0}\n"
MATH = r"Let $x \in \mathbb{R}$ and $f(x) = \frac{x^2}{2}$; then $f'(x) = x$."
TABLE = "2021,14.2,88\n2022,15.9,91\n2023,13.1,77\n2024,12.8,79\n"
JAPANESE = "東京は日本の首都であり、人口は千四百万人を超える。"


def test_content_types_are_told_apart():
    names = [TYPES[index] for index in content_types(text_statistics(pa.array([PROSE, CODE, MATH, TABLE, JAPANESE])))]
    assert names == ["prose", "code", "math", "structured", "multilingual"]


def test_statistics_are_those_counted_by_hand():
    row = text_statistics(pa.array(["The cat.\n the CAT, 12"]))[0]
    expected = {"letters": 12, "digits": 2, "marks": 2, "newlines": 1, "upper": 4, "words": 4, "distinct_words": 2, "function_words": 2}
    expected |= {"sentence_ends": 1, "indented_lines": 1, "longest_line": 12, "num_bytes": 21}
    assert {name: row[column_of(name)] for name in expected} == expected


def prose(rng: random.Random) -> str:
    words = [
        "the",
        "of",
        "and",
        "to",
        "in",
        "harbour",
        "river",
        "winter",
        "stone",
        "letter",
        "garden",
        "with",
        "that",
        "was",
        "as",
        "for",
        "had",
        "from",
        "night",
        "morning",
        "road",
        "by",
    ]
    sentences = [" ".join(rng.choice(words) for _ in range(rng.randrange(8, 20))).capitalize() + "." for _ in range(rng.randrange(6, 20))]
    return " ".join(sentences)


def damaged(text: str, rng: random.Random) -> str:
    return "".join(letter if rng.random() > 0.25 else rng.choice("#%@!0123456789\u00a7") for letter in text) + " BUY NOW!!!" * 10


def test_the_heuristic_teacher_ranks_planted_damage_low_and_treats_every_type_alike():
    rng = random.Random(0)
    good = [prose(rng) for _ in range(200)]
    texts = good[:150] + [damaged(text, rng) for text in good[150:]]
    statistics = text_statistics(pa.array(texts))
    labels = heuristic_labels(statistics, np.zeros(200, np.int8))
    assert labels[:150].mean() > labels[150:].mean() + 1
    two_types = np.repeat([0, 1], 100).astype(np.int8)
    labels = heuristic_labels(statistics, two_types)
    for index in (0, 1):
        assert np.bincount(labels[two_types == index].astype(int), minlength=6)[1:].tolist() == [10, 20, 35, 25, 10]


def test_the_student_scores_like_its_own_features_and_learns_a_planted_word():
    rng = random.Random(1)
    texts = [prose(rng) + (" excellent" if index % 2 else "") for index in range(400)]
    column, statistics = pa.array(texts), text_statistics(pa.array(texts))
    vectors = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    target = np.array([[float(index % 2)] for index in range(400)])
    student = fit(column.slice(0, 300), vectors[:300], statistics[:300], target[:300])
    score = student.predict(column, vectors, statistics)[:, 0]
    held = slice(300, 400)
    assert spearman(score[held], target[held, 0]) > 0.65  # 0.866 is the most a two-valued target allows
    alone = [
        student.predict(column.slice(index, 1), vectors[index : index + 1], statistics[index : index + 1])[0, 0] for index in range(20)
    ]
    assert alone == score[:20].tolist()


def test_calibration_puts_each_label_level_into_its_bucket_in_every_type():
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 6, 4000).astype(float)
    types = rng.integers(0, 2, 4000).astype(np.int8)
    raw = (labels / 10 + 0.01 * rng.standard_normal(4000)) * np.where(types == 0, 1, 3) + np.where(types == 0, 0, -5)
    score = calibrate(raw, labels, types).apply(raw, types)
    assert score.min() >= 0
    assert score.max() <= 1
    for index in (0, 1):
        assert (buckets(score[types == index]) == labels[types == index] - 1).mean() > 0.97
    assert buckets(np.array([0.0, 0.2, 0.39, 0.8, 1.0])).tolist() == [0, 1, 1, 4, 4]


def test_calibration_survives_one_label_level_and_constant_scores():
    for raw in (np.zeros(50), np.linspace(0, 1, 50)):
        score = calibrate(raw, np.full(50, 3.0), np.zeros(50, np.int8)).apply(raw, np.zeros(50, np.int8))
        assert np.isfinite(score).all()


def test_no_document_lands_in_a_bucket_whose_level_the_teacher_never_gave():
    rng = np.random.default_rng(1)
    labels = rng.integers(2, 5, 3000).astype(float)
    raw, types = labels / 5 + 0.02 * rng.standard_normal(3000), np.zeros(3000, np.int8)
    fitted = calibrate(raw, labels, types)
    assert (buckets(fitted.apply(raw, types)) == labels - 1).mean() > 0.99
    beyond = np.array([-9.0, 9.0])
    assert buckets(fitted.apply(beyond, np.zeros(2, np.int8))).tolist() == [1, 3]
    for level in (1, 3, 5):
        same = calibrate(raw, np.full(3000, float(level)), types)
        assert set(buckets(same.apply(np.concatenate([raw, beyond]), np.zeros(3002, np.int8)))) == {level - 1}


def test_labels_that_the_student_cannot_predict_fill_the_buckets_by_their_shares():
    rng = np.random.default_rng(3)
    labels = rng.choice([1.0, 2, 3, 4, 5], 400, p=[0.1, 0.2, 0.4, 0.2, 0.1])
    raw, types = rng.standard_normal(400), np.zeros(400, np.int8)
    raw -= 0.1 * labels  # the medians fall
    shares = np.bincount(buckets(calibrate(raw, labels, types).apply(raw, types)), minlength=5) / 400
    np.testing.assert_allclose(shares, np.bincount(labels.astype(int) - 1, minlength=5) / 400, atol=0.01)


def test_expectations_squeezed_between_two_grades_are_spread_by_rank_and_real_grades_stay():
    rng = np.random.default_rng(2)
    expected = 1 + 0.8 * rng.random(600) ** 3
    expected[:60] = 1.0
    types = rng.integers(0, 2, 600).astype(np.int8)
    labels, how = spread(expected, types)
    assert how.startswith("ranked within each type: the teacher used 2 of 5 grades")
    assert spearman(labels, expected) > 0.9
    assert len(set(labels[:60][types[:60] == 0])) == 1  # equal labels stay equal
    score = calibrate(expected, labels, types).apply(expected, types)
    assert np.bincount(buckets(score), minlength=5).min() > 30
    for kept in (rng.integers(3, 5, 600).astype(float), 1 + 4 * rng.random(600)):
        assert spread(kept, types)[0] is kept


def test_a_score_that_only_repeats_the_domain_is_reported_as_such():
    rng = np.random.default_rng(0)
    domains = rng.integers(0, 5, 2000)
    assert explained(domains.astype(float), domains) == pytest.approx(1)
    assert explained(rng.standard_normal(2000), domains) < 0.02
    report = quality_report(
        score=domains / 5, labels=domains + 1.0, types=np.zeros(2000, np.int8), bucket=domains.astype(np.int8), all_types=np.zeros(2000, np.int8), domains=domains
    )  # fmt: skip
    assert report["variance_explained_by_domain"] == pytest.approx(1)
    assert "the domain explains 100% of the buckets" in report["notes"][0]
    assert report["spearman_within_type"]["prose"]["spearman"] == pytest.approx(1)


def test_spearman_is_the_known_value_with_ties():
    assert spearman(np.array([1, 2, 3, 4, 5]), np.array([5, 6, 7, 8, 7])) == pytest.approx(0.8207826817)  # hand-worked in most textbooks
    assert spearman(np.ones(5), np.arange(5)) == 0


def tops(**probabilities: float) -> list[dict]:
    return [{"token": token, "logprob": float(np.log(value))} for token, value in probabilities.items()]


def position(token: str, **probabilities: float) -> dict:
    return {"token": token, "top_logprobs": tops(**probabilities)}


def test_a_label_is_the_expectation_over_digit_probabilities_or_the_answer_after_thinking():
    mixed = [{"token": " 1", "logprob": np.log(0.6)}, {"token": "5", "logprob": np.log(0.2)}, {"token": "x", "logprob": np.log(0.2)}]
    assert label_of({"logprobs": {"content": [{"top_logprobs": mixed}]}, "message": {"content": "1"}}) == pytest.approx(2.0)
    assert label_of({"message": {"content": "<think>maybe 2 or 3</think>I say 4"}}) == 4
    assert label_of({"message": {"content": "no idea"}}) is None


def test_probabilities_count_where_the_answer_is_and_not_where_it_is_only_thought_about():
    thinking = position("<think>", **{"<think>": 0.999, "2": 1e-9, "5": 1e-12})
    first = {"logprobs": {"content": [thinking]}, "message": {"content": "<think>"}}
    assert label_of(first) is None  # a stray digit among twenty alternatives is no label
    tokens = [thinking, position("1", **{"1": 0.9, "2": 0.1}), position("</think>"), position(" 4", **{" 4": 0.75, "5": 0.25})]
    assert label_of({"logprobs": {"content": tokens}, "message": {"content": "<think>1</think> 4"}}) == pytest.approx(4.25)
    graded = [
        position("**"),
        position("Grade"),
        position(": "),
        position("3", **{"3": 0.5, "4": 0.5}),
        position("/"),
        position("5", **{"5": 1.0}),
    ]
    assert label_of({"logprobs": {"content": graded}, "message": {"content": "**Grade: 3/5**"}}) == pytest.approx(3.5)
    small = {"logprobs": {"content": [position("The", **{"The": 0.4, "1": 0.02, "2": 0.01})]}, "message": {"content": "The"}}
    assert label_of(small) == pytest.approx(4 / 3)  # a small model hides its grade behind a word: the digits still rank
    word = {"logprobs": {"content": [position("One", **{"One": 0.1, "1": 0.06, "2": 0.02})]}, "message": {"content": "One"}}
    assert label_of(word) == pytest.approx(1.25)
    assert label_of({"message": {"content": "One"}}) == 1
    other_scale = {"logprobs": {"content": [position("4", **{"4": 0.9}), position("/10")]}, "message": {"content": "4/10"}}
    assert label_of(other_scale) is None
    verbose = {"logprobs": {"content": [position("The", **{"The": 0.99, "1": 1e-5})]}, "message": {"content": "The"}}
    assert label_of(verbose) is None
    broken = [{"token": "2", "top_logprobs": [{"token": "2", "logprob": float("nan")}]}]
    assert label_of({"logprobs": {"content": broken}, "message": {"content": "2"}}) == 2


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("4", 4), (" **4**", 4), ("4.", 4), ("4/5", 4), ("4 out of 5", 4), ("I would rate this document a 3 out of 5.", 3), ("3.5", 3.5),
        ("Grade: 4\n\nIt has 2 weak sections.", 4), ("It has 2 weak sections. Grade: 4", 4), ('{"grade": 2, "max": 5}', 2),
        ('```json\n{"reason": "3 errors", "score": 4}\n```', 4), ("On a scale from 1 to 5: 2", 2), ("评分：４", 4), ("Four.", 4),
        ("4 because it has 2 issues", 4), ("1. Clear prose\n2. Few errors\n\nScore: 5", 5), ("1. Clear\n2. Good\n3", 3),
        ("<think>2? 3?</think>\n\n5", 5), ("<think>maybe 3, or 4", None), ("I cannot help with that.", None), ("10", None), ("0", None),
        ("6/10", None), ("-3", None), ("", None), ("The quality of these 3 sections varies; 2", 2), ("Die Note ist 3 von 5", 3),
        ("There are 5 reasons why this is a score of 9", None), ("4/10", None), ("Score: 4 out of 10", None), ("5%", None), ("1e-1", None),
    ],
)  # fmt: skip
def test_the_grade_is_found_in_what_models_write(answer: str, grade: float | None):
    assert grade_in(answer) == grade


def test_an_excerpt_shows_beginning_middle_and_end_and_announces_cuts():
    text = "a" * 100 + "b" * 100 + "c" * 100
    assert excerpt(text, 300) == text
    shown = excerpt(text, 30)
    assert shown.count("[... cut ...]") == 2
    assert {"a", "b", "c"} <= set(shown)


class _Teacher(BaseHTTPRequestHandler):
    asked: list[str]
    dead_after: int = 10**9
    context: int = 10**9
    mute: str = "\0"
    rejected: tuple[str, ...] = ()
    """Options answered with status 400, as OpenAI's reasoning models do."""
    bodies: list[dict]
    raw: bytes = b""
    """Sent instead of an answer."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, text = type(self), body["messages"][1]["content"]
        kind.asked.append(text)
        kind.bodies.append(body)
        status = 200
        for option in kind.rejected:
            if option in body:
                complaint = {"error": {"message": f"Unsupported parameter: '{option}' is not supported with this model."}}
                self.send_response(400)
                self.end_headers()
                self.wfile.write(json.dumps(complaint).encode())
                return
        if len(kind.asked) > kind.dead_after:
            status = 500
        elif len(text) > kind.context:
            status = 400
        answer = "?" if kind.mute in text else str(1 + text.count("good") % 5)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(kind.raw or json.dumps({"choices": [{"message": {"content": answer}}]}).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def teacher(monkeypatch: pytest.MonkeyPatch):
    class Handler(_Teacher):
        asked, bodies = [], []

    monkeypatch.setattr(teacher_module.time, "sleep", lambda seconds: None)
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield EndpointConfig(url=f"http://127.0.0.1:{http.server_address[1]}/v1", model="m", max_retries=2, excerpt_chars=300), Handler
    http.shutdown()
    http.server_close()


def ask(config: EndpointConfig, texts: list[str], file: Path) -> np.ndarray:
    return endpoint_labels([str(index) for index in range(len(texts))], texts, ["prose"] * len(texts), config, file)


def test_every_document_is_asked_for_alone_and_a_second_run_asks_for_none(teacher, tmp_path: Path):
    config, server = teacher
    texts = ["good " * count for count in (0, 1, 2, 3, 4)]
    assert ask(config, texts, tmp_path / "l").tolist() == [1, 2, 3, 4, 5]
    assert len(server.asked) == 5
    with (tmp_path / "l").open("a") as log:
        log.write('{"id": "9", "lab')  # cut by a kill
    assert ask(config, texts, tmp_path / "l").tolist() == [1, 2, 3, 4, 5]
    assert len(server.asked) == 5


def test_a_line_cut_by_a_kill_does_not_spoil_the_label_after_it(teacher, tmp_path: Path):
    config, server = teacher
    (tmp_path / "l").write_text('5\n{"id": "7"}\n{"id": "9", "lab')
    ask(config, ["good"] * 3, tmp_path / "l")
    server.asked.clear()
    ask(config, ["good"] * 3, tmp_path / "l")
    assert server.asked == []


def test_options_a_server_does_not_know_are_left_out_and_nothing_is_shown_shorter_for_it(teacher, tmp_path: Path):
    config, server = teacher
    server.rejected = ("max_tokens", "temperature", "logprobs")
    texts = ["good " * count + "x" * 250 for count in (0, 1, 2)]
    assert ask(replace(config, concurrency=1), texts, tmp_path / "l").tolist() == [1, 2, 3]
    assert len(server.asked) == 3 + 3  # each option was refused once, not once a document
    assert all(text in shown for text, shown in zip(texts, server.asked[3:]))
    assert "max_completion_tokens" in server.bodies[-1]


def test_labels_are_kept_for_later_builds_unless_something_else_would_be_asked():
    asked = EndpointConfig(url="http://a/v1", model="m")
    for change in ({"url": "http://b/v1"}, {"model": "n"}, {"excerpt_chars": 500}):
        assert teacher_key(replace(asked, **change)) != teacher_key(asked)
    assert teacher_key(replace(asked, timeout_s=1.0, concurrency=9, max_retries=0, api_key_variable="K")) == teacher_key(asked)


def test_a_server_that_dies_aborts_and_the_next_run_asks_only_for_the_rest(teacher, tmp_path: Path):
    config, server = teacher
    server.dead_after = 60
    texts = [f"document {index} good" for index in range(120)]
    with pytest.raises(SourceError, match="failed on"):
        ask(config, texts, tmp_path / "l")
    kept = len((tmp_path / "l").read_text().splitlines())
    assert kept >= 50
    server.dead_after = 10**9
    server.asked.clear()
    assert len(ask(config, texts, tmp_path / "l")) == 120
    assert len(server.asked) == 120 - kept


@pytest.mark.parametrize(
    "raw",
    [
        b"<html>It works!</html>",
        b"[]",
        b'{"choices": []}',
        b'{"choices": ["3"]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"message": {"content": 3}}]}',
        b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": "3"}]}]}}]}',
        b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [{"token": 3, "logprob": null}]}]}}]}',
    ],
)
def test_a_server_that_answers_something_else_is_named_and_nothing_is_taken_for_a_label(teacher, tmp_path: Path, raw: bytes):
    config, server = teacher
    server.raw = raw
    with pytest.raises(SourceError, match="failed on 3 of 3 documents: the answer is no chat completion"):
        ask(config, ["good"] * 3, tmp_path / "l")
    assert (tmp_path / "l").read_text() == ""


def test_a_server_that_never_answers_is_given_up_and_named(teacher, tmp_path: Path):
    config, _ = teacher
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        silent = replace(config, url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", timeout_s=0.1, max_retries=1)
        with pytest.raises(SourceError, match="failed on 2 of 2 documents: ReadTimeout"):
            ask(silent, ["good"] * 2, tmp_path / "l")


def test_one_document_without_a_label_fails_the_set(teacher, tmp_path: Path):
    config, server = teacher
    server.mute = "odd one"
    with pytest.raises(SourceError, match="left 1 of 30 documents without a label"):
        ask(config, ["good"] * 29 + ["odd one"], tmp_path / "l")


def test_a_document_too_long_for_the_server_is_shown_in_part_rather_than_lost(teacher, tmp_path: Path):
    config, server = teacher
    server.context = 250
    assert len(ask(config, ["good " * 500], tmp_path / "l")) == 1
    assert len(server.asked) >= 2


def test_the_whole_path_works_on_an_endpoints_answers_and_survives_saving(teacher, tmp_path: Path):
    config, _ = teacher
    rng = random.Random(2)
    texts = pa.array([prose(rng)[:200] + " good" * rng.randrange(5) for _ in range(200)])
    ids = [str(index) for index in range(200)]
    vectors = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    groups = np.zeros(200, np.int64)
    model = fit_quality(ids, texts, vectors, groups, QualityConfig(teacher=config), labels_file=tmp_path / "l")
    assert model.report["teacher"].startswith("m at an OpenAI-compatible endpoint")
    assert model.report["spearman"] > 0.7
    save_quality(model, tmp_path / "q.npz")
    with np.load(tmp_path / "q.npz") as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        facts["cuts"]["default"][1] += 0.1
        np.savez(tmp_path / "other.npz", **(dict(arrays) | {"facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)}))
    with pytest.raises(DataError, match="weights or cuts do not match"):
        load_quality(tmp_path / "other.npz")
    loaded = load_quality(tmp_path / "q.npz")
    np.testing.assert_array_equal(loaded.score(texts, vectors).score, model.score(texts, vectors).score)


@pytest.mark.parametrize("num", [1, 2, 5, 19])
def test_a_handful_of_documents_is_not_judged_and_the_report_says_so(tmp_path: Path, num: int):
    texts, vectors = pa.array([PROSE + str(index) for index in range(num)]), np.eye(32, dtype=np.float32)[:num]
    model = fit_quality(
        [str(index) for index in range(num)], texts, vectors, np.zeros(num, np.int64), QualityConfig(), labels_file=tmp_path / "l"
    )
    assert model.report["teacher"].startswith(f"none: {num} documents are too few")
    assert set(model.score(pa.array([PROSE, CODE, MATH, ""]), np.eye(32, dtype=np.float32)[:4]).bucket) == {2}


def test_a_run_says_when_its_teacher_only_repeated_the_domain(teacher, tmp_path: Path, capsys: pytest.CaptureFixture):
    config, _ = teacher
    rng, lines = random.Random(5), []
    for index in range(60):
        recipe = " ".join(rng.choice(("boil", "butter", "oven", "flour", "salt", "the", "and", "with", "dough", "of")) for _ in range(80))
        lines += [{"text": f"{prose(rng)} {index}"}, {"text": f"The good good good good {recipe}. {index}"}]  # grades 1 and 5
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    (tmp_path / "r.toml").write_text(
        f"""schema = 1
name = "n"
[[sources]]
name = "d"
path = "d.jsonl"
licence = "CC0"
[build.quality.teacher]
url = "{config.url}"
model = "m"
"""
    )
    assert run(["curate", "run", str(tmp_path / "r.toml"), "--lab", str(tmp_path / "lab")]) == 0
    assert "quality: the domain explains" in capsys.readouterr().err
