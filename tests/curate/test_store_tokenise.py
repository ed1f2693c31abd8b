"""Ids are those of the reference tokenizer, special tokens cannot be smuggled in, and lost start markers are noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from forerun.base.errors import ConfigError
from forerun.curate.tokenise import Encoder, TokeniseConfig, train_tokenizer
from forerun.curate.tokenizer_file import end_of_document_id, lost_markers, read_tokenizer, vocab_size_of
from forerun.loader.token_bytes import bytes_of_tokens

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
    assert end_of_document_id(tokenizer_json, CONFIG.end_of_document) == 0


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
        end_of_document_id(tokenizer_json, "</s>")
    with pytest.raises(ConfigError, match="at least 257"):
        TokeniseConfig(vocab_size=100)


PLAIN = [text for text in TEXTS if not any(name in text for name in ("<s>", "</s>", "<unk>", "[CLS]", "[UNK]"))]
SPELLED = "a <s> b </s> c <unk> [SEP] <0x0A> 東京 e\u0301 don't"


def taken(model: models.Model, trainer: trainers.Trainer, **parts: object) -> Tokenizer:
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(PLAIN, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=800, special_tokens=special, unk_token="<unk>", show_progress=False)
    return taken(models.Unigram(), trainer, pre_tokenizer=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace())


def sentencepiece_bpe() -> Tokenizer:
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<s>", "</s>", *pieces], show_progress=False)
    marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer = taken(models.BPE(unk_token="<unk>", byte_fallback=True), trainer, normalizer=marks)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(spec))


def wordpiece() -> Tokenizer:
    special = ["[UNK]", "[CLS]", "</s>"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, limit_alphabet=40, show_progress=False)
    return taken(
        models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizer=pre_tokenizers.BertPreTokenizer(), decoder=decoders.WordPiece()
    )


def llama_like() -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer = taken(
        models.BPE(ignore_merges=True),
        trainer,
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


@pytest.mark.parametrize("make", [unigram, sentencepiece_bpe, wordpiece, llama_like])
def test_tokenizers_of_other_families_are_taken_and_no_text_spells_their_special_tokens(make: Callable[[], Tokenizer]):
    tokenizer = make()
    start = tokenizer.token_to_id("<s>") or tokenizer.token_to_id("[CLS]")
    name = "<s>" if tokenizer.token_to_id("<s>") else "[CLS]"
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{name} $A", pair=f"{name} $A $B", special_tokens=[(name, start)])
    file = tokenizer.to_str()
    end = end_of_document_id(file, "</s>")
    assert vocab_size_of(file) == tokenizer.get_vocab_size()
    rows = Encoder(file, PLAIN).encode(pa.array([SPELLED, *PLAIN])).to_pylist()
    assert not {start, end} & set(rows[0])
    assert rows[1:] == [tokenizer.encode(text, add_special_tokens=False).ids for text in PLAIN]  # these spell no special token


def test_a_tokenizer_saved_with_cutting_padding_or_dropped_merges_still_encodes_whole_documents(tokenizer_json: str):
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=32)
    spec = json.loads(tokenizer.to_str())
    spec["model"]["dropout"] = 0.5
    rows = Encoder(json.dumps(spec), TEXTS).encode(pa.array(TEXTS, pa.large_string())).to_pylist()
    assert rows == Encoder(tokenizer_json, TEXTS).encode(pa.array(TEXTS, pa.large_string())).to_pylist()


def test_documents_that_begin_with_a_character_the_vocabulary_lacks_have_lost_no_marker():
    file = wordpiece().to_str()
    first = np.array([row[0] for row in Encoder(file, TEXTS).encode(pa.array(["東京", "the"])).to_pylist()])
    assert first[0] == 0 != first[1]
    assert lost_markers(first, file) == {}
    assert lost_markers(np.array([1, 5, 5, 5]), file) == {"[CLS]": 0.25}


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": "1.0"', b"\xef\xbb\xbf{}", b"\xff\xfe"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json' is no t"):
        read_tokenizer(path)
    with pytest.raises(ConfigError, match="Is a directory"):
        read_tokenizer(tmp_path)


def test_an_end_token_that_text_can_spell_is_refused(tokenizer_json: str):
    with pytest.raises(ConfigError, match="'the' is an ordinary token"):
        end_of_document_id(tokenizer_json, "the")


@pytest.mark.parametrize(("make", "within"), [(unigram, 0.01), (sentencepiece_bpe, 1e-3), (llama_like, 1e-9), (wordpiece, 0.25)])
def test_the_bytes_of_a_texts_tokens_add_up_to_its_bytes(make: Callable[[], Tokenizer], within: float):
    file = make().to_str()
    texts = [*PLAIN, "naïve 東京 ▁ x"] if make is not unigram else PLAIN
    texts = [" ".join(text.split()) for text in texts] if make in (unigram, wordpiece) else texts
    ids = np.concatenate([np.array(row) for row in Encoder(file, PLAIN).encode(pa.array(texts, pa.large_string())).to_pylist()])
    counted = bytes_of_tokens(file, vocab_size_of(file))[ids].sum()
    # one space is set before a SentencePiece text; WordPiece counts a space before each word, also where there was a bracket
    assert counted == pytest.approx(sum(len(text.encode()) for text in texts), rel=within)
