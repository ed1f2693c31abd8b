"""The other side: Hugging Face's Qwen3-MoE on torch, one process, answering `ROUND n` lines with CPU seconds.

Runs in an environment of its own (torch, transformers, numpy); imports nothing of this project.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", OMP_WAIT_POLICY="PASSIVE", KMP_BLOCKTIME="0")  # spinning threads would cost the peer CPU time

import numpy as np
import torch
import transformers


def main(experts: str, size: dict[str, int]) -> None:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=size["vocab_size"], hidden_size=size["d_model"], num_hidden_layers=size["num_layers"],
        num_attention_heads=size["num_heads"], num_key_value_heads=size["num_kv_heads"], head_dim=size["d_head"],
        num_experts=size["num_experts"], num_experts_per_tok=size["top_k"], moe_intermediate_size=size["d_expert"],
        intermediate_size=size["d_expert"], decoder_sparse_step=1, norm_topk_prob=True, max_position_embeddings=size["seq_len"],
        tie_word_embeddings=False, use_cache=False, router_aux_loss_coef=0.001, output_router_logits=True,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    config._experts_implementation = experts
    model = transformers.Qwen3MoeForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, weight_decay=0.0, fused=True)
    rng = np.random.default_rng(0)
    tokens = [torch.tensor(rng.integers(1, size["vocab_size"], (size["batch_size"], size["seq_len"]))) for _ in range(4)]

    def step(index: int) -> float:
        loss = model(input_ids=tokens[index % 4], labels=tokens[index % 4]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    step(0)
    step(1)
    print(json.dumps({"ready": True, "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}), flush=True)
    for line in sys.stdin:
        started = time.process_time()
        for index in range(int(line.split()[1])):
            loss = step(index)
        print(json.dumps({"cpu_s": time.process_time() - started, "loss": loss}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
