"""Markdown, numbers, axes, thinning and rows: what pages are made of."""

from __future__ import annotations

import io
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from forerun.base.axis import Axis
from forerun.base.chart import Chart, Line
from forerun.base.lab import Lab
from forerun.base.terms import TERMS
from forerun.dashboard import rows
from forerun.dashboard.heat import HeatMap
from forerun.dashboard.html import join
from forerun.dashboard.markdown import markdown
from forerun.dashboard.numbers import number
from forerun.dashboard.page_terms import GLOSSARY
from forerun.dashboard.points import POINTS, thinned
from forerun.dashboard.routing_panels import expert_maps
from forerun.dashboard.run_view import RunView, signature_of
from forerun.record.journal import Journal
from forerun.record.run import start_run
from forerun.record.series import series_of


def shown(source: str) -> str:
    return str(join(markdown(source)))


def test_markdown_makes_its_few_elements():
    assert shown("# One\n\ntext *soft* **loud** `a<b`\nmore\n\n- x\n- y\n\n1. z\n\n> said") == (
        "<h3>One</h3><p>text <em>soft</em> <strong>loud</strong> <code>a&lt;b</code> more</p>"
        "<ul><li>x</li><li>y</li></ul><ol><li>z</li></ol><blockquote>said</blockquote>"
    )
    assert '<th scope="col">a</th>' in shown("| a | b |\n|---|:-:|\n| 1 | 2 |") and "<td>2</td>" in shown("| a | b |\n|---|---|\n| 1 | 2 |")
    assert shown("```\n<b>\n```") == '<pre tabindex="0">&lt;b&gt;</pre>'


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>)",
        "![x](http://evil/x.png)",
        '[x](https://a"onmouseover="alert(1))',
        "**<img src=x onerror=alert(1)>**",
        "| <img src=x> |\n|---|",
        "`<svg onload=alert(1)>`",
        "> <iframe>",
        "```\n</pre><script>",
    ],
)
def test_markdown_lets_nothing_else_through(source):
    made = shown(source)
    for forbidden in ("<script", "<img", "<iframe", "<svg", 'href="javascript', 'href="data', '"onmouseover'):
        assert forbidden not in made, made


@pytest.mark.parametrize("source", ["", "\n\n", "#", "- ", "|", "| |", "```", ">", "*", "**", "`", "[](", "1.", "#" * 50 + "x", "|||\n|-|"])
def test_markdown_ends_whatever_it_is_given(source):
    assert isinstance(shown(source), str)


def test_numbers_say_what_they_are_and_keep_all_digits():
    made = number(5.123456789, "eval/macro_loss_nats")
    assert 'value="5.123456789"' in made and ">5.123<" in made and 'title="macro_loss_nats (nats per token): ' in made
    assert "not measured" in number(None, "mfu") and "not measured" in number(math.nan, "mfu")
    assert ">535,477,106,688<" in number(535_477_106_688, "num_params")
    with pytest.raises(AssertionError, match="glossary"):
        number(1, "no_such_name")


def test_the_glossary_names_everything_once():
    names = [term.name for term in GLOSSARY]
    assert len(names) == len(set(names)) and len(names) > len(TERMS)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [math.nan],
        [math.inf, -math.inf],
        [0.0],
        [5.0, 5.0],
        [1e-300, 2e-300],
        [-1e300, 1e299],
        [1, 1 + 1e-15],
        [1e12, 1e12 + 1],
        [-3, 7],
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_axes_place_and_tick_any_values(values, log):
    axis = Axis(values, 0, 100, log=log)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 700 and len({label for _, label in ticks}) >= 1
    for value in values:
        if axis.holds(value):
            assert -1e-6 <= axis(value) <= 100 + 1e-6


def test_a_chart_file_carries_its_title_legend_and_numbers_and_escapes_them():
    chart = Chart(title="<finding>", x_label="x & y", y_label="loss", lines=[Line(x=[1, 2], y=[3, math.nan], label="a<b")])
    drawn = chart.file("made by <us>")
    assert drawn.startswith("<svg") and "&lt;finding&gt;" in drawn and "made by &lt;us&gt;" in drawn and "a&lt;b" in drawn
    assert "<finding>" not in drawn and "nan" not in drawn.split("<title>")[0]


def test_thinning_keeps_ends_lowest_and_highest_of_every_stretch():
    value = np.sin(np.arange(10_000) / 700.0)
    value[1234], value[8765], value[5] = 99.0, -99.0, math.nan
    step, kept = thinned(series_of(np.arange(10_000), value))
    assert len(step) <= POINTS + 2 and step[0] == 0 and step[-1] == 9999
    assert kept.max() == 99.0 and kept.min() == -99.0 and np.all(np.diff(step) > 0)
    short, _ = thinned(series_of(np.arange(50), np.arange(50)))
    assert len(short) == 50
    assert len(thinned(series_of([], []))[0]) == 0


def test_every_row_of_a_run_is_in_its_parquet_files_without_holes(tmp_path):
    lab = Lab(tmp_path)
    start_run(lab.run("r"), num_steps=10, unregistered=True)
    with Journal(lab.run("r")) as journal:
        for step in range(10):
            row = {"loss_nats": 1 / 3 + step, "grad_norm": math.inf if step == 4 else 1.0}
            journal.log(step, row | ({"eval/macro_loss_nats": 2.0 + step} if step % 5 == 0 else {}))
    view = RunView(lab.run("r"), signature_of(lab.run("r")))
    files = rows.files_of(view)
    assert set(files) == {"rows/r/index.json", "rows/r/0.parquet", "rows/r/1.parquet"}
    found = {}
    for path, make in files.items():
        if path.endswith("parquet"):
            table = pq.read_table(io.BytesIO(make()))
            assert all(table[name].null_count == 0 for name in table.column_names)
            for name in table.column_names[1:]:
                found[name] = (table["step"].to_pylist(), table[name].to_pylist())
    for metric in view.metrics():
        series = view.series(metric)
        assert found[metric] == (series.step.tolist(), series.value.tolist())


def test_a_heat_map_says_its_values_in_digits_and_leaves_gaps_empty():
    made = HeatMap(
        key="k", title="t", x_label="x", y_label="y", columns=["a", "b"], rows=["r"], values=[[1.0, math.nan]], term="load_imbalance"
    )
    drawn = made.render("k.csv")
    assert drawn.count('class="heat') == 1 and 'value="1.0"' in drawn
    assert made.csv() == "y \\ x,a,b\nr,1.0,\n"


def test_drops_by_layer_and_expert_name_the_worst_and_share_columns_where_experts_are_many(tmp_path):
    lab = Lab(tmp_path)
    start_run(lab.run("r"), num_steps=10, unregistered=True)
    valid = [[100] * 130, [100] * 130]
    dropped = [[0] * 130, [0] * 129 + [60]]
    flat = {"valid_by_expert": [200] * 130, "dropped_by_expert": [0] * 129 + [60]}
    with Journal(lab.run("r")) as journal:
        journal.event("drops", 5, **flat, valid_by_layer_and_expert=valid, dropped_by_layer_and_expert=dropped)
        journal.event("drops", 9, **flat, valid_by_layer_and_expert=[[1], [1, 2]], dropped_by_layer_and_expert="nonsense")
    view = RunView(lab.run("r"), signature_of(lab.run("r")))
    assert [made.key for made in expert_maps(view)] == ["expert-load", "expert-drops"]  # what is no table is left out
    with Journal(lab.run("r")) as journal:
        journal.event("drops", 10, **flat, valid_by_layer_and_expert=valid, dropped_by_layer_and_expert=dropped)
    drops, load = expert_maps(RunView(lab.run("r"), signature_of(lab.run("r"))))[:2]
    assert (drops.key, load.key) == ("layer-expert-drops", "layer-expert-load")
    assert len(drops.columns) == 44 and drops.columns[0] == "0-2" and drops.columns[-1] == "129"
    assert drops.values[1][-1] == pytest.approx(0.6) and "Expert 129 of layer 1" in drops.title and "60.00%" in drops.title
