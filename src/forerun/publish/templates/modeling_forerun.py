"""The forerun transformer in plain PyTorch for Hugging Face transformers (`trust_remote_code=True`); needs nothing of forerun.

Written to be read: whole sequences, dropless routing, no cache. Parameter names and shapes are those of the weights file; matrices
multiply from the right, [in, out].
"""

# B sequences, S tokens, T = B S, D d_model, H query heads, V key-value heads, d d_head, E experts, K top_k, J taps

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

OWN_VALUE_EPS = 1e-6


class ForerunConfig(PretrainedConfig):
    """`model` holds forerun's model config, `shapes` every parameter's name and shape."""

    model_type = "forerun"

    def __init__(self, model=None, shapes=None, **kwargs):
        self.model, self.shapes = model or {}, shapes or {}
        self.vocab_size, self.hidden_size = self.model.get("vocab_size", 0), self.model.get("d_model", 0)
        self.num_hidden_layers = self.model.get("num_layers", 0)
        kwargs.setdefault("use_cache", False)
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)


class Tree(nn.Module):
    """Parameters under dotted names, read as nested attributes and by number."""

    def place(self, dotted, shape):
        head, _, rest = dotted.partition(".")
        if not rest:
            self.register_parameter(head, nn.Parameter(torch.zeros(shape), requires_grad=False))
            return
        if head not in self._modules:
            self.add_module(head, Tree())
        self._modules[head].place(rest, shape)

    def __contains__(self, name):
        return name in self._modules or name in self._parameters

    def numbered(self):
        return [self._modules[key] for key in sorted(self._modules, key=int)]


class ForerunForCausalLM(PreTrainedModel, GenerationMixin):
    """Logits of the next token, and the mean cross-entropy when labels are given."""

    config_class = ForerunConfig
    _no_split_modules = ()

    def __init__(self, config):
        super().__init__(config)
        self.weights = Tree()
        for name, shape in config.shapes.items():
            self.weights.place(name, shape)
        self.post_init()

    def _init_weights(self, module):
        """Weights come from the file."""

    def get_input_embeddings(self):
        return None

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}

    def forward(self, input_ids, labels=None, **kwargs):
        m, w = self.config.model, self.weights
        seq_len = input_ids.shape[1]
        x = w.embedding[input_ids]
        if "embedding_norm" in w:
            x = gated_norm(x, w.embedding_norm, m)
        distance = torch.arange(seq_len)[:, None] - torch.arange(seq_len)[None, :]
        distance = distance.to(x.device)
        routed = 0
        layers = [*(w.dense_layers.numbered() if "dense_layers" in w else []), *w.layers.numbered()]
        for index, layer in enumerate(layers):
            is_global = m["window"] == 0 or (index + 1) % m["global_every"] == 0 or index == m["num_layers"] - 1
            seen = (distance >= 0) if is_global else (distance >= 0) & (distance < m["window"])
            x = x + attend(layer.attention, gated_norm(x, layer.attention_norm, m), seen, is_global, m)
            bias = None
            if "w_router" in layer.feed_forward:
                bias, routed = w.router_bias[routed], routed + 1
            x = x + feed_forward(layer.feed_forward, gated_norm(x, layer.feed_forward_norm, m), bias, m)
        x = gated_norm(x, w.final_norm, m)
        logits = (x @ (w.head if "head" in w else w.embedding.T)).float()
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))
        return CausalLMOutput(loss=loss, logits=logits)


def rms_norm(x, gain, eps):
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed if gain is None else normed * gain).to(x.dtype)


def gated_norm(x, w, m):
    normed = rms_norm(x, w.gain, m["norm_eps"])
    return normed * torch.sigmoid(F.silu(normed @ w.w_down) @ w.w_up) if "w_down" in w else normed


def short_conv(x, taps):
    """Tap 0 on the own token, tap j on the one j places earlier."""
    out = x * taps[0]
    for j in range(1, min(len(taps), x.shape[1])):
        out = out + F.pad(x, (0, 0, j, 0))[:, : x.shape[1]] * taps[j]
    return out


def attend(w, x, seen, is_global, m):
    batch, seq_len, _ = x.shape
    num_kv, d_head = m["num_global_kv_heads"] if is_global else m["num_kv_heads"], m["d_head"]
    query, key, value = x @ w.w_q, x @ w.w_k[:, : num_kv * d_head], x @ w.w_v[:, : num_kv * d_head]
    if m["short_conv_taps"]:
        key = short_conv(key, w.conv_key[:, : num_kv * d_head])
    query, key, value = (part.reshape(batch, seq_len, -1, d_head) for part in (query, key, value))
    if m["qk_norm"]:
        query, key = qk_norm(query, w, "q_gain", m), qk_norm(key, w, "k_gain", m)
    if m["rope_on_global"] or not is_global:
        query, key = rotated(query, m), rotated(key, m)
    repeats = m["num_heads"] // num_kv
    key, wide_value = key.repeat_interleave(repeats, 2), value.repeat_interleave(repeats, 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", query * (m["qk_mult"] / math.sqrt(d_head)), key).float()
    weight = torch.softmax(scores.masked_fill(~seen, -math.inf), -1).to(x.dtype)
    out = torch.einsum("bhqk,bkhd->bqhd", weight, wide_value)
    if m["exclusive_attention"]:
        share = (out * wide_value).sum(-1, keepdim=True) / (wide_value.square().sum(-1, keepdim=True) + OWN_VALUE_EPS)
        out = out - share * wide_value
    if m["head_gate"]:
        out = out * (2 * torch.sigmoid(x @ w.head_gate))[..., None]
    out = out.reshape(batch, seq_len, -1) @ w.w_o
    return short_conv(out, w.conv_output) if m["short_conv_taps"] else out


def qk_norm(heads, w, name, m):
    gain = getattr(w, name) if name in w else None
    if m.get("qk_gain", "none") == "all_heads":
        return rms_norm(heads.flatten(2), gain, m["norm_eps"]).reshape(heads.shape)
    return rms_norm(heads, gain, m["norm_eps"])


def rotated(heads, m):
    half = round(m["d_head"] * m["rope_fraction"]) // 2
    frequency = m["rope_theta"] ** (-torch.arange(half, dtype=torch.float32) / max(half, 1))
    angle = (torch.arange(heads.shape[1], dtype=torch.float32)[:, None] * frequency)[None, :, None].to(heads.device)
    cos, sin = angle.cos().to(heads.dtype), angle.sin().to(heads.dtype)
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], -1)


def feed_forward(w, x, bias, m):
    rows = x.flatten(0, 1)
    out = torch.zeros_like(rows)
    if bias is not None:
        out = routed(w, rows, bias, m)
    for shared in w.shared.numbered() if "shared" in w else []:
        out = out + (F.silu(rows @ shared.w_gate) * (rows @ shared.w_up)) @ shared.w_down
    out = out.reshape(x.shape)
    return short_conv(out, w.conv_output) if m["short_conv_taps"] else out


def routed(w, rows, bias, m):
    """Choose by biased scores, weigh by unbiased ones."""
    logits = rows.float() @ w.w_router.float()
    scores = torch.sigmoid(logits) if m["balancing"] == "sigmoid_bias" else logits
    index = torch.topk(scores + bias, m["top_k"]).indices
    chosen = logits.gather(-1, index)
    if m["combine"] == "sigmoid":
        gates = torch.sigmoid(chosen)
        weight = gates / (gates.sum(-1, keepdim=True) + 1e-9)
    elif m["combine"] == "softmax_all":
        weight = torch.softmax(logits, -1).gather(-1, index)
    else:
        weight = torch.softmax(chosen, -1)
    weight = (m["routed_scale"] * weight).to(rows.dtype)
    has_latent = "latent" in w
    working = rows @ w.latent.w_down if has_latent else rows
    if has_latent and "gain" in w.latent:
        working = rms_norm(working, w.latent.gain, m["norm_eps"])
    out = torch.zeros_like(working)
    for expert in range(m["num_experts"]):
        token, place = torch.where(index == expert)
        inner = F.silu(working[token] @ w.experts.w_gate[expert]) * (working[token] @ w.experts.w_up[expert])
        out.index_add_(0, token, (inner @ w.experts.w_down[expert]) * weight[token, place, None])
    return out @ w.latent.w_up if has_latent else out
