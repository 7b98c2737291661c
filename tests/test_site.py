"""The book as static pages: made once, then every page is opened in Chromium as on a phone.

It holds what the notebooks hold, asks no other machine for anything, and can be read with a
keyboard and in the dark.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from filelock import FileLock
from nbformat import writes
from nbformat.v4 import new_markdown_cell, new_notebook
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from course.classroom.problems import catalogue
from tests.browser.test_sliders import chromium, needs_browser

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "site"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = ["index", *(path.stem for path in NOTEBOOKS)]
PHONE, DESK = (360, 780), (1400, 1000)
PATIENCE_S = 120
STRANGERS = ("http:", "https:", "ws:", "wss:", "ftp:")

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("sphinx", "myst_nb", "sphinx_book_theme")),
        reason="what makes the site is not installed here: `make site` does that",
    ),
]

READY = """
const done = arguments[0], math = window.MathJax?.startup?.promise ?? Promise.resolve();
math.then(() => document.fonts.ready).then(() => done('ready'), trouble => done(String(trouble)));
"""
OPEN_ALL = "document.querySelectorAll('details').forEach(each => { each.open = true; })"
PLAIN_MATH = """
return [...document.querySelectorAll('.math')].filter(each =>
    !each.querySelector('mjx-container') || each.querySelector('mjx-merror'))
    .map(each => each.textContent);
"""
BROKEN = """
document.querySelectorAll('img').forEach(each => { each.loading = 'eager'; });
return Promise.all([...document.images].map(each => each.decode().then(() => null, () => each.src)))
    .then(all => all.filter(Boolean));
"""
# What is wider than the page, unless it lies in something that scrolls.
TOO_WIDE = """
const width = document.documentElement.clientWidth, scrolls = each => {
    for (; each && each !== document.body; each = each.parentElement)
        if (['auto', 'scroll'].includes(getComputedStyle(each).overflowX)) return true;
};
const seen = '.bd-article *:not(mjx-assistive-mml *)';
const wide = [...document.querySelectorAll(seen)].filter(each => {
    const box = each.getBoundingClientRect();
    return box.width && box.right > width + 1 && !scrolls(each.parentElement) && !scrolls(each);
}).map(each => `${each.tagName} ${each.textContent.slice(0, 60)}`);
const page = document.documentElement.scrollWidth;
return page > width ? [`the page has ${page} of ${width} pixels`, ...wide] : wide;
"""
# Texts that are too faint: below 4.5 to 1, or 3 to 1 where letters are large (WCAG 2.2, 1.4.3).
FAINT = """
const theme = arguments[0];
document.documentElement.dataset.theme = document.documentElement.dataset.mode = theme;
document.getAnimations().forEach(each => each.finish());
const numbers = colour => {
    const parts = colour.match(/[\\d.]+/g).map(Number), whole = colour.startsWith('rgb');
    return [...parts.slice(0, 3).map(each => whole ? each / 255 : each), parts[3] ?? 1];
};
const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
const light = colour => colour.slice(0, 3)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const below = new Map();
const ground = each => {
    if (!each) return theme === 'dark' ? [0, 0, 0] : [1, 1, 1];
    if (!below.has(each)) {
        const own = numbers(getComputedStyle(each).backgroundColor);
        below.set(each, own[3] === 1 ? own : over(own, ground(each.parentElement)));
    }
    return below.get(each);
};
const found = new Map(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
    const each = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || each.closest('script, style, mjx-container, .visually-hidden') ||
        !each.checkVisibility()) continue;
    const style = getComputedStyle(each), size = parseFloat(style.fontSize);
    const back = ground(each), front = over(numbers(style.color), back);
    const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const fault = `${theme}: ${ratio.toFixed(2)} for «${text}» in ${each.outerHTML.slice(0, 80)}`;
    if (ratio < (large ? 3 : 4.5)) found.set(`${each.tagName} ${each.className}`, fault);
}
return [...found.values()];
"""


def module(name):
    """A module of the folder site/, which is no package."""
    spec = spec_from_file_location(name, FOLDER / f"{name}.py")
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def said_by(command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The folder of the pages, made once, also where several processes share the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "made").exists():
            said_by([sys.executable, FOLDER / "build.py", folder])
            (folder / "made").touch()
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served, on this machine alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("own"), logs=("browser", "performance")) as page:
        page.set_script_timeout(PATIENCE_S)
        yield page


def open_page(browser, url, size):
    """Open a page on a screen of this size; returns once its formulas and letters are there."""
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size is PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(url)
    assert browser.execute_async_script(READY) == "ready"


def requests(browser):
    """The addresses that the browser has asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events
            if event["method"] == "Network.requestWillBeSent"]  # fmt: skip


def away(asked, url):
    """The addresses among those asked for that do not belong to the site at `url`."""
    return [each for each in asked if each.startswith(STRANGERS) and not each.startswith(url)]


def complaints(browser):
    return [entry["message"] for entry in browser.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")]  # fmt: skip


@needs_browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_on_a_phone_in_the_light_and_in_the_dark(name, address, browser):
    open_page(browser, f"{address}{name}.html", PHONE)
    browser.execute_script(OPEN_ALL)
    assert browser.execute_script(BROKEN) == []
    assert browser.execute_script(PLAIN_MATH) == []
    assert browser.execute_script(TOO_WIDE) == []
    assert browser.execute_script(FAINT, "light") == []
    assert browser.execute_script(FAINT, "dark") == []
    asked = requests(browser)
    assert f"{address}{name}.html" in asked
    assert away(asked, address) == []
    assert complaints(browser) == []


@cache
def soup(path):
    """A page, read once for all tests of this process: that takes a third of a second."""
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def targets(page):
    """What a page links to or shows from the site itself, as file and anchor."""
    for tag, name in (("a", "href"), ("img", "src"), ("script", "src"), ("link", "href")):
        for each in page.find_all(tag, **{name: True}):
            if not urlsplit(each[name]).scheme:
                yield each[name]


def test_no_link_within_the_site_is_broken(site):
    pages = {path.name: soup(path) for path in site.glob("*.html")}
    assert set(pages) == {f"{name}.html" for name in (*PAGES, "search")}
    anchors = {
        name: {each["id"] for each in page.find_all(id=True)} for name, page in pages.items()
    }
    broken = []
    for name, page in pages.items():
        for target in targets(page):
            file, anchor = urldefrag(
                urljoin(name, unquote(urlsplit(target)._replace(query="").geturl()))
            )
            if not (site / file).is_file() or (anchor and anchor not in anchors[file]):
                broken.append((name, target))
    assert broken == []


def test_all_notebooks_can_be_reached_from_every_page(site):
    for name in PAGES:
        menu = soup(site / f"{name}.html").select(".bd-sidebar-primary a[href]")
        linked = {each["href"].removesuffix(".html") for each in menu if each["href"] != "#"}
        assert linked | {name} >= set(PAGES)


def cells_of(path):
    return [each for each in json.loads(path.read_text())["cells"] if each["cell_type"] == "code"]


def pictures_of(cells):
    return sum("image/png" in each.get("data", {}) for cell in cells for each in cell["outputs"])


class Page(NamedTuple):
    """A page of the site, and the notebook that it was made of."""

    html: object
    name: str
    cells: list


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def page(request, site):
    name = request.param.stem
    return Page(soup(site / f"{name}.html"), name, cells_of(request.param))


def test_a_page_has_the_cells_and_pictures_of_its_notebook_and_no_widget(page):
    shown = [len(each.select(".cell_output img")) for each in page.html.select("div.cell")]
    assert shown == [pictures_of([cell]) for cell in page.cells]
    texts = " ".join(each.get_text() for each in page.html.select(".cell_output"))
    assert not re.search(r"children=|Slider\(|<Figure|not done yet|not predicted", texts)


def test_code_that_only_draws_is_folded_and_so_is_the_answer_to_a_prediction(page):
    for cell, made in zip(page.cells, page.html.select("div.cell"), strict=True):
        harness = "harness" in cell["metadata"].get("tags", ())
        assert bool(made.select("details .cell_input")) == harness
        answers, outputs = made.select(".answer"), json.dumps(cell["outputs"])
        assert len(answers) == outputs.count("not predicted; ")
        assert harness or all(answer.find_parent("details") for answer in answers)


def test_hints_and_solutions_are_folded_below_every_exercise(page):
    heads = {each.get_text() for each in page.html.select("article details > summary")}
    for exercise in (exercise for name, exercise in catalogue() if name == page.name):
        count = len(exercise.hints)
        wanted = {f"{exercise.name}: hint {number} of {count}" for number in range(1, count + 1)}
        assert wanted | {f"{exercise.name}: a solution"} <= heads


def test_a_slider_goes_and_its_film_strip_stays():
    reading = module("reading")
    strip = {"output_type": "display_data", "data": {"image/png": "", "text/plain": "<Figure>"}}
    slider = {"output_type": "display_data", "data": {"text/plain": "VBox(children=(IntSlider("}}
    word = {"output_type": "display_data", "data": {"text/plain": "Vector(children=3)"}}
    outputs = [slider, strip, word]
    cell = {"cell_type": "code", "metadata": {}, "source": "1  # noqa: F401\n2", "outputs": outputs}
    (page,) = reading.as_read({"cells": [cell]})["cells"]
    assert page["outputs"] == [strip, word] and page["source"] == "1\n2"
    assert cell["outputs"] == outputs


def find_by_search(browser, url, word):
    open_page(browser, f"{url}search.html?q={word}", DESK)
    results = "#search-results ul.search li a"
    WebDriverWait(browser, PATIENCE_S).until(
        lambda page: page.find_elements(By.CSS_SELECTOR, results)
    )
    return {Path(urlsplit(each.get_attribute("href")).path).stem
            for each in browser.find_elements(By.CSS_SELECTOR, results)}  # fmt: skip


@needs_browser
def test_the_search_finds_without_a_network_and_without_a_server(site, address, browser):
    for url in (address, f"{site.as_uri()}/"):
        assert "11_topologies" in find_by_search(browser, url, "gossip")
        assert away(requests(browser), url) == []


def tab_to(browser, wanted):
    """Press Tab until the link or button with this text or label has the focus."""
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        each = browser.switch_to.active_element
        if wanted in (each.text.strip(), each.get_attribute("aria-label")):
            assert browser.execute_script("return arguments[0].matches(':focus-visible')", each)
            return each
    raise AssertionError(f"60 times Tab does not lead to «{wanted}»")


@needs_browser
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_menu_can_be_used_with_the_keyboard_alone(size, address, browser):
    open_page(browser, f"{address}index.html", size)
    if size is PHONE:
        tab_to(browser, "Toggle primary sidebar").send_keys(Keys.ENTER)
    tab_to(browser, "09 collectives").send_keys(Keys.ENTER)
    WebDriverWait(browser, PATIENCE_S).until(lambda page: "09_collectives" in page.current_url)


REPOSITORY = "https://github.com/somebody/course"
OFFERED = {
    "Colab": "https://colab.invalid/github/somebody/course/blob/stable/notebooks/09_collectives.ipynb",
    "Binder": "https://binder.invalid/v2/gh/somebody/course/stable"
    "?urlpath=lab/tree/notebooks/09_collectives.ipynb",
    "JupyterHub": "https://hub.invalid/hub/user-redirect/git-pull?repo=https%3A//github.com/somebody/"
    "course&urlpath=lab/tree/course/notebooks/09_collectives.ipynb&branch=stable",
}


def test_one_setting_in_one_file_offers_colab_binder_and_a_hub(tmp_path):
    settings, source = tmp_path / "site", tmp_path / "source"
    shutil.copytree(FOLDER, settings, ignore=shutil.ignore_patterns("build", "__pycache__"))
    source.mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    small = new_notebook(cells=[new_markdown_cell("# How?")], metadata=kernel)
    (source / "09_collectives.ipynb").write_text(writes(small))
    (source / "index.md").write_text("# Book\n\n```{toctree}\n09_collectives\n```\n")
    places = f'repository = "{REPOSITORY}"\nbranch = "stable"\ncolab = "https://colab.invalid"\n'
    places += 'binder = "https://binder.invalid"\nhub = "https://hub.invalid"\n'
    (settings / "places.toml").write_text(places)
    said_by([sys.executable, "-m", "sphinx", "-q", "-c", settings, source, tmp_path / "out"])
    page = soup(tmp_path / "out" / "09_collectives.html")
    offered = page.select(".dropdown-launch-buttons a")
    assert {each.get_text().strip(): each["href"] for each in offered} == OFFERED


def test_without_a_repository_no_service_is_offered(site):
    assert not soup(site / "09_collectives.html").select(".dropdown-launch-buttons")
