"""The health checklist of twelve: for each item the rules that answer it, with value, rule, evidence and state."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.watch.report import CheckItem, Finding

ITEMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("gradient norm steady", ("grad_spike", "grad_shape", "grad_group"), "rate of change against past and rungs, not size"),
    ("constrained norms constant", ("constant_norms",), "within 0.5% of their value at the start"),
    ("dropping like the ladder", ("drop_fraction",), "at most twice its usual share, or the rungs' plus 2 points"),
    ("train loss down", ("loss_shift", "loss_drift", "loss_spike", "nonfinite"), "scores of the residual under their limits"),
    ("held-out loss down", ("eval_shift",), "two evaluations in a row beyond their scatter alarm"),
    ("router bias steady", ("router_bias",), "at most twice its usual size"),
    ("router entropy near its maximum", ("router_entropy", "load_imbalance", "dead_experts"), "at most 0.03 nats under its usual level"),
    ("embedding and free norms sane", ("norm_drift",), "no group grows away from the others"),
    ("MFU constant", ("speed",), "median within 20% of its usual level"),
    ("learning rates as planned", ("learning_rate",), "within 2% of the schedule"),
    ("config as registered", ("config",), "digests are equal"),
    ("evaluations meet the forecast", ("loss_level",), "inside the widened interval; three in a row outside alarm"),
)
"""Source: the list Marin's operators keep for their 535B run (marin-community/marin #8435), in our rules."""


def checklist(findings: Sequence[Finding]) -> tuple[CheckItem, ...]:
    """The twelve items: the worst alarm of an item's rules, or else what its first rule says."""
    items = []
    for item, rules, words in ITEMS:
        answers = [finding for finding in findings if finding.rule in rules]
        answers.sort(key=lambda finding: (finding.state != "off_course", rules.index(finding.rule)))
        if answers:
            items.append(
                CheckItem(item=item, rules=rules, state=answers[0].state, value=answers[0].value, rule=words, evidence=answers[0].evidence)
            )
        else:
            items.append(
                CheckItem(item=item, rules=rules, state="cannot_tell", value=float("nan"), rule=words, evidence="no rule answered")
            )
    return tuple(items)
