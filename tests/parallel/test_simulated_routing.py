"""The routing simulator gives the published drops, and its own arithmetic is right where it can be worked by hand."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.base.errors import ConfigError
from forerun.cli.main import run
from forerun.parallel.published import PUBLISHED, compared
from forerun.parallel.simulate import Behaviour, Scenario, forecast, predict

SMALL = Scenario(num_experts=16, top_k=2, shards=4, seq_len=512, tokens_per_shard=4096, rule="fixed_cells")


def test_the_published_table_comes_out_in_order_and_within_a_factor_of_two():
    rows = {row.what: row for row in compared(num_draws=150)}
    required = [
        "pooled waves, 11 racks, 4K",
        *(f"ragged, one rack, {context}" for context in ("4K", "8K", "16K")),
        *(f"fixed cells {factor}, 128 experts" for factor in ("1.0", "1.125", "1.25", "1.5")),
    ]
    for what in required:
        assert 0.5 < rows[what].ratio < 2, rows[what]
    in_order = sorted(required, key=lambda what: rows[what].measured)
    assert in_order == sorted(required, key=lambda what: rows[what].simulated)
    ragged = [rows[f"ragged, one rack, {context}"].simulated for context in ("4K", "8K", "16K")]
    assert 2 < ragged[1] / ragged[0] < 8 and 2 < ragged[2] / ragged[1] < 8  # about four times per doubling
    assert sum(row.role == "fitted" for row in PUBLISHED) == 4


def test_without_correlation_only_single_tokens_are_uneven():
    quiet = Behaviour(specialisation=1e-9, contrast=0.0, unevenness=0.0, early_unevenness=0.0)
    cells = predict(replace(SMALL, capacity_factor=1.0), quiet, num_draws=200).drop_fraction
    mean_rows = 4096 * 2 / 16
    assert cells == pytest.approx(0.3989 / mean_rows**0.5, rel=0.05)  # E max(N(0, s), 0) = s / sqrt(2 pi)
    assert predict(replace(SMALL, capacity_factor=1.5), quiet, num_draws=50).drop_fraction == 0


def test_one_document_a_cell_with_exponential_wishes_loses_one_part_in_e():
    behaviour = Behaviour(specialisation=384 / 16, contrast=0.0, unevenness=0.0)
    alone = replace(SMALL, num_experts=16, seq_len=4096, groups=10_000, capacity_factor=1.0)
    # Gamma(1) wishes: E max(X - 1, 0) = 1/e; 16 of them normalised to their own mean lose a little less.
    assert predict(alone, behaviour, num_draws=300).drop_fraction == pytest.approx(np.exp(-1), rel=0.08)


def test_fewer_documents_drop_more_and_shared_room_drops_less():
    point = forecast(replace(SMALL, rule="water_filling_expert"), num_draws=100)
    drops = [prediction.drop_fraction for prediction in point.curve]
    assert all(earlier > later for earlier, later in zip(drops, drops[1:], strict=False))
    shared = predict(replace(SMALL, rule="water_filling_shard"), num_draws=100)
    assert shared.drop_fraction < point.here.drop_fraction
    assert "documents per shard" in point.text() and point.chart().lines[0].y[0] == drops[0]


def test_the_command_writes_numbers_a_plot_and_its_table(tmp_path, capsys):
    sizes = ["--num-experts", "16", "--top-k", "2", "--mesh", "data=2,expert=4", "--batch-tokens", "32768", "--seq-len", "1024"]
    assert run(["simulate-routing", *sizes, "--num-draws", "20", "--json", "--plot", str(tmp_path / "drops.svg")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scenario"]["groups"] == 2 and told["scenario"]["tokens_per_shard"] == 4096
    assert told["here"]["documents_per_shard"] == 4.0 and len(told["curve"]) == 5
    assert (tmp_path / "drops.svg").read_text().startswith("<svg")
    rows = list(csv.reader((tmp_path / "drops.csv").open()))
    assert len(rows) == 1 + 5 + 5 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mesh", "expert=5"], "--mesh expert must divide"),
        (["--seq-len", "0"], "--seq-len must be at least 1"),
        (["--seq-len", "100000"], "a shard holds whole sequences"),
        (["--rule", "best"], "--rule must be one of"),
        (["--num-draws", "0"], "--num-draws must be at least 1"),
        (["--top-k", "400"], "--top-k must be at most"),
        (["--capacity-factor", "nan"], "--capacity-factor must be positive"),
        (["--capacity-factor", "inf"], "--capacity-factor must be positive and finite"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--reference", "--num-draws", "0"], "--num-draws must be at least 1"),
        (["--plot", "drops.csv"], "--plot must name a file that ends in .svg"),
        (["--plot", "/tmp"], "--plot must name a file that ends in .svg"),
        (["--batch-tokens", "1000"], "--batch-tokens must be a multiple"),
    ],
)
def test_bad_options_name_the_flag_and_the_way_out(options, message):
    with pytest.raises(ConfigError) as caught:
        run(["simulate-routing", *options])
    assert message in str(caught.value)
