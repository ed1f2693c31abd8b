"""The glossary: every metric and count, its unit and its definition. Code, config, records, plots and pages use these names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Term:
    """One name everyone uses the same way."""

    name: str
    unit: str
    """Empty for a pure number."""
    definition: str
    better: str = ""
    """`lower`, `higher`, or empty when neither direction is good in itself."""


TERMS: tuple[Term, ...] = (
    Term(name="num_params", unit="parameters", definition="every trained number, embeddings and router included"),
    Term(
        name="num_params_headline",
        unit="parameters",
        definition="matrices only: attention, router, experts, latent projections, embedding and head; no norms, gates or convolutions",
    ),
    Term(
        name="num_active_params",
        unit="parameters",
        definition="attention + router + top_k routed + latent + shared matrices; no embedding, head, norms or gates",
    ),
    Term(name="tokens_per_active_param", unit="tokens per parameter", definition="train_tokens / num_active_params"),
    Term(name="train_tokens", unit="tokens", definition="tokens predicted over the whole run: steps x batch_tokens"),
    Term(name="batch_tokens", unit="tokens", definition="tokens per optimizer step over all devices"),
    Term(
        name="train_flops",
        unit="FLOPs",
        definition="3 x forward FLOPs x tokens; forward counts 2 per multiply-add, attention over full spans capped by the window, latent projections included",
    ),
    Term(name="fit_compute", unit="FLOPs", definition="train_flops without the output head; a forecast always says which compute it used"),
    Term(name="loss_nats", unit="nats per token", definition="mean cross-entropy per predicted token, no auxiliary terms", better="lower"),
    Term(name="bits_per_byte", unit="bits per byte", definition="loss_nats / ln 2 / mean bytes per token", better="lower"),
    Term(
        name="macro_loss_nats",
        unit="nats per token",
        definition="unweighted mean of loss_nats over the held-out domains, dropless unless the name says otherwise",
        better="lower",
    ),
    Term(name="z_loss", unit="nats^2", definition="mean squared logsumexp of the output logits, before its coefficient", better="lower"),
    Term(
        name="grad_norm",
        unit="",
        definition="L2 norm of all gradients in float32, before any clipping; `grad_norm/<group>` for one parameter group",
    ),
    Term(name="param_norm", unit="", definition="L2 norm of all parameters in float32; `param_norm/<group>` for one parameter group"),
    Term(name="learning_rate", unit="", definition="step size of the MuonH group; `learning_rate/<group>` for the others"),
    Term(
        name="drop_fraction",
        unit="",
        definition="dropped assignments / valid assignments, summed over layers in 64-bit integers",
        better="lower",
    ),
    Term(name="drop_fraction_worst", unit="", definition="drop_fraction of the worst layer", better="lower"),
    Term(
        name="load_imbalance",
        unit="",
        definition="most loaded expert / mean load before drops, worst layer; `load_imbalance/layer_<i>` per layer; 1 is perfect",
        better="lower",
    ),
    Term(
        name="router_entropy_nats",
        unit="nats",
        definition="entropy of the mean routing distribution, mean over layers; ln(num_experts) is perfect",
        better="higher",
    ),
    Term(name="router_bias_max", unit="", definition="largest absolute routing bias of any expert in any layer"),
    Term(
        name="dead_expert_fraction",
        unit="",
        definition="share of experts that received no token in the step, over all layers",
        better="lower",
    ),
    Term(name="tokens_per_second", unit="tokens/s", definition="batch_tokens / step_time_s", better="higher"),
    Term(name="step_time_s", unit="s", definition="wall time of one optimizer step, evaluation and saving excluded", better="lower"),
    Term(name="mfu", unit="", definition="train_flops per second / (devices x peak of the stated dtype)", better="higher"),
    Term(
        name="mfu_executed", unit="", definition="as mfu, counting the rows the transport really executed, filled or not", better="higher"
    ),
    Term(name="mfu_useful", unit="", definition="as mfu, counting only assignments that were not dropped", better="higher"),
    Term(name="loader_wait_s", unit="s", definition="time the step waited for its batch", better="lower"),
    Term(name="loader_occupancy", unit="", definition="filled share of the prefetch queue when the step asked", better="higher"),
    Term(name="checkpoint_time_s", unit="s", definition="time a save blocked the loop", better="lower"),
    Term(name="memory_gib", unit="GiB", definition="resident memory of the process", better="lower"),
    Term(
        name="skipped_steps",
        unit="steps",
        definition="steps skipped so far by the declared policy for non-finite or spiking gradients",
        better="lower",
    ),
    Term(name="enrichment", unit="", definition="P(q given c) / P(q), over tokens, for domain c and quality bucket q"),
    Term(
        name="exposure",
        unit="epochs",
        definition="sum over phases of phase tokens x weight / available tokens; at most the epoch cap (8)",
        better="lower",
    ),
    Term(
        name="interval_score",
        unit="nats per token",
        definition="width of the interval + (2/alpha) x the distance by which the outcome missed it",
        better="lower",
    ),
    Term(name="coverage", unit="", definition="share of outcomes inside the stated interval"),
    Term(
        name="compute_speedup",
        unit="",
        definition="compute the baseline law needs for the variant's loss / compute the variant used",
        better="higher",
    ),
)

BY_NAME: dict[str, Term] = {term.name: term for term in TERMS}


def term_of(metric: str) -> Term | None:
    """The glossary entry of a metric name; qualifiers behind `/` (`grad_norm/routed`) and before it (`eval/...`) are ignored."""
    for part in (metric, *metric.split("/")):
        if part in BY_NAME:
            return BY_NAME[part]
    return None


def spoken(metric: str) -> str:
    """A metric inside a sentence: `eval/macro_loss_nats` is the held-out loss. Where people have no other word, its name."""
    if metric == "loss_nats":
        return "train loss"
    kind, _, rest = metric.partition("/")
    domain, _, measure = rest.rpartition("/")
    word = {"loss_nats": "loss", "bits_per_byte": "bits per byte"}.get(measure.removeprefix("macro_"))
    if kind not in ("eval", "eval_with_drops") or word is None:
        return metric
    drops = " with drops" if kind == "eval_with_drops" else ""
    return f"held-out {word}{drops}" + (f" on {domain}" if domain else "")
