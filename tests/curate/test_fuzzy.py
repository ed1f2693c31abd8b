"""Near-duplicates: the hashes follow the collision curve, groups do not depend on order, and every removal has a kept holder."""

from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest

from forerun.base.errors import ConfigError
from forerun.curate.text import survivors as survivors_module
from forerun.curate.text.fuzzy import near_duplicates, removal_report
from forerun.curate.text.lsh import band_keys, components, components_of, links
from forerun.curate.text.minhash import PRESETS, MinHashConfig, signatures
from forerun.curate.text.survivors import SurvivorConfig, decide
from forerun.curate.text.words import ngram_hashes, word_hashes

VOCABULARY = [f"{a}{b}" for a in "bcdfghklmnprstvz" for b in ("ano", "ike", "urm", "oled", "est", "agi", "yn", "orth")]
CHINESE = "春眠不觉晓处处闻啼鸟夜来风雨声花落知多少床前明月光疑是地上霜举头望低思故乡白日依山尽黄河入海流欲穷千里目更上一层楼"
JAPANESE = "いろはにほへとちりぬるをわかよたれそつねならむうゐのおくやまけふこえてあさきゆめみしゑひもせす東京都市大学研究学生先生"
THAI = "กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอาเแโใไ"


def sentence(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(num_words))


def documents(texts: list[str], source: str | list[str] = "s") -> pa.Table:
    sources = [source] * len(texts) if isinstance(source, str) else source
    return pa.table({"id": [f"{index:06d}" for index in range(len(texts))], "source": sources, "text": pa.array(texts, pa.large_string())})


def grouped(texts: list[str], config: MinHashConfig) -> np.ndarray:
    signature, has_text = signatures(pa.array(texts), config)
    return components(band_keys(signature, config), has_text)


def jaccard(one: set, other: set) -> float:
    return len(one & other) / len(one | other)


def test_words_ignore_case_punctuation_accents_and_line_breaks():
    hashes, starts = word_hashes(
        pa.array(
            ["The cat, sat.", "the CAT\nsat", "naïve ÜBER", "naive uber", "na\u00adive u\u0308ber", "ｎａｉｖｅ uber", "", "the cats at"]
        )
    )
    words = [hashes[a:b].tolist() for a, b in zip(starts, starts[1:])]
    assert words[0] == words[1] != words[7]
    assert words[2] == words[3] == words[4] == words[5]
    assert [len(part) for part in words] == [3, 3, 2, 2, 2, 2, 0, 3]


def test_tokens_keep_punctuation_and_fold_only_case():
    hashes, starts = word_hashes(pa.array(["# Foo(a)", "// foo(a)", "// FOO(A)", "nai\u0308ve", "naive"]), "tokens")
    tokens = [hashes[a:b].tolist() for a, b in zip(starts, starts[1:])]
    assert tokens[0] != tokens[1] == tokens[2]
    assert tokens[3] != tokens[4]


def test_tokens_are_those_of_splitting_at_white_space_whatever_other_control_characters_there_are():
    texts = [f"a{chr(code)}b c{chr(code)}{chr(code)} {chr(code)}d " + "word " * 20 * (code % 2) for code in range(2, 0x100)]
    _, starts = word_hashes(pa.array(texts), "tokens")
    assert np.diff(starts).tolist() == [len(text.split()) for text in texts]


def test_unspaced_characters_are_words_of_their_own_and_weigh_less():
    hashes, starts = word_hashes(pa.array(["漢字かな交じり", "ภาษาไทย", "한국어 문장", "abc漢字"]))
    assert np.diff(starts).tolist() == [7, 7, 2, 3]
    _, gram_starts = ngram_hashes(hashes, starts, 3)
    assert np.diff(gram_starts).tolist() == [2, 1, 1, 1]  # 6 of 7 kana; 7 Thai characters weigh less than 3 words; abc + 2 halves = 2 words


def test_grams_of_a_passage_are_grams_of_every_text_that_holds_it():
    rng = random.Random(0)
    passage = f"{sentence(rng, 20)} 漢字かな交じり文 {sentence(rng, 5)} ภาษาไทยเป็นภาษา {sentence(rng, 9)}"
    hashes, starts = word_hashes(pa.array([passage, f"{sentence(rng, 7)} {passage} {sentence(rng, 7)}"]))
    for n in (1, 3, 13):
        grams, gram_starts = ngram_hashes(hashes, starts, n)
        parts = [set(grams[a:b].tolist()) for a, b in zip(gram_starts, gram_starts[1:])]
        assert parts[0] < parts[1]


def shingles_by_hand(text: str, size: int) -> set[str]:
    kept = "".join(char for char in text.lower() if char.isalnum() or char.isspace())
    plain = " ".join(kept.split())
    return {plain[index : index + size] for index in range(max(1, len(plain) - size + 1))}


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_candidates_are_found_as_often_as_the_collision_curve_says(noise):
    rng = random.Random(1)
    for config, size in ((PRESETS["marin"], 5), (PRESETS["fineweb"], 5)):
        texts, expected = [], []
        for _ in range(150):
            words = sentence(rng, 250).split()
            changed = [rng.choice(VOCABULARY) if rng.random() < noise else word for word in words]
            texts += [" ".join(words), " ".join(changed)]
            if config.shingle == "characters":
                sets = [shingles_by_hand(text, size) for text in texts[-2:]]
            else:
                sets = [{tuple(part[i : i + size]) for i in range(len(part) - size + 1)} for part in (words, changed)]
            expected.append(1 - (1 - jaccard(*sets) ** config.rows) ** config.bands)
        component = grouped(texts, config)
        together = np.mean(component[0::2] == component[1::2])
        assert together == pytest.approx(np.mean(expected), abs=0.11)  # three standard errors of 150 pairs
        if config.shingle == "words":  # random words from a small vocabulary share many character 5-grams by chance
            assert len(set(component.tolist())) > 150 - 3


def test_texts_of_nine_words_meet_as_often_as_the_curve_says():
    rng = random.Random(4)
    texts = []
    for _ in range(600):
        words = [f"{rng.choice(VOCABULARY)}{rng.randrange(1000)}" for _ in range(9)]
        texts += [" ".join(words), " ".join([*words[:8], "other"])]  # 4 of 6 shingles shared
    component = grouped(texts, PRESETS["fineweb"])
    expected = 1 - (1 - (4 / 6) ** 8) ** 14
    assert np.mean(component[0::2] == component[1::2]) == pytest.approx(expected, abs=0.06)  # three standard errors of 600 pairs


def test_a_signature_agrees_in_as_many_places_as_the_sets_overlap():
    rng = random.Random(2)
    base = [rng.choice(VOCABULARY) + str(rng.randrange(100)) for _ in range(800)]
    other = base[:600] + [rng.choice(VOCABULARY) + str(rng.randrange(100)) for _ in range(200)]
    texts = [" ".join(base), " ".join(other)]
    signature, _ = signatures(pa.array(texts), MinHashConfig(bands=100, rows=20))
    exact = jaccard(*(shingles_by_hand(text, 5) for text in texts))
    assert np.mean(signature[0] == signature[1]) == pytest.approx(exact, abs=0.04)  # 3 standard errors of 2,000 hashes


def test_punctuation_case_and_wrapping_do_not_change_a_signature():
    one = "The quick brown fox, it is said, jumps over the lazy dog; then it sleeps."
    other = "the QUICK brown fox\nit is said  jumps over\n\nthe lazy dog then it sleeps"
    for config in PRESETS.values():
        signature, _ = signatures(pa.array([one, other]), config)
        np.testing.assert_array_equal(signature[0], signature[1])


def test_any_mixture_of_words_marks_and_spaces_is_folded_as_if_character_by_character():
    rng = random.Random(8)
    pieces = [
        "a",
        "Z",
        "7",
        "word",
        "MiXed",
        " ",
        "  ",
        "\n",
        "\t\r",
        "\x0b",
        "\x7f",
        "\x1f",
        ".",
        ",;",
        "--",
        "'",
        "é",
        "Ж",
        "漢",
        "—",
        "\u00ad",
    ]
    texts = ["".join(rng.choice(pieces) for _ in range(rng.randrange(1, 400))) for _ in range(300)]
    texts += [" " * 63 + mark + "x" * 5 + mark * 2 + " y" * 70 for mark in "., a"]  # edges of what is read at once
    separators = re.compile(r"[\s\x00-\x20\x7f]+")
    by_hand = [separators.sub(" ", re.sub(r"[^\w\s\x00-\x20\x7f]|\u00ad|—", "", text)).strip().lower().replace("é", "e") for text in texts]
    config = MinHashConfig(bands=2, rows=8)
    folded, _ = signatures(pa.array(texts), config)
    np.testing.assert_array_equal(folded, signatures(pa.array(by_hand), config)[0])


def test_a_signature_does_not_depend_on_the_documents_around_it():
    rng = random.Random(3)
    texts = [sentence(rng, rng.randrange(1, 3000)) for _ in range(20)]
    for config in PRESETS.values():
        together, _ = signatures(pa.chunked_array([texts[:7], texts[7:]]), config)
        for index in (0, 6, 7, 19):
            alone, _ = signatures(pa.array([texts[index]]), config)
            np.testing.assert_array_equal(together[index], alone[0])


def test_bytes_that_are_no_text_have_no_shingle_and_do_no_harm():
    broken = pa.array([b"\x80" * 3_000_000, b"word " * 50]).cast(pa.large_binary()).view(pa.large_string())
    _, has_text = signatures(broken, MinHashConfig(max_chars=1000))
    assert has_text.tolist() == [False, True]


def test_documents_without_a_word_join_nobody_and_short_equal_ones_join():
    texts = ["", "...", "", None, "two words", "Two, words!", "other words"]
    for config in PRESETS.values():
        component = grouped(texts, config)
        assert component.tolist() == [0, 1, 2, 3, 4, 4, 6]


def test_a_document_of_millions_of_characters_does_not_glue_strangers_together():
    rng = random.Random(4)
    letters = "abcdefghijklmnopqrstuvwxyz"
    strangers = [sentence(rng, 150) for _ in range(30)]
    huge = " ".join("".join(rng.choices(letters, k=rng.randrange(2, 9))) for _ in range(300_000)) + " ".join(strangers)
    assert len(huge) > 1_500_000
    component = grouped([huge, *strangers], MinHashConfig(shingle_size=3, max_chars=500_000))
    assert component[0] == 0
    assert not (component[1:] == 0).any()
    cut = MinHashConfig(max_chars=200)
    one, two = "x" * 3 + " " + "long tail of words " * 50, "x" * 3 + " " + "long tail of words " * 50
    signature, _ = signatures(pa.array([one + "漢字" * 400, two]), cut)
    np.testing.assert_array_equal(signature[0], signature[1])  # what follows the cap is not read


def test_components_of_a_long_path_converge_in_one_component_in_any_order():
    num = 5000
    path, order = np.random.default_rng(1).permutation(num), np.random.default_rng(0).permutation(num - 1)
    assert (
        components_of(path[:-1][order], path[1:][order], num) == 0
    ).all()  # numbers in disorder: along 0, 1, 2, ... half a search would do


def test_components_are_the_same_groups_for_shuffled_documents_and_split_work():
    rng = random.Random(5)
    texts = []
    for _ in range(60):
        words = sentence(rng, 120).split()
        texts += [" ".join(words)] + [" ".join(w if rng.random() > 0.02 else rng.choice(VOCABULARY) for w in words) for _ in range(2)]
    config = PRESETS["fineweb"]
    whole = grouped(texts, config)
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = grouped([texts[index] for index in order], config)
    groups = {frozenset(np.flatnonzero(whole == root).tolist()) for root in set(whole.tolist())}
    assert groups == {frozenset(order[shuffled == root].tolist()) for root in set(shuffled.tolist())}
    pieces = np.concatenate([signatures(pa.array(texts[start : start + 37]), config)[0] for start in range(0, len(texts), 37)])
    found = [links(band) for band in band_keys(pieces, config)]
    joined = components_of(np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found]), len(texts))
    np.testing.assert_array_equal(joined, whole)


def by_definition(texts: list[str], ids: list[str], component: np.ndarray, threshold: float, template_documents: int = 8) -> dict[str, str]:
    """Every member against every kept one, in sets of Python tuples."""
    removed = {}
    for root in set(component.tolist()):
        members = np.flatnonzero(component == root).tolist()
        tokens = {member: re.split(r"\s+", texts[member].lower().strip()) for member in members}
        grams = {m: {tuple(t[i : i + 3]) for i in range(max(1, len(t) - 2))} for m, t in tokens.items()}
        kept: list[int] = []
        for member in sorted(members, key=lambda m: (-len(tokens[m]), ids[m])):
            template = {gram for gram in grams[member] if sum(gram in grams[other] for other in kept) >= template_documents}
            own = grams[member] - template
            share = [len(grams[member] & grams[other]) / len(grams[member]) for other in kept]
            for index, other in enumerate(kept):
                if len(own) >= 0.1 * len(grams[member]) and len(own & grams[other]) / len(own) < threshold:
                    share[index] = 0.0
            if share and max(share) >= threshold:
                removed[ids[member]] = ids[kept[int(np.argmax(share))]]
            else:
                kept.append(member)
    return removed


@pytest.mark.parametrize(("threshold", "template_documents"), [(0.5, 3), (0.75, 3), (0.98, 3), (0.5, 2), (0.75, 1000)])
def test_decisions_are_those_of_comparing_everything_with_everything(threshold, template_documents):
    rng = random.Random(6)
    parts = [sentence(rng, 30) for _ in range(12)]
    texts = []
    for _ in range(160):
        words = " ".join(rng.sample(parts, rng.randrange(1, 6))).split()
        texts.append(" ".join(word if rng.random() > 0.03 else rng.choice(VOCABULARY) for word in words))
    ids = [f"{index:03d}" for index in np.random.default_rng(2).permutation(160)]
    component = np.arange(160) % 3
    config = SurvivorConfig(containment=threshold, template_documents=template_documents)
    table = decide(ids, ["s"] * 160, pa.array(texts), component, config)
    removed = by_definition(texts, ids, component, threshold, template_documents)
    assert dict(zip(table["id"].to_pylist(), table["kept_id"].to_pylist())) == removed
    assert table.num_rows > 10


def test_a_decision_row_says_what_was_compared_and_what_is_lost():
    kept = "one two three four five six seven eight nine ten eleven twelve"
    gone = "one two three four five six seven eight nine ten NOVEL"
    table = decide(["k", "g"], ["a", "b"], pa.array([kept, gone]), np.zeros(2, np.int64), SurvivorConfig())
    assert table.to_pylist() == [
        {"id": "g", "source": "b", "kept_id": "k", "kept_source": "a", "cluster": "g", "cluster_size": 2, "containment": 8 / 9,
         "jaccard": 8 / 11, "comparisons": 1, "novel_grams": 1, "novel_words": 1}
    ]  # fmt: skip


def test_a_chain_of_lookalikes_loses_only_what_a_kept_document_holds():
    rng = random.Random(7)
    parts = [sentence(rng, 60) for _ in range(6)]
    chain = [f"{a} {b}" for a, b in zip(parts, parts[1:])]  # each shares half with its neighbour, ends share nothing
    texts = [*chain, parts[2]]
    ids = [f"{i:02d}" for i in range(len(texts))]
    decided = decide(ids, ["s"] * len(texts), pa.array(texts), np.zeros(len(texts), np.int64), SurvivorConfig())
    assert decided["id"].to_pylist() == ["05"]
    assert decided["containment"].to_pylist() == [1.0]
    assert decided["kept_id"].to_pylist()[0] in ("01", "02")


def test_a_source_of_filled_in_templates_keeps_what_each_document_says():
    rng = random.Random(8)
    licence = sentence(rng, 120)
    texts = [f"{licence} {sentence(rng, 70)}" for _ in range(300)]  # 63% template, the rest its own
    table = documents(texts, "templated")
    removed = decide(table["id"].to_pylist(), ["templated"] * 300, table["text"], np.zeros(300, np.int64), SurvivorConfig())
    assert removed.num_rows == 0
    assert near_duplicates(table, PRESETS["fineweb"], SurvivorConfig()).num_rows == 0


def test_short_files_under_one_licence_are_kept_for_what_they_say_and_copies_of_them_still_go():
    """A licence of 120 words and 12 to 60 of its own: each file's grams are for the larger part the licence's."""
    rng = random.Random(11)
    licence = sentence(rng, 120)
    files = [f"{licence} {sentence(rng, rng.randrange(12, 60))}" for _ in range(200)]
    copies = [f"{text} {sentence(rng, 2)}" for text in files[:50]]
    texts = [*files, *copies]
    table = decide([f"{i:03d}" for i in range(250)], ["s"] * 250, pa.array(texts), np.zeros(250, np.int64), SurvivorConfig())
    pairs = set(zip(map(int, table["id"].to_pylist()), map(int, table["kept_id"].to_pylist())))
    assert len(pairs & {(index, 200 + index) for index in range(50)}) >= 48  # each original in its longer copy
    assert len(pairs) <= 50 + 10  # of 200 files at most 5% go for the licence


def test_code_that_differs_in_comment_marks_only_is_not_one_document():
    rng = random.Random(11)
    lines = [sentence(rng, 8).split() for _ in range(40)]
    texts = ["\n".join(f"{mark} " + f" {mark} ".join(line) for line in lines) for mark in ("//", "--", "")]
    table = decide(["a", "b", "c"], ["s"] * 3, pa.array(texts), np.zeros(3, np.int64), SurvivorConfig())
    assert table.num_rows == 0


def test_edited_copies_are_found_though_their_rarest_grams_are_their_own():
    rng = random.Random(9)
    text = sentence(rng, 400).split()
    texts = [" ".join(text)]
    for index in range(300):
        edited = text.copy()
        for _ in range(20):  # some 60 grams of its own: more than the 32 that the original probed with
            edited[rng.randrange(400)] = f"only{index}x{rng.randrange(10**6)}"
        texts.append(" ".join(edited))
    removed = decide([f"{i:03d}" for i in range(301)], ["s"] * 301, pa.array(texts), np.zeros(301, np.int64), SurvivorConfig())
    assert removed.num_rows == 300
    assert set(removed["kept_id"].to_pylist()) == {"000"}


def test_removed_documents_never_hold_and_never_use_up_comparisons():
    rng = random.Random(10)
    text = sentence(rng, 300)
    texts = [text] * 50 + [f"{text} {sentence(rng, 2)}" for _ in range(50)]
    table = decide([f"{i:03d}" for i in range(100)], ["s"] * 100, pa.array(texts), np.zeros(100, np.int64), SurvivorConfig())
    assert table.num_rows == 99
    assert not set(table["id"].to_pylist()) & set(table["kept_id"].to_pylist())
    assert table["comparisons"].to_pylist() == [1] * 99


def test_decisions_do_not_depend_on_the_order_of_documents():
    rng = random.Random(11)
    text = sentence(rng, 100).split()
    texts = [" ".join(word if rng.random() > 0.04 else rng.choice(VOCABULARY) for word in text) for _ in range(120)] + [sentence(rng, 90)]
    table = documents(texts, [f"s{index % 3}" for index in range(121)])
    whole = near_duplicates(table, PRESETS["fineweb"], SurvivorConfig())
    assert whole.num_rows > 20
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(121)
        assert near_duplicates(table.take(pa.array(order)), PRESETS["fineweb"], SurvivorConfig()).equals(whole)


def test_exempt_sources_lose_nothing_and_may_hold_others():
    rng = random.Random(12)
    text = sentence(rng, 200)
    texts = [f"{text} {sentence(rng, 3)}" for _ in range(40)]
    table = documents(texts, ["synthetic"] * 20 + ["web"] * 20)
    removed = near_duplicates(table, PRESETS["fineweb"], SurvivorConfig(exempt_sources=("synthetic",)))
    assert removed.num_rows == 20
    assert set(removed["source"].to_pylist()) == {"web"}
    report = removal_report(table["source"], removed)
    assert report == {"removed_share": {"web": 1.0}, "suspicious": ["web"]}


def test_the_better_copy_survives_when_asked_for_and_the_longer_one_otherwise():
    rng = random.Random(13)
    source = sentence(rng, 200)
    derivative = f"{source} {sentence(rng, 20)}"
    table = documents([source, derivative])
    component, scores = np.zeros(2, np.int64), np.array([0.9, 0.1])
    longest = decide(["source", "derivative"], ["s", "s"], table["text"], component, SurvivorConfig())
    assert longest["kept_id"].to_pylist() == ["derivative"]
    best = decide(["source", "derivative"], ["s", "s"], table["text"], component, SurvivorConfig(survivor="quality"), quality=scores)
    assert best["kept_id"].to_pylist() == ["source"]
    with pytest.raises(ConfigError, match="needs a quality score"):
        decide(["source", "derivative"], ["s", "s"], table["text"], component, SurvivorConfig(survivor="quality"))


def test_a_page_broken_by_markup_loses_against_its_clean_copy_by_the_rules_on_text():
    rng = random.Random(14)
    clean = ". ".join(f"The {sentence(rng, 6)} of the {sentence(rng, 4)} was in it" for _ in range(30)) + "."
    broken = clean.replace(". ", ". ||| <<<>>> === ;;; ") + " |||" * 40
    others = [
        ", ".join(
            f"THE {sentence(rng, 2 + index)} of the {sentence(rng, 9 - index)} was in {index} ({2 * index})" for _ in range(10 + 5 * index)
        )
        for index in range(8)
    ]
    table = documents([clean, broken, *others])
    fuzzy = MinHashConfig(shingle="words", bands=14, rows=8)
    removed = near_duplicates(table, fuzzy, SurvivorConfig(survivor="quality", containment=0.6))
    assert (removed["id"].to_pylist(), removed["kept_id"].to_pylist()) == (["000001"], ["000000"])


def test_one_giant_bucket_costs_a_comparison_a_document_and_is_solved_in_pieces_when_too_large(monkeypatch):
    rng = random.Random(15)
    text = sentence(rng, 60)
    texts = [f"{text} {rng.randrange(10**9)}" for _ in range(20_000)]
    table = documents(texts)
    removed = near_duplicates(table, PRESETS["fineweb"], SurvivorConfig())
    assert removed.num_rows == 19_999
    assert removed["comparisons"].to_numpy().max() == 1
    monkeypatch.setattr(survivors_module, "MOST_GRAMS", 200_000)  # pieces of about 3,300 documents
    in_pieces = near_duplicates(table, PRESETS["fineweb"], SurvivorConfig())
    assert 19_000 < in_pieces.num_rows <= 19_999
    assert set(in_pieces["kept_id"].to_pylist()).isdisjoint(in_pieces["id"].to_pylist())


@pytest.mark.parametrize(("script", "length"), [(CHINESE, 300), (JAPANESE, 300), (THAI, 600)], ids=["Chinese", "Japanese", "Thai"])
@pytest.mark.parametrize("preset", ["marin", "fineweb"])
def test_near_duplicates_are_found_and_strangers_stay_apart_in_unspaced_scripts(script, length, preset):
    rng = random.Random(16)
    texts = []
    for _ in range(40):
        text = "".join(rng.choices(script, k=length))
        place = rng.randrange(length - 4)
        texts += [text, text[:place] + rng.choice(script) + text[place + 1 :] + "。"]
    table = documents(texts)
    component = grouped(texts, PRESETS[preset])
    assert np.mean(component[0::2] == component[1::2]) > 0.9
    assert len(set(component.tolist())) >= 38
    removed = near_duplicates(table, PRESETS[preset], SurvivorConfig())
    assert removed.num_rows > 36
    assert all(int(gone) // 2 == int(kept) // 2 for gone, kept in zip(removed["id"].to_pylist(), removed["kept_id"].to_pylist()))


def test_settings_that_make_no_sense_are_refused_by_name():
    for wrong in ({"shingle_size": 9}, {"shingle_size": 1}, {"bands": 0}, {"shingle": "words", "shingle_size": 40}, {"max_chars": 0}):
        with pytest.raises(ConfigError, match="fuzzy"):
            MinHashConfig(**wrong)
    with pytest.raises(ConfigError, match="containment"):
        SurvivorConfig(containment=0)
