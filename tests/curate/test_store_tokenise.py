"""Ids are those of the reference tokenizer, special tokens cannot be smuggled in, and lost start markers are noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from forerun.base.errors import ConfigError
from forerun.curate.tokenise import Encoder, TokeniseConfig, end_of_document_id, train_tokenizer, vocab_size_of

CONFIG = TokeniseConfig(vocab_size=400)
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.py"))]


@pytest.fixture(scope="module")
def tokenizer_json() -> str:
    return train_tokenizer(TEXTS, CONFIG)


@pytest.fixture(scope="module")
def encoder(tokenizer_json: str) -> Encoder:
    return Encoder(tokenizer_json, TEXTS)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(max_size=60), max_size=5))
def test_ids_equal_the_reference_and_decode_to_the_text(encoder: Encoder, tokenizer_json: str, texts: list[str]):
    plain = [text for text in texts if "<|endoftext|>" not in text]
    reference = Tokenizer.from_str(tokenizer_json)
    rows = encoder.encode(pa.array(plain, pa.large_string())).to_pylist()
    assert rows == [reference.encode(text, add_special_tokens=False).ids for text in plain]
    assert [reference.decode(row) for row in rows] == plain


def test_training_twice_gives_the_same_tokenizer(tokenizer_json: str):
    assert train_tokenizer(TEXTS, CONFIG) == tokenizer_json
    assert vocab_size_of(tokenizer_json) == 400
    assert end_of_document_id(tokenizer_json, CONFIG) == 0


def test_a_document_that_spells_a_special_token_gets_no_special_id(encoder: Encoder):
    assert encoder.engine == "gigatoken"
    assert 0 not in encoder.encode(pa.array(["a <|endoftext|> b"])).to_pylist()[0]


def test_a_tokenizer_the_fast_engine_gets_wrong_falls_back_and_says_why(tokenizer_json: str):
    odd = json.loads(tokenizer_json)
    odd["normalizer"] = {"type": "Lowercase"}
    encoder = Encoder(json.dumps(odd), ["MIXED Case"])
    reference = Tokenizer.from_str(json.dumps(odd))
    assert encoder.encode(pa.array(["MIXED Case"])).to_pylist() == [reference.encode("MIXED Case").ids]
    if encoder.engine == "tokenizers":
        assert encoder.note


def test_nulls_and_empty_columns_encode_to_nothing(encoder: Encoder):
    assert encoder.encode(pa.array([None, ""], pa.string())).to_pylist() == [[], []]
    assert encoder.encode(pa.array([], pa.string())).to_pylist() == []


def test_a_tokenizer_without_the_end_token_is_refused_by_name(tokenizer_json: str):
    with pytest.raises(ConfigError, match="'</s>' is not in the tokenizer"):
        end_of_document_id(tokenizer_json, TokeniseConfig(end_of_document="</s>"))
    with pytest.raises(ConfigError, match="at least 257"):
        TokeniseConfig(vocab_size=100)
