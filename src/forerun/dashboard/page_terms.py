"""The glossary of the pages: names that are shown but never logged, beside `base/terms.py`, whose names are metrics and counts."""

from __future__ import annotations

from forerun.base.terms import TERMS, Term, term_of

PAGE_TERMS: tuple[Term, ...] = (
    Term(
        name="load_over_mean", unit="", definition="assignments sent to an expert / mean over experts, before drops; 1 is perfect balance"
    ),
    Term(name="grad_norm_shape", unit="", definition="grad_norm / its median over the run, so that runs of different size compare"),
    Term(name="num_domains", unit="domains", definition="domains of a data set"),
    Term(name="step", unit="steps", definition="finished optimizer steps"),
    Term(name="num_steps", unit="steps", definition="optimizer steps the run is planned to take"),
    Term(name="fraction_done", unit="", definition="steps taken / steps planned"),
    Term(
        name="forward_flops_per_token",
        unit="FLOPs per token",
        definition="forward FLOPs of one token: 2 per multiply-add, by part of the model",
    ),
    Term(name="compute_fraction", unit="", definition="compute of a run or rung / compute of the run it is held against", better="lower"),
    Term(
        name="memory_bytes",
        unit="bytes",
        definition="planned memory of one device: weights, optimizer state, gradients, kept activations, buffers",
    ),
    Term(
        name="network_bytes_per_step",
        unit="bytes per step",
        definition="planned bytes one device sends each step, inside and beyond its scale-up domain",
    ),
    Term(name="step_bound_s", unit="s", definition="shortest possible step, were this resource all that counts"),
    Term(name="days", unit="days", definition="pure stepping time of the whole run at the stated mfu"),
    Term(name="energy_mwh", unit="MWh", definition="devices x power x days x 1.5 for hosts, network and cooling"),
    Term(name="checkpoint_bytes", unit="bytes", definition="one copy of float32 weights and optimizer state"),
    Term(name="num_devices", unit="devices", definition="devices the mesh spans: replica x data x expert"),
    Term(name="num_promises", unit="promises", definition="experiments registered before their run began"),
    Term(name="interval90", unit="", definition="range stated before the run to hold the outcome with 90% confidence"),
    Term(name="interval50", unit="", definition="range stated before the run to hold the outcome with 50% confidence"),
    Term(name="place", unit="", definition="row of the table above"),
    Term(name="signed_error", unit="", definition="(outcome - point forecast) / outcome; positive when the forecast was too low"),
    Term(name="absolute_error", unit="", definition="mean of |forecast / outcome - 1|", better="lower"),
    Term(name="coverage90", unit="", definition="share of outcomes inside their 90% interval; 90% is right"),
    Term(name="width90", unit="", definition="mean width of the 90% interval over the outcome", better="lower"),
    Term(name="seed_noise", unit="", definition="relative standard deviation of the end between seeds of one rung", better="lower"),
    Term(
        name="floor",
        unit="nats per token",
        definition="irreducible loss: what the loss would tend to with unbounded compute, assumed or fitted",
    ),
    Term(name="belief", unit="", definition="weight the forecaster gives to this value; all weights sum to 1"),
    Term(
        name="false_alarm_rate", unit="", definition="share of healthy replayed runs in which the rule alarms at any time", better="lower"
    ),
    Term(name="num_outcomes", unit="outcomes", definition="outcomes that forecasts were scored against"),
    Term(name="num_runs", unit="runs", definition="runs counted"),
    Term(name="detected", unit="", definition="share of planted incidents that raised an alarm", better="higher"),
    Term(name="detection_delay", unit="steps", definition="median steps from the planted incident to its first alarm", better="lower"),
    Term(name="diagnosed", unit="", definition="share of found incidents whose cause is among the first two candidates", better="higher"),
    Term(name="quality_share", unit="", definition="share of a domain's tokens in one quality bucket, q0 lowest, q4 best"),
    Term(name="confidence", unit="", definition="weight of a cause among the candidates of one report, 0 to 1"),
    Term(name="evidence", unit="", definition="what a rule saw: value, limit and step, in words"),
    Term(name="num_tokens", unit="tokens", definition="tokens of the store, end-of-document tokens included"),
    Term(name="token_share", unit="", definition="tokens / tokens of the whole, or of the domain or source the table is about"),
    Term(name="share_read", unit="", definition="tokens a run reads of this part / all tokens it reads"),
    Term(name="tokens_read", unit="tokens", definition="tokens a run reads of this source, repeats counted"),
    Term(name="mixture_weight", unit="", definition="share of the tokens a run reads that comes from this cell"),
    Term(
        name="topic_tokens",
        unit="tokens",
        definition="tokens of documents with every word of the topic, estimated from the uniform samples",
    ),
    Term(name="topic_share", unit="", definition="topic_tokens / tokens of the part the row names"),
    Term(name="config_field", unit="", definition="value of a field of the config, as frozen before the run"),
    Term(name="version", unit="", definition="version of a package the run was trained with"),
    Term(name="incident_date", unit="", definition="when the incident was reported, as exactly as its source says, UTC"),
    Term(name="benchmark_measure", unit="", definition="what the row names, measured on public runs the forecaster was not fitted on"),
    Term(name="benchmark_bar", unit="", definition="what must be reached for the row to count as met; set before it was measured"),
    Term(name="document_id", unit="", definition="beginning of a document's identity, a digest of its source and content"),
    Term(name="containment", unit="", definition="share of a document's distinct word 3-grams that another document has"),
    Term(name="jaccard", unit="", definition="distinct word 3-grams two documents share / those of both together"),
    Term(name="cluster_size", unit="documents", definition="documents that were compared with each other as possible near-duplicates"),
    Term(name="novel_grams", unit="", definition="distinct word 3-grams of a document that the kept one lacks", better="lower"),
    Term(name="novel_words", unit="words", definition="distinct words of a document that the kept one lacks", better="lower"),
    Term(name="comparisons", unit="documents", definition="documents a document was compared with word by word"),
    Term(name="domain_cosine", unit="", definition="cosine of a document's vector to the centre of its fine cluster"),
    Term(name="quality_score", unit="", definition="calibrated quality of a document, 0 to 1; bucket edges .2 .4 .6 .8", better="higher"),
    Term(
        name="neighbour_share", unit="", definition="share of a domain's fine clusters, by documents, that are nearest to this other domain"
    ),
    Term(
        name="intruder_accuracy",
        unit="",
        definition="share of trials in which a judge finds the document of another domain",
        better="higher",
    ),
    Term(
        name="name_accuracy",
        unit="",
        definition="share of excerpts for which a model that sees nothing else finds the name of their domain",
        better="higher",
    ),
    Term(name="review_rate", unit="", definition="share of the reviewed pairs that were decided wrongly", better="lower"),
    Term(name="num_shards", unit="files", definition="files of token ids"),
    Term(name="num_documents", unit="documents", definition="documents, each counted once"),
)

GLOSSARY: tuple[Term, ...] = (*TERMS, *PAGE_TERMS)
_PAGE = {term.name: term for term in PAGE_TERMS}


def known_entry(name: str) -> Term | None:
    """The glossary entry of a metric or shown name, if there is one."""
    return _PAGE.get(name) or term_of(name)


def entry_of(name: str) -> Term:
    """The glossary entry of what our own pages show. What no page could explain must not be on a page: our own mistake."""
    entry = known_entry(name)
    assert entry is not None, f"{name!r} is not in the glossary"
    return entry
