"""Promised rules while a run is under way: same answers as the whole record gives, each told once."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from recorded import Recorded

from forerun.base.errors import RegistryError
from forerun.registry.live import LiveRules
from forerun.registry.possible import outcomes
from forerun.registry.rules import parse

RULES = (
    "any(grad_norm > 50)",
    "final(loss_nats) > 2 * min(loss_nats)",
    "mean(loss_nats) < 3 and max(grad_norm) < 60",
    "at(loss_nats, 0.5) > 4",
)


def rows(seed: int, count: int = 40) -> list[dict[str, float]]:
    rng = random.Random(seed)
    return [{"loss_nats": rng.uniform(1, 6)} | ({"grad_norm": rng.expovariate(0.05)} if rng.random() < 0.7 else {}) for _ in range(count)]


def twin(seen: list[dict[str, float]], num_steps: int) -> Recorded:
    """The same history from scratch."""
    return Recorded(
        {
            name: tuple(
                np.array(column) for column in zip(*((step / num_steps, row[name]) for step, row in enumerate(seen, 1) if name in row))
            )
            for name in ("loss_nats", "grad_norm")
            if any(name in row for row in seen)
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_live_rule_fires_at_the_first_step_the_whole_record_says_so(seed):
    data, rules = rows(seed), [parse(text, where="stop") for text in RULES]
    live = LiveRules(rules, (), num_steps=len(data))
    told = {fired.rule: step for step, row in enumerate(data, 1) for fired in live.observe(step, row)}
    first = {}
    for step in range(1, len(data) + 1):
        for rule in rules:
            if rule.judge(twin(data[:step], len(data))).holds:
                first.setdefault(rule.text, step)
    assert told == first and told


def test_a_restart_takes_over_the_history_and_does_not_repeat_itself():
    data, rule = rows(1), parse("mean(loss_nats) > 3.2", where="alarm")
    whole, resumed = LiveRules((), [rule], num_steps=40), LiveRules((), [rule], num_steps=40)
    told = [fired.step for step, row in enumerate(data, 1) for fired in whole.observe(step, row)]
    resumed.resume(twin(data[:20], 40), fired={rule.text} if told and told[0] <= 20 else set())
    assert [fired.step for step, row in enumerate(data[20:], 21) for fired in resumed.observe(step, row)] == [
        step for step in told if step > 20
    ]


def test_the_abort_budget_is_told_once_when_the_compute_passes_it():
    live = LiveRules((), (), num_steps=10, flops_per_step=1e9, abort_budget_flops=3.5e9)
    assert [(step, fired.kind) for step in range(1, 8) for fired in live.observe(step, {})] == [(4, "abort_budget")]


def test_a_row_costs_under_a_fifth_of_a_millisecond_after_ten_thousand_steps():
    live = LiveRules([parse(text, where="stop") for text in ("any(grad_norm > 1e9)", "final(loss_nats) > 1e9")], (), num_steps=20_000)
    for step in range(10_000):
        live.observe(step, {"grad_norm": 1.0, "loss_nats": 2.0})
    began = time.process_time()
    for step in range(10_000, 10_500):
        live.observe(step, {"grad_norm": 1.0, "loss_nats": 2.0})
    assert time.process_time() - began < 0.1  # 500 rows


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("final(grad_norm) < 0", "never"),
        ("any(drop_fraction > 1)", "never"),
        ("final(load_imbalance) >= 1", "always"),
        ("final(loss_nats) * -1 > 0", "never"),
        ("not final(loss_nats) >= 0", "never"),
        ("inside(final(eval/macro_loss_nats), 3.1, 2.9)", "never"),
        ("final(loss_nats) < 3 and inside(final(loss_nats), 4, 5)", "never"),
        ("max(mfu) / 2 > 0.6", "never"),
        ("final(loss_nats) < 3 and final(loss_nats) > 3", "never"),
        ("final(loss_nats) <= 3 and final(loss_nats) > 3", "never"),
        ("final(loss_nats) < 3 and not final(loss_nats) < 3", "never"),
        ("final(loss_nats) < 3 or final(loss_nats) >= 3", "always"),
        ("2 * final(loss_nats) + 1 > 7 and final(loss_nats) <= 3", "never"),
        ("3 < final(loss_nats) and 3 > final(loss_nats)", "never"),
        ("min(loss_nats) > 5 and final(loss_nats) < 4", "never"),
        ("any(loss_nats > 5) and max(loss_nats) < 4", "never"),
        ("all(loss_nats < 5) and final(loss_nats) == 6", "never"),
        ("final(loss_nats) < min(loss_nats)", "never"),
        ("max(loss_nats) >= first(loss_nats)", "always"),
        ("(final(loss_nats) < 2 or final(loss_nats) > 4) and inside(final(loss_nats), 3, 3.5)", "never"),
        ("final(loss_nats) == 3 and not inside(final(loss_nats), 2, 4)", "never"),
        ("any(loss_nats > 5) or all(loss_nats <= 5)", "always"),
        ("final(loss_nats) - first(loss_nats) < 1 and final(loss_nats) - first(loss_nats) > 2", "never"),
        ("final(loss_nats) < final(loss_nats)", "never"),
    ],
)
def test_a_rule_that_no_run_can_decide_is_refused(text, word):
    with pytest.raises(RegistryError, match=f"is {word} true"):
        parse(text, where="success")


def test_differences_and_products_of_open_ranges_stay_undecided():
    for text in (
        "final(loss_nats) - first(loss_nats) < 0",
        "final(loss_nats) * final(grad_norm) > 3",
        "final(loss_nats) / final(grad_norm) > 1",
        "final(loss_nats) <= 3 and final(loss_nats) >= 3",
        "final(loss_nats) < 3 and first(loss_nats) > 3",
        "min(loss_nats) < 3 and max(loss_nats) > 3",
        "any(loss_nats > 5) and final(loss_nats) < 4",
        "final(loss_nats) < 3 or final(loss_nats) > 3",
        "any(loss_nats == 3) and final(loss_nats) > 3",
        "final(loss_nats) <= min(loss_nats)",
        "not any(grad_norm > 50) and final(loss_nats) < 3",
    ):
        assert parse(text, where="w").text == text
    assert outcomes(("compare", "<", ("number", 1.0), ("number", 2.0))) == (True, False)


def test_numbers_of_the_prediction_have_names_and_bracket_towers_are_refused():
    rule = parse("inside(final(loss_nats), low90, high90)", where="success", names={"low90": 2.0, "high90": 3.0})
    assert rule.judge(Recorded({"loss_nats": (np.array([1.0]), np.array([2.5]))})).holds
    for text in ("(" * 40 + "final(loss_nats) < 1" + ")" * 40, "not " * 300 + "final(loss_nats) < 1"):
        with pytest.raises(RegistryError, match="more than"):
            parse(text, where="success")
