"""Exported weights give equal logits in transformers, and imported ones in our model. The peer runs in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest
from test_generate import CONFIGS, scrambled, whole

from forerun.publish.hf_import import import_hf
from forerun.publish.weights import write_weights

PEER = os.environ.get("FORERUN_PEER_PYTHON", "")  # python with torch, transformers and safetensors
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]

EXPORTED = """
import json, sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True, dtype=torch.float32).eval()
ids = torch.tensor([json.loads(sys.argv[2])])
with torch.no_grad():
    logits = model(ids).logits[0]
    text = model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()
print(json.dumps({"logits": logits.tolist(), "text": text}))
"""

MADE = """
import json, sys, torch, transformers
kind, folder = sys.argv[1], sys.argv[2]
torch.manual_seed(0)
common = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24)
if kind == "mixtral":
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**common, num_local_experts=6, num_experts_per_tok=2, sliding_window=None))
elif kind == "granitemoe":
    model = transformers.GraniteMoeForCausalLM(transformers.GraniteMoeConfig(
        **common, num_local_experts=6, num_experts_per_tok=2, tie_word_embeddings=True,
        embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=6.0))
elif kind == "olmoe":
    model = transformers.OlmoeForCausalLM(transformers.OlmoeConfig(**common, num_experts=6, num_experts_per_tok=3))
else:
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **common, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True, head_dim=16, decoder_sparse_step=1))
for parameter in model.parameters():
    parameter.data += 0.1 * torch.randn_like(parameter)
model.save_pretrained(folder, safe_serialization=True)
with torch.no_grad():
    print(json.dumps(model.eval()(torch.tensor([json.loads(sys.argv[3])])).logits[0].tolist()))
"""


def peer(script: str, *arguments: str) -> object:
    if not Path(PEER).is_file():
        pytest.skip("no interpreter with the peers is named; see docs/reference/ledger.md")
    done = subprocess.run([PEER, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.peers
@pytest.mark.parametrize("name", CONFIGS)
def test_exported_weights_give_equal_logits_in_transformers_and_generate(name, tmp_path):
    config = CONFIGS[name]
    params, bias = scrambled(config)
    write_weights(tmp_path, params, np.asarray(bias), config)
    answer = peer(EXPORTED, str(tmp_path), json.dumps(TOKENS))
    ours = whole(params, bias, config, TOKENS)
    np.testing.assert_allclose(np.array(answer["logits"]), ours, atol=1e-4)  # type: ignore[index]  float32, other order of sums
    text = list(TOKENS)
    for _ in range(4):
        text.append(int(whole(params, bias, config, text)[-1].argmax()))
    assert answer["text"] == text  # type: ignore[index]


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["granitemoe", "mixtral", "olmoe", "qwen3_moe"])
def test_imported_weights_give_the_logits_transformers_gives(kind, tmp_path):
    theirs = np.array(peer(MADE, kind, str(tmp_path), json.dumps(TOKENS)))
    config, params = import_hf(tmp_path)
    ours = whole(jax.tree.map(jax.numpy.asarray, params), jax.numpy.zeros((2, 6)), config, TOKENS)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)  # float32, other order of sums
