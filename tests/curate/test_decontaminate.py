"""Leaked evaluation items are found however they are hidden, attributed to the item, and clean text is left alone."""

from __future__ import annotations

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forerun.base.errors import ConfigError, DataError
from forerun.curate.text import leaks
from forerun.curate.text.decontaminate import DecontaminateConfig, contaminated, search
from forerun.curate.text.evals import load_evals
from forerun.curate.text.gram_index import build_index, scan

VOCABULARY = [f"{a}{b}" for a in "bcdfghklmnprstvz" for b in ("ano", "ike", "urm", "oled", "est", "agi", "yn", "orth")]
LEAK = "Which of the seven hills of the old town carries the bell tower that rings backwards at noon on the longest day of the year?"


def sentence(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(num_words))


def items_of(**texts: str) -> pa.Table:
    return pa.table({"id": list(texts), "text": pa.array(list(texts.values()), pa.large_string())})


def found(texts: list[str], items: pa.Table, config: DecontaminateConfig | None = None, sources: list[str] | None = None) -> dict[str, str]:
    ids = [f"{index:03d}" for index in range(len(texts))]
    rows = contaminated(ids, sources or ["s"] * len(texts), pa.array(texts), items, config or DecontaminateConfig())
    return dict(zip(rows["id"].to_pylist(), rows["item"].to_pylist()))


HIDDEN = {
    "verbatim": lambda text, rng: text,
    "re-wrapped": lambda text, rng: text.replace(" ", "\n"),
    "upper case": lambda text, rng: text.upper(),
    "other punctuation": lambda text, rng: "“" + text.replace("?", " …").replace(" of ", " - of, ") + "”",
    "blank lines": lambda text, rng: text.replace(" the ", "\n\nthe\n\n"),
    "inside filler": lambda text, rng: f"{sentence(rng, 4000)} {text} {sentence(rng, 4000)}",
    "soft hyphens": lambda text, rng: text.replace("tower", "to\u00adwer"),
}


@pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN)
def test_leaked_items_are_found_and_attributed_however_they_are_hidden(hide):
    rng = random.Random(4)
    texts = [sentence(rng, 200) for _ in range(50)] + [hide(LEAK, rng)]
    assert found(texts, items_of(other=sentence(rng, 30), leak=LEAK)) == {"050": "leak"}


@pytest.mark.parametrize(("num_words", "expected"), [(4, {}), *((n, {"001": "short"}) for n in (5, 6, 9, 12, 13))])
def test_short_items_are_found_as_a_whole_and_only_as_a_whole(num_words, expected):
    rng = random.Random(5)
    item = " ".join(f"unusual{index}" for index in range(num_words))
    all_but_one = " ".join(item.split()[1:])
    texts = [f"{sentence(rng, 30)} {all_but_one} {sentence(rng, 30)}", f"{sentence(rng, 30)} {item.upper()}! {sentence(rng, 30)}"]
    assert found(texts, items_of(short=item)) == expected
    result = search(["a", "b"], ["s", "s"], pa.array(texts), items_of(short=item), DecontaminateConfig())
    assert result.too_short == (("short",) if num_words < 5 else ())


@pytest.mark.parametrize(
    ("item", "other"),
    [
        ("下列哪一座山上有一座在一年中最长的一天中午倒着敲响的钟楼", "下列哪一座桥边有一间在一年中最冷的一天夜里亮着灯火的书店"),
        ("旧市街の七つの丘のうち、一年で最も長い日の正午に逆さに鳴る鐘楼があるのはどれですか", "新市街の三つの駅のうち、一年で最も寒い日の夜に静かに光る時計台があるのはどこでしょう"),
        ("หอระฆังที่ตีย้อนกลับตอนเที่ยงวันในวันที่ยาวที่สุดของปีตั้งอยู่บนเนินเขาใดของเมืองเก่า", "ร้านหนังสือที่เปิดไฟสว่างในคืนที่หนาวที่สุดของเดือนตั้งอยู่ริมสะพานใดของเมืองใหม่"),
        ("春眠不觉晓，处处闻啼鸟", "夜来风雨声，花落知多少"),
    ],
    ids=["Chinese", "Japanese", "Thai", "short Chinese"],
)  # fmt: skip
def test_items_in_unspaced_scripts_are_found_inside_running_text(item, other):
    filler = "今天天气很好我们一起去公园散步吧" * 3
    texts = [f"{filler}{item}{filler}", f"{filler}{other}{filler}", filler, f"some English words {item.replace('，', ' ')} and more"]
    assert found(texts, items_of(item=item)) == {"000": "item", "003": "item"}


def test_every_item_a_document_holds_is_named_and_the_best_comes_first():
    rng = random.Random(6)
    first, second, third = sentence(rng, 40), sentence(rng, 20), sentence(rng, 40)
    half = " ".join(third.split()[:30])
    rows = contaminated(
        ["d"], ["s"], pa.array([f"{second} x {half} y {first}"]), items_of(a=first, b=second, c=third), DecontaminateConfig()
    )
    assert rows["items"].to_pylist() == [["a", "b", "c"]]
    assert rows["item_share"].to_pylist() == [1.0]
    assert first.split()[0] in rows["excerpt"].to_pylist()[0] or second.split()[0] in rows["excerpt"].to_pylist()[0]


def test_an_excerpt_of_a_long_item_is_found_by_its_paragraph():
    rng = random.Random(7)
    passage = sentence(rng, 900)
    excerpt = " ".join(passage.split()[300:380])
    texts = [f"{sentence(rng, 500)}\n\n{excerpt}\n \n{sentence(rng, 500)}", f"{sentence(rng, 500)} {' '.join(passage.split()[100:115])}"]
    rows = contaminated(["long", "quotation"], ["s", "s"], pa.array(texts), items_of(passage=passage), DecontaminateConfig())
    assert rows["id"].to_pylist() == ["long"]
    assert rows["paragraph_share"].to_pylist() == [1.0]
    assert rows["item_share"].to_pylist()[0] < 0.5


def test_number_runs_and_refrains_are_not_evidence():
    numbers = " ".join(str(index) for index in range(40))
    refrain = "la " * 40
    texts = [f"table {numbers} end", f"song {refrain} end"]
    assert found(texts, items_of(numbers=numbers, refrain=refrain)) == {}


def test_boilerplate_of_many_sources_or_of_one_source_counts_for_nothing_and_is_reported():
    rng = random.Random(8)
    licence = sentence(rng, 40)
    everywhere = [f"{licence} {sentence(rng, 20)}" for _ in range(60)] + [sentence(rng, 30) for _ in range(60)]
    sources = [f"s{index % 4}" for index in range(120)]
    result = search([f"{i:03d}" for i in range(120)], sources, pa.array(everywhere), items_of(licence=licence), DecontaminateConfig())
    assert (result.rows.num_rows, result.boilerplate) == (0, ("licence",))
    template = search(
        [f"{i:03d}" for i in range(120)], ["one"] * 120, pa.array(everywhere), items_of(licence=licence), DecontaminateConfig()
    )
    assert (template.rows.num_rows, template.boilerplate) == (0, ("licence",))
    large = everywhere + [sentence(rng, 30) for _ in range(1400)]  # 60 of 1,520 documents of two sources: copied often, but a leak
    leaked = search(
        [f"{i:04d}" for i in range(1520)], ["one", "two"] * 760, pa.array(large), items_of(licence=licence), DecontaminateConfig()
    )
    assert (leaked.rows.num_rows, leaked.boilerplate) == (60, ())
    header = search([f"{i:04d}" for i in range(1520)], ["one"] * 1520, pa.array(large), items_of(licence=licence), DecontaminateConfig())
    assert (header.rows.num_rows, header.boilerplate) == (0, ("licence",))  # 4% of a source of code carry one licence


def test_a_licence_that_a_held_out_document_carries_too_is_no_leak_and_most_of_a_text_out_of_it_is():
    rng = random.Random(9)
    licence, own = sentence(rng, 80), sentence(rng, 600)
    items = items_of(held=f"{licence}\n\n{own}", task=own + " " + sentence(rng, 600))
    texts = pa.array([f"{licence}\n\n{sentence(rng, 300)}", " ".join(own.split()[100:200]), f"{licence}\n\n{sentence(rng, 300)}"])
    for held_out, gone in (([True, False], ["excerpt"]), ([False, False], ["excerpt", "file", "other"]), ([True, True], ["excerpt"])):
        marked = items.append_column("held_out", pa.array(held_out))
        rows = contaminated(["file", "excerpt", "other"], ["s"] * 3, texts, marked, DecontaminateConfig())
        assert rows["id"].to_pylist() == gone
    assert (rows["document_share"].to_pylist(), rows["paragraph_share"].to_pylist()) == ([1.0], [0.0])


def test_strict_spellings_see_less():
    rng = random.Random(9)
    texts = [
        f"{sentence(rng, 20)} {LEAK}",
        f"{sentence(rng, 20)} {LEAK.upper()}",
        f"{sentence(rng, 20)} {LEAK.replace('?', '!').replace('the', 'the,')}",
    ]
    items = items_of(leak=LEAK)
    assert list(found(texts, items, DecontaminateConfig(match="words"))) == ["000", "001", "002"]
    assert list(found(texts, items, DecontaminateConfig(match="tokens"))) == ["000", "001"]
    assert list(found(texts, items, DecontaminateConfig(match="as_written"))) == ["000"]


def test_hits_are_those_of_a_dictionary_of_grams():
    rng = random.Random(10)
    words = [sentence(rng, rng.randrange(0, 300)).split() for _ in range(60)]
    passages = [(" ".join(document[5 : 5 + rng.randrange(13, 60)])) for document in words if len(document) > 80]
    index = build_index(pa.array(passages), match="words", gram_words=13, least_words=5)
    hits = scan(pa.array([" ".join(document) for document in words]), index)
    known = {tuple(text.split()[at : at + 13]) for text in passages for at in range(len(text.split()) - 12)}
    expected = [
        (place, at) for place, document in enumerate(words) for at in range(len(document) - 12) if tuple(document[at : at + 13]) in known
    ]
    ends = [(place, len(" ".join(words[place][: at + 13]))) for place, at in expected]
    assert list(zip(hits.document.tolist(), hits.end.tolist())) == ends
    assert hits.num_grams.tolist() == [max(0, len(document) - 12) for document in words]


def test_nothing_to_search_for_or_in_finds_nothing():
    empty = items_of()
    assert found(["some text here"], empty) == {}
    assert found([], items_of(leak=LEAK)) == {}
    assert found(["", "   "], items_of(leak=LEAK, blank="")) == {}


def test_settings_that_make_no_sense_are_refused_by_name():
    for wrong in ({"threshold": 0}, {"least_item_words": 14}, {"gram_words": 40}, {"boilerplate_source_fraction": 2.0}):
        with pytest.raises(ConfigError, match="decontaminate"):
            DecontaminateConfig(**wrong)


def test_the_leak_report_measures_recall_by_disguise_and_shows_decoys():
    rng = random.Random(11)
    documents = pa.table({"id": [f"{i:03d}" for i in range(80)], "source": ["s"] * 80, "text": [sentence(rng, 120) for _ in range(80)]})
    items = pa.table(
        {
            "id": [f"t/{i}" for i in range(120)],
            "text": [" ".join(f"w{rng.randrange(10**6)}" for _ in range(4 + i % 40)) for i in range(120)],
        }
    )
    config = DecontaminateConfig()
    report = leaks.leak_report(
        documents, items, search(*(documents[c].to_pylist() for c in ("id", "source")), documents["text"], items, config), config
    )
    assert report["planted"]["verbatim"] == {"found": 93, "planted": 93}
    for disguise in ("rewrapped", "respelled", "embedded", "short_verbatim", "short_rewrapped", "short_respelled", "short_embedded"):
        counts = report["planted"][disguise]
        assert counts["found"] == counts["planted"] > 0
    assert report["decoys"] == {"reported": 0, "planted": 117}
    assert report["too_short"]["num_items"] == 3
    strict = DecontaminateConfig(match="as_written")
    blind = leaks.leak_report(
        documents, items, search(*(documents[c].to_pylist() for c in ("id", "source")), documents["text"], items, strict), strict
    )
    assert (
        blind["planted"]["respelled"]["found"] < blind["planted"]["respelled"]["planted"]
    )  # the report shows what a strict reading misses


# items from files


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


QUESTION = {"id": "q7", "question": "What is the capital of the old northern province?", "choices": {"text": ["Aa Bb", "Cc Dd"], "label": ["A", "B"]}, "answerKey": "A"}  # fmt: skip


def test_any_json_lines_give_prompts_long_fields_and_the_whole_record(tmp_path):
    write_lines(tmp_path / "arc.jsonl", [QUESTION])
    items = dict(zip(*load_evals([tmp_path / "arc.jsonl"]).to_pydict().values()))
    assert items == {
        "arc/q7#question": QUESTION["question"],
        "arc/q7#all": f"{QUESTION['question']}\nAa Bb\nCc Dd",
    }
    (tmp_path / "z.jsonl.gz").write_bytes(gzip.compress(json.dumps({"passage": "word " * 20, "label": 3}).encode()))
    assert load_evals([tmp_path / "z.jsonl.gz"])["id"].to_pylist() == ["z/0#passage"]
    pq.write_table(pa.table({"query": ["who was that person then"]}), tmp_path / "p.parquet")
    assert load_evals([tmp_path / "p.parquet"])["id"].to_pylist() == ["p/0#query"]
    (tmp_path / "whole.json").write_text(json.dumps({"version": 1, "data": [{"problem": "a b c d e"}]}))
    assert load_evals([tmp_path / "whole.json"])["id"].to_pylist() == ["whole/0#problem"]


def test_task_files_of_the_harness_name_the_fields_and_the_held_out_data(tmp_path):
    task = tmp_path / "tasks" / "arc.yaml"
    task.parent.mkdir()
    (task.parent / "base.yaml").write_text(
        "doc_to_text: 'Question: {{question}}\\nAnswer:'\ndoc_to_choice: '{{choices.text}}'\nprocess_docs: !function utils.x\n"
    )
    task.write_text(
        "include: base.yaml\ntask: arc_old\ndataset_path: org/arc\ndataset_name: easy\ntest_split: test\ntraining_split: train\nmetric_list:\n  - metric: acc\n"
    )
    write_lines(
        tmp_path / "data" / "arc" / "easy" / "test-00000.jsonl", [QUESTION | {"source_page": "a text that no template names at all"}]
    )
    write_lines(tmp_path / "data" / "arc" / "easy" / "train-00000.jsonl", [{"id": "t", "question": "not held out, so not an item"}])
    items = load_evals([tmp_path / "tasks"], data=tmp_path / "data")
    assert items["id"].to_pylist() == ["arc_old/q7#question", "arc_old/q7#all"]
    assert "no template" not in items["text"].to_pylist()[1]
    with pytest.raises(DataError, match="'org/arc' is not on this machine"):
        load_evals([tmp_path / "tasks"])


def test_task_files_with_local_data_and_python_prompts_take_all_text(tmp_path):
    write_lines(tmp_path / "mine.jsonl", [{"task_id": "H/1", "prompt": "def f(x):\n    return x", "canonical_solution": "word " * 15}])
    (tmp_path / "mine.yaml").write_text(
        "task: mine\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: mine.jsonl\ntest_split: test\ndoc_to_text: !function utils.prompt\n"
    )
    (tmp_path / "group.yaml").write_text("group: all\ntask:\n  - mine\n")
    assert load_evals([tmp_path])["id"].to_pylist() == ["mine/H/1#prompt", "mine/H/1#canonical_solution", "mine/H/1#all"]


def ids_and_texts(items: pa.Table) -> list[tuple[str, str]]:
    return list(zip(items["id"].to_pylist(), items["text"].to_pylist()))


def test_a_template_over_what_a_function_makes_takes_all_text_of_the_record(tmp_path):
    """As hellaswag: `query` exists only after `process_docs`."""
    record = {"ind": 4, "ctx": "A man is sitting on a high roof. he", "endings": ["rips off tiles.", "skis."], "label": "3"}
    write_lines(tmp_path / "hella.jsonl", [record])
    task = tmp_path / "hella.yaml"
    task.write_text(
        "task: hella\ndataset_path: Someone/hella\ntest_split: null\nprocess_docs: !function utils.process_docs\ndoc_to_text: '{{query}}'\ndoc_to_choice: choices\n"
    )
    assert ids_and_texts(load_evals([task], data=tmp_path)) == [
        ("hella/4#ctx", record["ctx"]),
        ("hella/4#all", f"{record['ctx']}\nrips off tiles.\nskis."),
    ]


def test_names_of_prompt_fields_are_known_in_their_variants_and_from_the_task(tmp_path):
    write_lines(
        tmp_path / "a.jsonl",
        [{"question_stem": "how so and not otherwise", "ctx_a": "a man in a room", "Question": "when did it end then"}],
    )
    assert [name for name, _ in ids_and_texts(load_evals([tmp_path / "a.jsonl"]))] == ["a/0#question_stem", "a/0#Question", "a/0#all"]
    write_lines(tmp_path / "b.jsonl", [{"context": "what is nine plus eight", "completion": " seventeen or so"}])
    task = tmp_path / "b.yaml"
    task.write_text("task: b\ndataset_path: x/b\ndoc_to_text: '{{context}}'\ndoc_to_target: '{{completion}}'\n")
    assert [name for name, _ in ids_and_texts(load_evals([task], data=tmp_path))] == ["b/0#context", "b/0#all"]


def test_a_short_prompt_that_many_records_put_is_a_phrase_and_no_item(tmp_path):
    passages = [" ".join(f"w{record}x{word}" for word in range(20)) for record in range(4)]
    phrase = "Which of the following can be derived?"
    write_lines(tmp_path / "a.jsonl", [{"passage": passage, "question": phrase} for passage in passages])
    assert not [name for name, text in ids_and_texts(load_evals([tmp_path / "a.jsonl"])) if text == phrase]
    assert len(load_evals([tmp_path / "a.jsonl"])) == 8  # the passage, and all of each record
    write_lines(tmp_path / "b.jsonl", [{"passage": passages[0], "question": phrase, "answer": str(number)} for number in range(9)])
    assert [text for _, text in ids_and_texts(load_evals([tmp_path / "b.jsonl"]))].count(phrase) == 9  # one passage, many answers


def test_a_blank_is_searched_for_as_it_stands_and_filled_in(tmp_path):
    write_lines(tmp_path / "w.jsonl", [{"sentence": "Ann beat Eve so _ was glad.", "option1": "Ann", "option2": "Eve", "answer": "1"}])
    texts = [text for name, text in ids_and_texts(load_evals([tmp_path / "w.jsonl"])) if name == "w/0#sentence"]
    assert texts == [f"Ann beat Eve so {who} was glad." for who in ("_", "Ann", "Eve")]


def test_records_come_out_of_files_as_people_write_them(tmp_path):
    """Lines under the name .json, a byte order mark, a line separator inside a string, half a surrogate pair, Arrow's file layout, CSV."""
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"question": "one two \xe2\x80\xa8 three four"}\n{"question": "a \\ud800 b c d"}\n')
    assert [text for _, text in ids_and_texts(load_evals([tmp_path / "a.json"]))] == ["one two \u2028 three four", "a \ufffd b c d"]
    table = pa.table({"question": ["one two three four five"]})
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert ids_and_texts(load_evals([tmp_path / "b.arrow"])) == [("b/0#question", "one two three four five")]
    (tmp_path / "c.csv").write_text('"Find the degree, given Q(2), over Q.",0,4,B\n"Is it so, or is it not?",1,2,A\n')
    assert [name for name, _ in ids_and_texts(load_evals([tmp_path / "c.csv"]))] == ["c/0#question", "c/1#question"]
    (tmp_path / "d.tsv").write_text("question\tanswer\nwhy is it not so\tit is\n")
    assert ids_and_texts(load_evals([tmp_path / "d.tsv"]))[0] == ("d/0#question", "why is it not so")


def test_data_files_of_a_task_may_be_patterns_tables_without_a_head_or_far_away(tmp_path):
    task = tmp_path / "t.yaml"
    head = "task: t\ndataset_path: csv\ntest_split: test\ndoc_to_text: '{{question}}'\ndataset_kwargs:\n  data_files:\n    test: "
    task.write_text(head + "'part-*.csv'\n  column_names: [question, answer]\n  header: null\n")
    for number, question in enumerate(("why is that", "how is that")):
        (tmp_path / f"part-{number}.csv").write_text(f"{question},it is\n")
    assert [name for name, _ in ids_and_texts(load_evals([task]))] == ["t/part-0:0#question", "t/part-1:0#question"]
    task.write_text(head + "hf://datasets/x/t.csv\n")
    with pytest.raises(DataError, match=r"hf://datasets/x/t\.csv does not exist"):
        load_evals([task], data=tmp_path)
    write_lines(tmp_path / "t.jsonl", [{"question": "why is that not so"}])
    assert ids_and_texts(load_evals([task], data=tmp_path)) == [("t/0#question", "why is that not so")]


def test_splits_are_words_of_a_path(tmp_path):
    for name, question in (
        ("latest-train", "one two"),
        ("my_test-00000", "three four"),
        ("test/0000", "five six"),
        ("contest", "seven eight"),
    ):
        write_lines(tmp_path / "set" / f"{name}.jsonl", [{"question": question}])
    (tmp_path / "t.yaml").write_text("task: t\ndataset_path: set\ntest_split: test\n")
    assert sorted(text for _, text in ids_and_texts(load_evals([tmp_path / "t.yaml"]))) == ["five six", "three four"]


def test_a_task_without_items_is_never_passed_over(tmp_path):
    write_lines(tmp_path / "good.jsonl", [{"question": "why is that not so"}])
    write_lines(tmp_path / "numbers.jsonl", [{"a": 1}])
    (tmp_path / "good.yaml").write_text("task: good\ndataset_path: x/good\n")
    (tmp_path / "group.yaml").write_text("group: all\ntask:\n  - good\n  - task: inline\n    dataset_path: good.jsonl\n")
    names = [name for name, _ in ids_and_texts(load_evals([tmp_path / "good.yaml", tmp_path / "group.yaml"], data=tmp_path))]
    assert names == ["good/0#question", "inline/0#question"]
    for text, said in (
        ("task: numbers\ndataset_path: x/numbers\n", "task 'numbers' has no evaluation item"),
        ("task: squad\nclass: !function task.SQuAD2\n", "made by Python code, which is not run"),
    ):
        (tmp_path / "zz.yaml").write_text(text)
        with pytest.raises(DataError, match=said):
            load_evals([tmp_path / "good.yaml", tmp_path / "zz.yaml"], data=tmp_path)


def test_files_without_items_are_refused_in_one_line(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"question": "a b c d e"}\nnot json\n')
    (tmp_path / "none.jsonl").write_text('{"label": 3}\n')
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"[" + b'{"question": "a b c"},' * 999)[:50])
    for name, said in (("bad.jsonl", "cannot be read"), ("none.jsonl", "no evaluation item"), ("bad.yaml", "not YAML"), ("cut.json.gz", "ends or breaks"), ("x.csv", "does not exist")):  # fmt: skip
        with pytest.raises(DataError, match=said):
            load_evals([tmp_path / name])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no evaluation items"):
        load_evals([tmp_path / "empty"])
