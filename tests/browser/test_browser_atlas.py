"""The atlas in a browser: every page of a real, small data set is clicked through; hostile text stays text."""

from __future__ import annotations

import json
import random
import re
import time
from http.server import ThreadingHTTPServer
from threading import Thread

import pytest
from browsing import ROOT, QuietHandler, until

from atlas_labs import HOSTILE, data_lab
from forerun.dashboard.atlas.table import import_table
from forerun.dashboard.build import build_site
from forerun.dashboard.lab_files import Planner
from forerun.plan.page_inputs import page_inputs, plan_of, planned_of

pytestmark = pytest.mark.browser
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

FILLED = {"contamination.html": ".beside pre", "domains/astronomy.html": "article pre", "mixture.html": "#what-if table"}
"""What a script adds to a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A static site of a lab with an ordinary and a hostile data set and a published table, on a file server."""
    lab, digests = data_lab(tmp_path_factory.mktemp("atlas"), {"plain": "", "hostile": HOSTILE})
    import_table(lab, "harrier", "harrier")
    out = lab.root / "site"
    build_site(lab, out, Planner(plan=plan_of, planned=planned_of, inputs=page_inputs()))

    class Handler(QuietHandler):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, directory=str(out), **options)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", {name: digest[:12] for name, digest in digests.items()}
    server.shutdown()


def test_every_page_of_a_data_set_is_reached_by_links(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data.html")
    page.click("text=plain")
    assert page.title().startswith("Data set plain")
    for link in ("Mixture", "Duplicates", "Contamination", "Provenance", "Files", "Overview"):
        page.click(f"ul.links >> text={link}")
        assert page.locator("h1").count() == 1
    page.click("tbody a >> nth=0")
    assert page.locator("h2:has-text('Documents to read')").count() == 1
    page.click("summary >> nth=1")
    page.wait_for_selector("article pre")


def test_a_topic_is_found_with_its_share_of_the_best_bucket_and_the_link_shows_it_again(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/index.html")
    page.fill("#topic", "Telescope")
    until(page, "document.querySelector('#topic-search [role=status]').textContent.includes('in Q4')")
    told = page.inner_text("#topic-search [role=status]")
    assert "astronomy" in page.inner_text("#topic-search")
    again = open_page(page.url)
    until(again, "document.querySelector('#topic-search [role=status]').textContent.includes('in Q4')")
    assert again.inner_text("#topic-search [role=status]") == told
    page.fill("#topic", "zzzz")
    until(page, "document.querySelector('#topic-search [role=status]').textContent.startsWith('None of')")


def test_an_answer_comes_within_the_bar_once_the_words_are_typed(site, open_page):
    """300 ms for the answer; the pause in which typing may go on (120 ms) is not counted."""
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/index.html")
    page.fill("#topic", "recipe")
    until(page, "document.querySelector('#topic-search table') !== null")
    begin = time.monotonic()
    page.fill("#topic", "oven")
    until(page, "document.querySelector('#topic-search [role=status]').textContent.includes('in Q4')")
    assert time.monotonic() - begin < 0.12 + 0.3 + 1.0  # the second is the machine's, which may be busy with other tests


def test_weights_are_changed_with_the_consequences_in_view_and_saved(site, open_page, tmp_path):
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/mixture.html", accept_downloads=True)
    until(page, "document.querySelector('#what-if table') !== null")
    page.fill("#train-tokens", "1000000")
    until(page, "document.querySelector('#what-if [role=status]').textContent.includes('cells would be read more than 8')")
    page.fill("#factor-q4", "0")
    page.click("text=Save as mixture file")
    with page.expect_download() as download:
        page.click("text=Save as mixture file")
    weights = json.loads(download.value.path().read_bytes())["weights"]
    assert not any(name.endswith("/q4") for name in weights)
    assert sum(weights.values()) == pytest.approx(1)
    assert "set=q4=0" in page.url.replace("%3D", "=")


def test_pairs_are_filtered_by_source_and_score_and_opened_side_by_side(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/pairs.html")
    rows = "document.querySelectorAll('[data-filter] tbody tr:not([hidden])').length"
    all_rows = page.evaluate(rows)
    page.fill("#filter-pairs", "no such source")
    until(page, f"{rows} === 0")
    page.fill("#filter-pairs", "")
    page.fill("#least-pairs", "0.99")
    until(page, f"{rows} < {all_rows}")
    page.fill("#least-pairs", "0")
    page.click("[data-filter] tbody a >> nth=0")
    page.wait_for_selector(".beside section")
    assert page.locator(".beside section").count() == 2
    assert page.locator("mark").count() > 0
    again = open_page(page.url)  # its link is for good
    again.wait_for_selector(".beside section")
    assert again.inner_text("main") == page.inner_text("main")


def test_a_pair_is_on_screen_300_ms_after_its_page_was_asked_for(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/pairs.html")
    page.goto(f"{url}/data/{keys['plain']}/" + page.get_attribute("[data-filter] tbody a", "href").split("/")[-1])
    waited = []
    for _ in range(5):
        page.reload()
        page.wait_for_selector(".beside section")
        waited.append(page.evaluate("performance.getEntriesByName('filled')[0].startTime"))
    print(f"pair on screen, ms after the request: {sorted(round(value) for value in waited)}")
    assert sorted(waited)[2] < 300


def test_a_pair_nobody_sampled_is_told_so_and_a_hostile_name_is_text(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/pair.html?pair=%3Cb%20id=bold%3E")
    until(page, "document.querySelector('#pair').textContent.includes('No sampled pair')")
    assert page.evaluate("document.getElementById('bold') === null")


def test_the_words_that_differ_are_marked_and_nothing_else(site, open_page):
    """Unmarked words read the same in both texts and are nearly as many as the full table finds."""
    url, keys = site
    page = open_page(f"{url}/data/{keys['plain']}/pair.html")

    def marked(cases):
        script = "async (cases) => { const { differences } = await import('../../static/difference.js'); return cases.map(([one, other]) => differences(one, other)); }"
        return page.evaluate(script, cases)

    def words(parts):
        return re.findall(r"\w+", " ".join(" " if part["own"] else part["text"] for part in parts))

    [(left, right), (nothing, new), (empty, _)] = marked(
        [("The cat sat on a mat.", "The dog sat on a <mat>."), ("a b", "a b new"), ("", "")]
    )
    assert [part["text"] for part in left if part["own"]] == ["cat"]
    assert [part["text"] for part in right if part["own"]] == ["dog"]
    assert not any(part["own"] for part in nothing) and [part["text"] for part in new if part["own"]] == ["new"] and empty == []
    cases = []
    for seed in range(12):
        rng = random.Random(seed)
        one = [f"w{rng.randrange(30)}" for _ in range(rng.randrange(60))]
        other = [word for word in one if rng.random() < 0.8]
        for _ in range(rng.randrange(8)):
            other.insert(rng.randrange(len(other) + 1), f"x{rng.randrange(5)}")
        cases.append((one, other))
    long = [random.Random(1).choice("abcdefg") for _ in range(7000)]
    cases.append((long, [*long, "new"]))
    for (one, other), (left, right) in zip(cases, marked([(" ".join(one), " ".join(other)) for one, other in cases])):
        assert words(left) == words(right)
        assert "".join(part["text"] for part in left) == " ".join(one)
        if len(one) < 100:
            assert len(words(left)) >= 0.9 * longest_common(one, other) - 1


def longest_common(one, other) -> int:
    """Length of the longest common subsequence, by the full table."""
    row = [0] * (len(other) + 1)
    for a in one:
        before = 0
        for j, b in enumerate(other):
            before, row[j + 1] = row[j + 1], before + 1 if a == b else max(row[j + 1], row[j])
    return row[-1]


def test_the_published_table_has_its_total_on_the_page(site, open_page):
    url, _ = site
    page = open_page(f"{url}/data/harrier/index.html")
    assert "23,106,103,007,622" in page.inner_text("main")
    page.click("tbody a >> nth=0")
    assert "2.019" in page.inner_text("main")


@pytest.mark.parametrize("name", ["index.html", "pairs.html", "contamination.html", "provenance.html", "files.html", "mixture.html"])
def test_hostile_text_is_text_on_every_page(site, open_page, name):
    url, keys = site
    page = open_page(f"{url}/data/{keys['hostile']}/{name}")
    assert page.evaluate("window.hacked === undefined && document.getElementById('bold') === null")
    assert page.evaluate("!/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.textContent)")


def test_hostile_documents_and_search_results_are_text(site, open_page):
    url, keys = site
    page = open_page(f"{url}/data/{keys['hostile']}/index.html")
    page.fill("#topic", "telescope")
    until(page, "document.querySelectorAll('#topic-search table').length === 3")
    assert page.evaluate("window.hacked === undefined && document.getElementById('bold') === null")
    for name, filled in (("", "article pre"), ("contamination.html", ".beside pre"), ("pairs.html", "")):
        if name:
            page.goto(f"{url}/data/{keys['hostile']}/{name}")
        if not filled or not name:
            page.click("tbody a >> nth=0")
        page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        page.wait_for_selector(filled or ".beside pre")
        assert "<script>" in page.inner_text("main")
        assert page.evaluate("window.hacked === undefined && document.getElementById('bold') === null")


def test_every_page_is_whole_without_scripts(site, open_page):
    url, keys = site
    for name in ("index.html", "pairs.html", "mixture.html", "files.html"):
        page = open_page(f"{url}/data/{keys['plain']}/{name}", java_script_enabled=False)
        assert page.locator("table tbody tr").count() > 0


def test_axe_finds_nothing_on_the_pages_of_a_data_set(site, open_page):
    if not AXE.exists():
        pytest.skip("needs web/node_modules (npm ci), 2026-11")
    url, keys = site
    root = f"{url}/data/{keys['plain']}"
    page = open_page(f"{root}/pairs.html")
    first_pair = page.get_attribute("[data-filter] tbody a", "href").split("/")[-1]
    names = ["index.html?topic=oven", "mixture.html", "pairs.html", first_pair, "contamination.html", "provenance.html", "files.html"]
    names += ["domains/astronomy.html", "sources/encyclopedia.html", "../harrier/index.html"]
    for name in names:
        page.emulate_media(color_scheme="light")
        page.goto(f"{root}/{name}")
        page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        if name in FILLED:
            page.wait_for_selector(FILLED[name])
        page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        for scheme, rules in (("light", RULES), ("dark", ["color-contrast"])):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate("(rules) => axe.run(document, {runOnly: rules})", rules)
            told = [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]]
            assert told == [], f"{name} ({scheme}): {told}"
