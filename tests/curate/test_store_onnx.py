"""A folder of an ONNX encoder is used as its makers use it: pooling, lengths, prompts and padding are those it states."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from forerun.base.errors import ConfigError
from forerun.curate.build_identity import BuildConfig, identity_of
from forerun.curate.embed.encoders import EmbedConfig, open_encoder
from forerun.curate.embed.layout import model_files, read_layout
from forerun.curate.embed.onnx import pooled

WORDS = ["[UNK]", "the", "cat", "sat", "on", "mats", "[PAD]"]


def folder_of(path: Path, files: dict[str, Any] | None = None, *, place: str = "onnx/model.onnx") -> Path:
    """A model folder with these JSON files, a word-level tokenizer and an empty model."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (path / place).parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / place).touch()
    for name, content in (files or {}).items():
        file = path / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
    return path


def modules(*kinds: str) -> list[dict]:
    """As sentence-transformers writes `modules.json`."""
    return [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "", "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]


def test_older_and_newer_folders_of_sentence_transformers_say_how_they_pool(tmp_path: Path):
    old = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    for index, (config, expected) in enumerate(
        [
            ({"pooling_mode": "lasttoken"}, ("lasttoken",)),
            ({"pooling_mode": ["max", "mean"]}, ("max", "mean")),
            (old, ("cls", "mean")),
            ({}, ("mean",)),
        ]
    ):
        folder = folder_of(tmp_path / str(index), {"modules": modules("Transformer", "Pooling", "Normalize"), "1_Pooling/config": config})
        assert read_layout(folder).pooling == expected
    assert read_layout(folder_of(tmp_path / "plain", place="model.onnx")).pooling == ("mean",)


def test_lengths_prompts_padding_and_case_are_those_the_folder_states(tmp_path: Path):
    stated = {
        "config": {"max_position_embeddings": 514},
        "tokenizer_config": {"model_max_length": 512, "padding_side": "left", "pad_token": {"content": "[PAD]"}},
        "config_sentence_transformers": {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": None},
    }
    folder = folder_of(tmp_path, stated)
    layout = read_layout(folder)
    assert (layout.max_tokens, layout.left_padding, layout.pad_token, layout.prompt) == (512, True, "[PAD]", "passage: ")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": true}')
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    layout = read_layout(folder)
    assert (layout.max_tokens, layout.lower_case, layout.left_padding) == (256, True, False)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"modules": modules("Transformer", "Pooling", "LSTM")}, "a module LSTM"),
        ({"1_Pooling/config": {"pooling_mode": "median"}}, "pools by 'median'"),
        ({"1_Pooling/config": {"pooling_mode": "mean", "include_prompt": False}}, "leaves its prompt out"),
        ({"modules": modules("Transformer", "Pooling", "Dense"), "2_Dense/config": {"activation_function": "torch.nn.GELU"}}, "activation 'GELU'"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_here_is_named_and_not_left_out(tmp_path: Path, files: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        read_layout(folder_of(tmp_path, files))
    with pytest.raises(ConfigError, match=r"has no model\.onnx"):
        read_layout(tmp_path / "elsewhere")


def test_pooling_takes_what_a_hand_takes_and_never_padding():
    hidden = np.array([[[1.0, 4.0], [3.0, 0.0], [9.0, 9.0]]], np.float32)
    mask = np.array([[1, 1, 0]])
    root = np.sqrt(np.float32(2))
    expected = {
        "cls": [1, 4], "max": [3, 4], "mean": [2, 2], "mean_sqrt_len_tokens": [4 / root, 4 / root],
        "weightedmean": [7 / 3, 4 / 3], "lasttoken": [3, 0],
    }  # fmt: skip
    for mode, vector in expected.items():
        np.testing.assert_allclose(pooled(hidden, mask, (mode,))[0], vector, rtol=1e-6)
        left = pooled(hidden[:, [2, 0, 1]], mask[:, ::-1], (mode,))[0]
        np.testing.assert_allclose(left, [11 / 5, 8 / 5] if mode == "weightedmean" else vector, rtol=1e-6)  # weights are places
    assert pooled(hidden, mask, ("max", "mean")).tolist() == [[3, 4, 2, 2]]


def test_weights_outside_the_model_file_are_part_of_a_builds_identity(tmp_path: Path):
    folder = folder_of(tmp_path / "m", {"modules": modules("Transformer", "Pooling"), "1_Pooling/config": {"pooling_mode": "cls"}})
    config = BuildConfig(embed=EmbedConfig(encoder="onnx", model=str(folder)))
    outside = folder / "onnx" / "model.onnx_data"
    seen = set()
    for path, content in ((outside, b"1"), (outside, b"2"), (folder / "1_Pooling" / "config.json", b"{}"), (folder / "README.md", b"x")):
        path.write_bytes(content)
        seen.add(identity_of("n", [], [], config))
    assert len(seen) == 3  # notes decide nothing
    assert outside in model_files(folder)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx and onnxruntime in a folder of their own."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target", str(tmp_path / "peers"), "--no-deps"]
    subprocess.run([*command, "onnxruntime", "onnx", "protobuf", "flatbuffers"], check=True)
    monkeypatch.syspath_prepend(str(tmp_path / "peers"))


@pytest.mark.peers
@pytest.mark.parametrize("dtype", ["INT64", "INT32"])
def test_a_model_is_run_with_the_inputs_it_has_and_its_tokens_pooled(runtime: None, tmp_path: Path, dtype: str):
    import onnx  # pyright: ignore[reportMissingImports]
    from onnx import TensorProto, helper, numpy_helper  # pyright: ignore[reportMissingImports]

    table = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype(np.float32)
    stated = {"tokenizer_config": {"pad_token": "[PAD]", "model_max_length": 4}, "1_Pooling/config": {"pooling_mode": "max"}}
    folder = folder_of(tmp_path / "m", stated)
    kind = getattr(TensorProto, dtype)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "g",
        [helper.make_tensor_value_info("input_ids", kind, ["batch", "tokens"])],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", "width"])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "onnx" / "model.onnx")
    texts = ["the cat sat on mats", "cat", "", "zebra cat"]
    vectors = open_encoder(EmbedConfig(encoder="onnx", model=str(folder))).encode(pa.array(texts))
    for text, vector in zip(texts, vectors):
        ids = [WORDS.index(word) if word in WORDS else 0 for word in text.split()[:4]]
        wanted = table[ids].max(axis=0) if ids else np.zeros(6)
        np.testing.assert_allclose(vector, wanted / max(np.linalg.norm(wanted), 1e-12), rtol=1e-5, atol=1e-6)
    (folder / "onnx" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_encoder(EmbedConfig(encoder="onnx", model=str(folder)))
