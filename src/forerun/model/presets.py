"""Published shapes, and how to shrink one. Marin's come from one rule per width; siblings are each as published."""

from __future__ import annotations

from dataclasses import dataclass, replace

from forerun.model.config import ModelConfig

MARIN_VOCAB = 128_256  # derived: the published tokenizer (reference model-and-training 1.1)
MARIN_D_HEAD = 128  # derived: same
MARIN_WINDOW = 2048  # derived: same


def marin(d_model: int, num_layers: int) -> ModelConfig:
    """The 535B-A23B recipe at any width: heads of 128, a quarter and an eighth of them for keys, all inner widths d_model / 2.

    Source: reference model-and-training 1.1 and 2.1.
    """
    num_heads = d_model // MARIN_D_HEAD
    return ModelConfig(
        vocab_size=MARIN_VOCAB,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        d_head=MARIN_D_HEAD,
        num_kv_heads=max(1, num_heads // 4),
        num_global_kv_heads=max(1, num_heads // 8),
        window=MARIN_WINDOW,
        num_experts=384,
        top_k=8,
        d_expert=d_model // 2,
        d_latent=d_model // 2,
        d_shared=d_model // 2,
    )


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """A published model in our block, and how our count relates to its published one."""

    model: ModelConfig
    seq_len: int
    """Context it was pretrained at."""
    published_num_params: int
    """Exact count of the released checkpoint, without multi-token prediction modules."""
    difference: int
    """Published minus ours."""
    reason: str
    """What the difference is, in full."""


def _plain(**sizes: object) -> ModelConfig:
    """A pre-norm block without any of Marin's additions: full rotation, softmax weights, no gates, convolutions or windows."""
    switches: dict[str, object] = {
        "window": 0,
        "rope_fraction": 1.0,
        "rope_on_global": True,
        "qk_norm": False,
        "qk_mult": 1.0,
        "exclusive_attention": False,
        "head_gate": False,
        "short_conv_taps": 0,
        "gated_norm_rank": 0,
        "embedding_norm": False,
        "num_shared_experts": 0,
        "d_shared": 0,
        "routed_scale": 1.0,
        "combine": "softmax",
        "balancing": "auxiliary_loss",
        "z_loss_coefficient": 0.0,
    }
    return ModelConfig(**(switches | sizes))  # type: ignore[arg-type]


OLMOE_1B_7B = Sibling(  # source: arXiv:2409.02060 and the released config
    model=_plain(
        vocab_size=50_304,
        d_model=2048,
        num_layers=16,
        num_heads=16,
        d_head=128,
        num_kv_heads=16,
        num_global_kv_heads=16,
        num_experts=64,
        top_k=8,
        d_expert=1024,
        d_latent=2048,
        qk_norm=True,
        qk_gain="all_heads",
        combine="softmax_all",
        balance_coefficient=0.01,
    ),
    seq_len=4096,
    published_num_params=6_919_161_856,
    difference=0,
    reason="none",
)
MIXTRAL_8X7B = Sibling(  # source: arXiv:2401.04088 and the released config
    model=_plain(
        vocab_size=32_000,
        d_model=4096,
        num_layers=32,
        num_heads=32,
        d_head=128,
        num_kv_heads=8,
        num_global_kv_heads=8,
        num_experts=8,
        top_k=2,
        d_expert=14_336,
        d_latent=4096,
        rope_theta=1e6,
        balance_coefficient=0.02,
    ),
    seq_len=32_768,
    published_num_params=46_702_792_704,
    difference=0,
    reason="none",
)
QWEN3_30B_A3B = Sibling(  # source: arXiv:2505.09388 and the released config
    model=_plain(
        vocab_size=151_936,
        d_model=2048,
        num_layers=48,
        num_heads=32,
        d_head=128,
        num_kv_heads=4,
        num_global_kv_heads=4,
        num_experts=128,
        top_k=8,
        d_expert=768,
        d_latent=2048,
        qk_norm=True,
        qk_gain="per_head",
        rope_theta=1e6,
        norm_eps=1e-6,
        balance_coefficient=0.001,
    ),
    seq_len=4096,
    published_num_params=30_532_122_624,
    difference=0,
    reason="none",
)
_MLA_PARAMS = 61 * (7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168)
_OUR_ATTENTION = 61 * (2 * 7168 * 128 * 128 + 2 * 7168 * 8 * 128)
DEEPSEEK_V3 = Sibling(  # source: arXiv:2412.19437 and the released config
    model=_plain(
        vocab_size=129_280,
        d_model=7168,
        num_layers=61,
        num_heads=128,
        d_head=128,
        num_kv_heads=8,
        num_global_kv_heads=8,
        num_experts=256,
        top_k=8,
        d_expert=2048,
        d_latent=7168,
        num_shared_experts=1,
        d_shared=2048,
        num_dense_layers=3,
        d_dense=18_432,
        routed_scale=2.5,
        combine="sigmoid",
        balancing="sigmoid_bias",
        balance_coefficient=0.001,
        norm_eps=1e-6,
    ),
    seq_len=4096,
    published_num_params=671_026_419_200,
    difference=_MLA_PARAMS - _OUR_ATTENTION,
    reason="latent attention with its norms; ours is grouped-query attention with 128 heads on 8 key-value heads",
)
LLAMA3_8B = Sibling(  # source: arXiv:2407.21783 and the released config
    model=_plain(
        vocab_size=128_256,
        d_model=4096,
        num_layers=32,
        num_heads=32,
        d_head=128,
        num_kv_heads=8,
        num_global_kv_heads=8,
        num_experts=0,
        top_k=0,
        d_expert=0,
        d_latent=4096,
        num_shared_experts=1,
        d_shared=14_336,
        rope_theta=5e5,
    ),
    seq_len=8192,
    published_num_params=8_030_261_248,
    difference=0,
    reason="none",
)
SIBLINGS: dict[str, Sibling] = {
    "olmoe-1b-7b": OLMOE_1B_7B,
    "mixtral-8x7b": MIXTRAL_8X7B,
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "deepseek-v3": DEEPSEEK_V3,
    "dense-8b": LLAMA3_8B,
}


def reduced(config: ModelConfig, *, d_model: int, num_layers: int, vocab_size: int, num_experts: int, window: int) -> ModelConfig:
    """The same switches and ratios at a size that runs anywhere: inner widths scale with `d_model`, heads stay as many per group.

    Args:
        num_experts: of the small model, read only when the big one is routed; `top_k` is lowered to fit.
        window: of local layers, read only when the big one has them.
    """
    num_heads = max(2, min(config.num_heads, d_model // 16))
    num_kv_heads = max(1, num_heads * config.num_kv_heads // config.num_heads)
    num_global = max(1, num_heads * config.num_global_kv_heads // config.num_heads)

    def scaled(width: int) -> int:
        return max(8, width * d_model // config.d_model // 8 * 8) if width else 0

    return replace(
        config,
        vocab_size=vocab_size,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        d_head=d_model // num_heads,
        num_kv_heads=num_kv_heads,
        num_global_kv_heads=num_global,
        window=window if config.window else 0,
        num_experts=num_experts if config.num_experts else 0,
        top_k=min(config.top_k, num_experts) if config.num_experts else 0,
        d_expert=scaled(config.d_expert),
        d_latent=d_model if config.d_latent == config.d_model else scaled(config.d_latent),
        d_shared=scaled(config.d_shared),
        d_dense=scaled(config.d_dense),
        num_dense_layers=min(config.num_dense_layers, num_layers - 1),
        gated_norm_rank=min(config.gated_norm_rank, max(8, d_model // 4)) if config.gated_norm_rank else 0,
    )
