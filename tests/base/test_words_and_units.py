"""Numbers as people read them, at the edges where a unit changes."""

import math

import pytest

from forerun.base import units
from forerun.base.terms import spoken


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (7, "7"), (0.25, "0.25"), (999, "999"), (1000, "1k"), (999_499, "999k"), (999_999, "1M"), (535_477_106_688, "535B"),
        (999_999_999_999, "1T"), (-1500, "-1.5k"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_a_count_has_three_digits_and_the_unit_of_what_it_rounds_to(value, shown):
    assert units.count(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.85, "850 ms"), (42, "42.0 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")])
def test_a_duration_is_in_the_unit_people_would_say_it_in(seconds, shown):
    assert units.duration(seconds) == shown


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("eval/macro_loss_nats", "held-out loss"),
        ("eval/french/wiki/loss_nats", "held-out loss on french/wiki"),
        ("eval_with_drops/macro_bits_per_byte", "held-out bits per byte with drops"),
        ("loss_nats", "train loss"),
        ("grad_norm/head", "grad_norm/head"),
        ("eval/french/accuracy", "eval/french/accuracy"),
    ],
)
def test_a_metric_is_said_in_words_where_there_are_some(metric, said):
    assert spoken(metric) == said
