"""Normalising agrees with plain Python, filters find what they are for, and counts that do not add up stop the run."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
import xxhash

from forerun.base.errors import ConfigError, DataError
from forerun.curate.engine.config import EngineConfig
from forerun.curate.steps import Outcome, StepKey
from forerun.curate.text.attributes import require_aligned
from forerun.curate.text.exact import ExactConfig, exact
from forerun.curate.text.filters import FilterConfig, judged
from forerun.curate.text.normalize import NormalizeConfig, normalize
from forerun.curate.text.walk import Walk

SPACES = [chr(code) for code in range(0x110000) if chr(code).isspace()]


def documents(texts: list[str], **columns: list[str]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.large_string()), **columns})


def slow_twin(text: str, most: int) -> str:
    return re.sub(rf"\s{{{most + 1},}}", lambda found: found.group()[:most], text)


def test_white_space_runs_are_cut_and_ids_follow_as_plain_python_would_have_it():
    rng = random.Random(0)
    texts = [
        "".join(rng.choice(SPACES) * rng.choice((1, 2, 5, 9)) + rng.choice(("a", "é", "漢", "𝕏", "")) for _ in range(20))
        for _ in range(300)
    ]
    texts += ["".join(SPACES), "", " ", "x" + " " * 4 + "y", "x" + "\u3000" * 5 + "y"]
    config = NormalizeConfig(max_whitespace_run=4, min_document_bytes=1)
    found = normalize(documents(texts), config)
    expected = [slow_twin(text, 4) for text in texts]
    assert found["text"].to_pylist() == expected
    assert found["id"].to_pylist() == [xxhash.xxh3_128_hexdigest(text.encode()) for text in expected]
    assert found["reason"].to_pylist() == ["blank" if not text.strip() else None for text in expected]


def test_a_slice_of_a_table_is_normalised_as_that_slice():
    table = documents(["zero", "one  two", "three"])
    assert normalize(table.slice(1, 1), NormalizeConfig(min_document_bytes=1))["text"].to_pylist() == ["one  two"]
    assert normalize(table.slice(0, 0), NormalizeConfig()).num_rows == 0


def test_short_texts_are_dropped_by_bytes():
    found = normalize(documents(["ab", "é", "abc"]), NormalizeConfig(min_document_bytes=3))
    assert found["reason"].to_pylist() == ["too_short", "too_short", None]


def test_of_equal_ids_one_stays_and_the_others_say_which():
    table = pa.table({"id": ["1", "2", "2", "2", "3"], "source": ["a", "b", "a", "c", "a"], "source_id": ["p", "q", "r", "s", "t"]})
    assert exact(table, ExactConfig())["kept_source_id"].to_pylist() == [None, "r", None, "r", None]
    first = exact(table, ExactConfig(source_order=("c",)))
    assert first["reason"].to_pylist() == [None, "exact_duplicate", "exact_duplicate", None, None]
    assert first["kept_source"].to_pylist() == [None, "c", "c", None, None]


@pytest.mark.parametrize(
    ("kind", "personal", "harmless"),
    [
        ("email", "write to jane.doe+x@mail.example-firm.co.uk today", "write to user@example.com or to @handle, version a@b"),
        ("card", "card 4111 1111 1111 1111 please", "number 4111 1111 1111 1112 and 0000 0000 0000 0000"),
        ("iban", "pay to DE89 3704 0044 0532 0130 00 now", "code DE89 3704 0044 0532 0130 01 now"),
        ("ip_address", "from 203.0.113.77 at noon", "version 1.2.3 on 127.0.0.1 and 10.1.2.3 and 1.2.3.4.5"),
        ("phone", "call (212) 555-0187 or +49 170 555 0123", "in 1999-2004, pages 100-200, 3.14159 2653"),
        ("email", "mail jürgen@müller-söhne.de or <a@b.info>", "logo@2x.png, git@github.com:x/y.git, no-reply@shop.com, pkg@1.2.3"),
        ("phone", "ring +44 20 7946 0958", "Boston, MA 02110-1301, clause 252.227-7013, ISBN 978-3-16-148410-0"),
        ("phone", "tel:+4915112345678", "100 200 3000 | 123 456 7890 12 | 212 300 4000 5000"),
        ("phone", "appelez le 01 23 45 67 89", "Buffer 01 02 03 04 05, dump 0a 08 20 20 20 20 7f"),
        ("card", "amex 3782 822463 10005", "3 5 2 9 1 7 4 8 2 6 0 1 8 and 1234567890123452 and 0000111122223337"),
        ("ip_address", "host 2a00:1450:4001:81b::200e", "v1.2.3.4, version 2.0.0.1, 172.16.3.4, std::vector, a::b, 12:30:45, 300.1.1.1"),
        ("secret_key", "key sk-proj-" + "aB3" * 16, "task-oriented sk-learn and AIza"),
        ("secret_key", "-----BEGIN RSA PRIVATE KEY-----", "BEGIN CERTIFICATE and AKIA"),
    ],
)
def test_personal_data_is_told_from_what_looks_like_it(kind, personal, harmless):
    config = FilterConfig(personal_data=(kind,))
    table = documents([personal, harmless], id=["1", "2"], licence=["x", "x"])
    assert judged(table, config)["reason"].to_pylist() == [f"personal_data_{kind}", None]


def test_licences_match_patterns_and_a_refusal_wins():
    config = FilterConfig(licences=("cc-by*", "mit"), refused_licences=("*-nc*",))
    names = ["CC-BY-4.0", "MIT", "CC-BY-NC-4.0", "unstated"]
    table = documents(["t"] * 4, id=list("1234"), licence=names)
    assert judged(table, config)["reason"].to_pylist() == [None, None, "licence_refused", "licence_not_listed"]
    several = ["MIT OR GPL-3.0", "MIT AND GPL-3.0", "MIT, CC-BY-4.0", "(MIT OR CC-BY-NC-4.0)", "CC-BY-NC-4.0 AND MIT"]
    table = documents(["t"] * 5, id=list("12345"), licence=several)
    assert judged(table, config)["reason"].to_pylist() == [None, "licence_not_listed", None, None, "licence_refused"]
    with pytest.raises(ConfigError, match="personal_data holds 'shoe_size'"):
        FilterConfig(personal_data=("shoe_size",))


def test_languages_are_told_apart_and_code_has_none():
    english = "The committee will meet on Thursday to discuss the proposal, and everyone who has an interest is welcome to attend."
    german = "Der Ausschuss tritt am Donnerstag zusammen, um den Vorschlag zu besprechen, und jeder ist eingeladen, daran teilzunehmen."
    japanese = "委員会は木曜日に提案について話し合うために会合を開きます。関心のある方はどなたでも参加できます。"
    code = 'int main(int argc, char **argv) { for (int i = 0; i < argc; i++) printf("%s\\n", argv[i]); return 0; }\n' * 3
    table = documents([english, german, japanese, code], id=list("1234"), licence=["x"] * 4)
    assert judged(table, FilterConfig(languages=("en", "ja")))["language"].to_pylist() == ["en", "de", "ja", None]
    assert judged(table, FilterConfig(languages=("en", "ja")))["reason"].to_pylist() == [None, "language_not_listed", None, None]
    assert judged(table, FilterConfig(languages=("de",), keep_unsure=False))["reason"].to_pylist()[3] == "language_unsure"
    with pytest.raises(ConfigError, match="holds 'xx', which is not told apart"):
        FilterConfig(languages=("xx",))


def test_counts_that_do_not_add_up_stop_the_run(tmp_path):
    key = StepKey(name="exact_dedup", version=1, parameters={}, inputs=(), modules=("forerun.curate.steps",))
    lost = Outcome(digest="", files={}, documents_in=10, documents_out=8, dropped={"exact_duplicate": 1})
    with pytest.raises(DataError, match="10 documents in, 8 out, 1 dropped"):
        Walk(tmp_path, EngineConfig(), quiet=True).taken(key, lost)


def test_attributes_of_another_length_or_order_are_refused_by_name(tmp_path):
    ids = pa.chunked_array([["a", "b", "c"]])
    require_aligned(ids, pa.table({"id": ["a", "b", "c"]}), tmp_path / "x")
    with pytest.raises(DataError, match="x has 2 rows, its partition 3"):
        require_aligned(ids, pa.table({"id": ["a", "b"]}), tmp_path / "x")
    with pytest.raises(DataError, match="x row 1 is c, its partition has b"):
        require_aligned(ids, pa.table({"id": ["a", "c", "b"]}), tmp_path / "x")
