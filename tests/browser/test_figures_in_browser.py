"""Figures are read, zoomed, toggled and linked by mouse and by keyboard; a million points are drawn while nobody waits."""

from __future__ import annotations

import statistics

import numpy as np
import pyarrow as pa
import pytest
from browsing import settle, until

from forerun.base.lab import Lab
from forerun.record.run import start_run
from forerun.record.segments import write_table

pytestmark = pytest.mark.browser
MILLION = 1_000_000


def query(page) -> str:
    return page.evaluate("location.search")


def test_zoom_by_keyboard_goes_into_the_link_and_the_link_shows_the_same(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/runs/big.html")
    settle(page)
    page.locator("figure#loss .area").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert query(page).startswith("?zoom=loss:")
    assert "loss_nats" in page.locator("figure#loss .readout").inner_text()
    low, high = (float(part) for part in query(page).split(":")[1:])
    again = open_page(page.url)
    until(again, "document.querySelector('figure#loss').dataset.live === 'rows'")
    assert query(again) == query(page)
    again.locator("figure#loss .area").focus()
    again.keyboard.press("ArrowLeft")
    at = float(again.locator("figure#loss .readout").inner_text().split()[1].rstrip(":").replace(",", ""))
    assert low <= at <= high
    again.keyboard.press("0")
    assert query(again) == ""


def test_dragging_zooms_and_a_switched_off_line_stays_off_in_the_link(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/runs/big.html")
    settle(page)
    figure = page.locator("figure#domains")
    figure.scroll_into_view_if_needed()
    box = figure.locator(".u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.mouse.up()
    assert "zoom=domains:" in query(page)
    figure.locator(".legend button").nth(1).click()
    assert "hide=domains:1" in query(page)
    again = open_page(page.url)
    again.wait_for_selector("figure#domains .legend button")
    pressed = again.locator("figure#domains .legend button").evaluate_all("(buttons) => buttons.map((button) => button.ariaPressed)")
    assert pressed[1] == "false" and pressed[0] == "true"
    again.locator("figure#domains").get_by_role("button", name="All of domains").click()
    assert "zoom" not in query(again)


def test_hover_text_opens_by_mouse_and_by_focus_and_closes_with_escape(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/index.html")
    number = page.locator("data.n").first
    number.hover()
    box = page.locator("#words")
    assert box.is_visible() and ":" in box.inner_text()
    page.keyboard.press("Escape")
    assert not box.is_visible()
    page.locator("a.term").first.focus()
    assert box.is_visible()


def test_incident_links_open_the_figure_around_the_step(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/incidents.html")
    page.locator("a[href*='zoom=loss']").first.click()
    page.wait_for_selector("figure#loss[data-live=rows]")
    assert "zoom=loss:" in query(page)


def test_compare_draws_chosen_runs_by_compute_and_links_to_the_choice(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/compare.html")
    page.get_by_label("compute", exact=True).check()
    page.get_by_label("Metric").select_option("loss_nats")
    page.get_by_label("still-going").uncheck()
    page.wait_for_selector(".figure-like canvas")
    assert "by=compute" in query(page) and "metric=loss_nats" in query(page)
    finding = page.locator("#compare [role=status]")
    until(page, "document.querySelector('#compare [role=status]').innerText.includes('lowest loss_nats')")
    again = open_page(page.url)
    again.wait_for_selector(".figure-like canvas")
    until(again, "document.querySelector('#compare [role=status]').innerText.includes('lowest loss_nats')")
    assert again.locator("#compare [role=status]").inner_text() == finding.inner_text()
    assert again.get_by_label("compute", exact=True).is_checked() and not again.get_by_label("still-going").is_checked()


def test_what_if_plans_in_the_page_as_the_command_does(small, static_site, open_page):
    import json

    from plan_twin import cases, differences

    from forerun.plan.ask import Question, run_of
    from forerun.plan.cost import plan
    from forerun.plan.devices import device_named

    page = open_page(f"{static_site(small)}/plan.html?of=marin-hero")
    page.get_by_label("device", exact=True).select_option("h100")
    page.get_by_label("top_k", exact=True).fill("4")
    page.get_by_label("MFU", exact=True).fill("0.3")
    assert "--preset marin-hero --device h100 --mfu 0.3 --set model.top_k=4" in page.locator("pre.command").inner_text()
    told = json.loads(page.locator("#plan-tables").get_attribute("data-plan"))
    expected = plan(run_of(Question(preset="marin-hero", changes=("model.top_k=4",))), device_named("h100"), 0.3).as_json()
    assert differences(json.loads(json.dumps(expected)), told) == []
    page.get_by_label("top_k", exact=True).fill("4000")
    assert "top_k must be between 1 and" in page.locator("#what-if [role=status]").inner_text()
    planned = cases(60)
    found = page.evaluate(
        """async (cases) => {
            const { plan } = await import('./static/formulas.js');
            const inputs = await (await fetch('plan.json')).json();
            return cases.map((one) => plan(one.run, inputs.devices[one.device], one.mfu, inputs));
        }""",
        planned,
    )
    for case, answer in zip(planned, found, strict=True):
        assert differences(case["plan"], answer) == []


@pytest.fixture(scope="module")
def long_lab(tmp_path_factory):
    """One run of a million steps, sealed."""
    lab = Lab(tmp_path_factory.mktemp("long") / "lab")
    start_run(lab.run("long"), num_steps=MILLION, unregistered=True, first_step=1)
    folder = lab.run("long") / "w0"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    step = np.arange(1, MILLION + 1)
    loss = (3 + 5 * step**-0.3 + rng.normal(0, 0.02, MILLION)).astype(np.float32)
    loss[700_000] = 9.0  # one spike that no thinning may lose
    table = {"step": step, "time": 1.7e9 + step.astype(float), "segment": np.zeros(MILLION, np.int32), "loss_nats": loss}
    write_table(folder / "seg-000000000000.parquet", pa.table(table))
    return lab


def test_a_million_points_are_drawn_200_ms_after_they_arrive_and_zoom_takes_50_ms(long_lab, static_site, open_page):
    page = open_page(f"{static_site(long_lab)}/runs/long.html")
    firsts, zooms = [], []
    for _ in range(5):
        page.reload()
        page.wait_for_selector("figure#loss[data-live=rows]", timeout=30_000)
        assert page.locator("figure#loss .plot").get_attribute("data-points") == str(MILLION)
        firsts.append(
            page.evaluate(
                """() => {
                    const last = (name) => Math.max(...performance.getEntriesByType('mark').filter((mark) => mark.name.startsWith(name)).map((mark) => mark.startTime));
                    return last('drawn:loss') - last('arrived:');
                }"""
            )
        )
        zooms += page.evaluate(
            """async () => {
                const button = document.querySelector('figure#loss .tools button');
                const times = [];
                for (let i = 0; i < 8; i += 1) {
                    const start = performance.now();
                    button.click();
                    times.push(performance.now() - start);
                    await new Promise((done) => requestAnimationFrame(done));
                }
                document.querySelector('figure#loss .tools button:last-child').click();
                return times;
            }"""
        )
    print(
        f"first draw, ms: {sorted(round(value) for value in firsts)}; zoom, ms: median {statistics.median(zooms):.1f}, worst {max(zooms):.1f}"
    )
    assert statistics.median(firsts) < 200
    assert statistics.median(zooms) < 50


def test_thinning_keeps_every_spike(long_lab, static_site, open_page):
    page = open_page(f"{static_site(long_lab)}/runs/long.html")
    page.wait_for_selector("figure#loss[data-live=rows]", timeout=30_000)
    rows = page.evaluate("(async () => (await (await fetch('../csv/runs/long/loss.csv')).text()).split('\\n').length)()")
    assert rows < 300
    assert ",9,," in page.evaluate("(async () => (await fetch('../csv/runs/long/loss.csv')).text())()")
