"""Published `config.json` files count as the released checkpoints do; what our block has no equal for is refused by name."""

from __future__ import annotations

import json

import pytest

from forerun.base.errors import PlatformError
from forerun.model.count import num_active_params, num_params
from forerun.model.hf_config import config_of, read_settings

MIXTRAL = {
    "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None, "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3_moe", "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1e6, "sliding_window": None,
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
OLMOE = {
    "model_type": "olmoe", "attention_bias": False, "clip_qkv": None, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 1024,
    "max_position_embeddings": 4096, "norm_topk_prob": False, "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
    "num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "vocab_size": 50304,
}  # fmt: skip
GRANITE = {
    "model_type": "granitemoe", "attention_bias": False, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu",
    "hidden_size": 1024, "intermediate_size": 512, "logits_scaling": 6.0, "num_attention_heads": 16, "num_experts_per_tok": 8,
    "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32, "residual_multiplier": 0.22, "rms_norm_eps": 1e-6,
    "rope_theta": 10000, "tie_word_embeddings": True, "vocab_size": 49155,
}  # fmt: skip
QWEN3_235B = QWEN3 | {
    "hidden_size": 4096, "moe_intermediate_size": 1536, "num_attention_heads": 64, "num_hidden_layers": 94,
}  # fmt: skip
MIXTRAL_8X22B = MIXTRAL | {
    "hidden_size": 6144, "intermediate_size": 16384, "num_attention_heads": 48, "num_hidden_layers": 56, "vocab_size": 32768,
}  # fmt: skip
GRANITE_3B = GRANITE | {"hidden_size": 1536, "num_hidden_layers": 32, "num_attention_heads": 24, "num_local_experts": 40}


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        (MIXTRAL, 46_702_792_704),
        (MIXTRAL_8X22B, 140_630_071_296),
        (QWEN3, 30_532_122_624),
        (QWEN3_235B, 235_093_634_560),
        (OLMOE, 6_919_161_856),
        (GRANITE, 1_334_628_352),
        (GRANITE_3B, 3_298_793_472),
    ],
)
def test_a_published_config_counts_as_its_checkpoint(settings, published):
    assert num_params(config_of(settings, where="config.json")) == published  # transformers counts the same on its meta device


def test_active_parameters_of_granite_are_what_its_names_say():
    assert round(num_active_params(config_of(GRANITE, where="c")) / 1e6, -2) == 400
    assert round(num_active_params(config_of(GRANITE_3B, where="c")) / 1e6, -2) == 800


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "kv_lora_rank=512"),
        ({"model_type": "gpt_oss", "attention_bias": True}, "attention_bias=True"),
        ({"model_type": "dbrx", "attn_config": {"clip_qkv": 8}}, "attn_config={'clip_qkv': 8}"),
        ({"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}, "shared_expert_intermediate_size=5632"),
        ({"model_type": "qwen3_vl_moe", "text_config": QWEN3}, "text_config={model_type, "),
        ({"model_type": "llama"}, "got 'llama'"),
        (MIXTRAL | {"hidden_act": "gelu"}, "hidden_act='gelu'"),
        (MIXTRAL | {"sliding_window": 4096}, "sliding_window=4096"),
        (QWEN3 | {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling={'type': 'yarn', 'factor': 4.0}"),
        (QWEN3 | {"quantization_config": {"quant_method": "fp8"}}, "quantization_config={'quant_method': 'fp8'}"),
        (MIXTRAL | {"hidden_size": "4096"}, "$.hidden_size"),
        (MIXTRAL | {"num_attention_heads": 0}, "$.num_attention_heads"),
        (MIXTRAL | {"num_local_experts": None}, "lacks num_experts"),
        (MIXTRAL | {"num_key_value_heads": 5}, "num_kv_heads must divide"),
        ({name: value for name, value in MIXTRAL.items() if name != "rope_theta"}, "rope_theta must be a positive number"),
    ],
)
def test_what_cannot_be_planned_or_imported_is_named(settings, named):
    with pytest.raises(PlatformError) as refused:
        config_of(settings, where="config.json")
    assert named in str(refused.value)


def test_rope_settings_are_read_where_older_and_newer_files_keep_them():
    older = config_of(MIXTRAL | {"rope_theta": 5e5}, where="c")
    newer = config_of(
        {name: value for name, value in MIXTRAL.items() if name != "rope_theta"}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        where="c",
    )
    assert older == newer


def test_a_file_that_is_no_object_is_one_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps([MIXTRAL]))
    with pytest.raises(PlatformError, match="must hold one JSON object, got list"):
        read_settings(path)
