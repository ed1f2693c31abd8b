"""Every page of the demo's site, live and static: it opens, its figures come alive, nothing is asked of anyone else."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from browsing import HOSTILE, ROOT, SHOTS, paths_of, settle

pytestmark = pytest.mark.browser
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ENTRIES = ("Lab", "Promises", "Ladder", "Forecasts", "Compare", "Data", "Plan", "Incidents", "Glossary")


@pytest.mark.parametrize("kind", ["static", "live"])
def test_all_pages_of_the_demo_open_with_living_figures_and_a_screenshot_each(kind, demo, static_site, live_site, open_page):
    url = static_site(demo) if kind == "static" else live_site(demo).url
    page = open_page(f"{url}/index.html")
    for entry in ENTRIES:
        page.get_by_role("navigation").get_by_role("link", name=entry, exact=True).click()
        page.wait_for_load_state()
        assert page.locator("nav a[aria-current=page]").inner_text() == entry
    paths = paths_of(url)
    assert len([path for path in paths if path.startswith("/runs/")]) >= 6
    assert len(paths) >= 9 + 6 + 6
    folder = SHOTS / kind
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        page.goto(url + path)
        settle(page)
        assert page.locator("h1").count() == 1 and page.locator("main").inner_text().strip()
        name = re.sub(r"[^A-Za-z0-9._-]", "-", unquote(path).strip("/"))
        page.screenshot(path=folder / f"{name}.jpg", full_page=True, type="jpeg", quality=60)
    run = page.goto(f"{url}/runs/demo-big.html")
    assert run is not None and run.ok
    settle(page)
    keys = set(page.evaluate("[...document.querySelectorAll('figure')].map((figure) => figure.id)"))
    assert keys >= {
        "forecast",
        "loss",
        "domains",
        "gradient-shape",
        "gradient-groups",
        "balance",
        "drops",
        "entropy",
        "mfu",
        "throughput",
        "rates",
    }


def of_each_kind(paths: list[str]) -> list[str]:
    """All pages of the site's root, and of each folder, whose pages are made alike, the first and the last."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    return [path for folder, inside in folders.items() for path in (inside if not folder else sorted({inside[0], inside[-1]}))]


def test_axe_finds_nothing_on_any_page_light_or_dark(small, static_site, open_page):
    if not AXE.exists():
        pytest.skip("needs web/node_modules (npm ci), 2026-11")
    url = static_site(small)
    page = open_page(f"{url}/index.html")
    for path in of_each_kind(paths_of(url)):
        page.emulate_media(color_scheme="light")
        page.goto(url + path)
        settle(page)
        page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        for scheme, rules in (("light", RULES), ("dark", ["color-contrast"])):  # nothing but colours differs
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate("(rules) => axe.run(document, {runOnly: rules})", rules)
            told = [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]]
            assert told == [], f"{path} ({scheme}): {told}"


@pytest.mark.parametrize("kind", ["static", "live"])
def test_hostile_text_is_text_on_every_page(kind, hostile, static_site, live_site, open_page):
    url = static_site(hostile) if kind == "static" else live_site(hostile).url
    page = open_page(f"{url}/index.html")
    paths = paths_of(url)
    shown = 0
    for path in paths:
        page.goto(url + path)
        settle(page)
        state = page.evaluate(
            "({hacked: window.hacked ?? 0, injected: document.querySelectorAll('#bold, img, script:not([src])').length, text: document.body.innerText})"
        )
        assert state["hacked"] == 0 and state["injected"] == 0, path
        shown += state["text"].count("<script>window.hacked=1</script><img src=x")
        assert "\u202e" not in state["text"], f"{path} shows a bidirectional override"
    assert shown > 40, "the hostile words must be readable somewhere, or this test tests nothing"
    assert HOSTILE.startswith("<script>")


def test_a_page_without_scripts_shows_its_figures_tables_and_links(small, static_site, open_page):
    page = open_page(f"{static_site(small)}/runs/big.html", java_script_enabled=False)
    assert page.locator("figure svg").count() >= 8
    assert page.locator("figure svg polyline").first.is_visible()
    page.locator("figure#loss summary").click()
    assert page.locator("figure#loss table tbody tr").count() > 10


def test_every_number_in_tables_and_facts_says_what_it_is(small, static_site, open_page):
    url = static_site(small)
    page = open_page(f"{url}/index.html")
    for path in paths_of(url):
        page.goto(url + path)
        bare = page.evaluate(
            r"""[...document.querySelectorAll('main td, main dd')]
                .filter((cell) => !cell.closest('[aria-label="Table of the report"]'))
                .filter((cell) => /^[-+]?[\d.,]+(e[-+]?\d+)?\s?%?$/.test(cell.innerText.trim()))
                .filter((cell) => !cell.querySelector('[title]') && !cell.closest('[title], [data-meaning]'))
                .filter((cell) => !cell.closest('table')?.tHead?.rows[0]?.cells[cell.cellIndex]?.matches('[title], :has([title])'))
                .map((cell) => cell.closest('table')?.caption?.innerText + ': ' + cell.innerText)"""
        )
        assert bare == [], path


def test_pages_fit_a_phone(small, static_site, open_page):
    url = static_site(small)
    page = open_page(f"{url}/index.html", viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    for path in paths_of(url):
        page.goto(url + path)
        settle(page)
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 780})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    page.goto(f"{url}/runs/big.html")
    settle(page)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "phone.png")


def test_the_committed_bundle_is_what_the_sources_build(tmp_path):
    import shutil
    import subprocess

    if shutil.which("npx") is None or not AXE.exists():
        pytest.skip("needs Node and web/node_modules (npm ci), 2026-11")
    built = subprocess.run(
        ["npx", "vite", "build", "--outDir", str(tmp_path / "static"), "--emptyOutDir"],
        cwd=ROOT / "web",
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    committed = ROOT / "src" / "forerun" / "dashboard" / "static"
    names = {str(path.relative_to(folder)) for folder in (committed, tmp_path / "static") for path in folder.rglob("*") if path.is_file()}
    for name in sorted(names):
        assert (committed / name).read_bytes() == (tmp_path / "static" / name).read_bytes(), f"{name}: run make web"
    assert subprocess.run(["npx", "tsc", "--noEmit"], check=False, cwd=ROOT / "web", capture_output=True).returncode == 0
