"""The slides: each figure has its function, each slide its notes, and each fits on its page."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.browser.test_sliders import chromium, needs_browser

FOLDER = Path(__file__).parents[1] / "slides"
SMALLEST_PX = 20

TOO_LARGE = """
return [...document.querySelectorAll('section')].flatMap((slide, number) => {
    const page = slide.getBoundingClientRect(), scale = page.width / slide.offsetWidth;
    const over = [...slide.querySelectorAll('*')].filter(each => {
        const box = each.getBoundingClientRect();
        return box.width && (box.right > page.right + 1 || box.bottom > page.bottom + 1
            || box.left < page.left - 1 || box.top < page.top - 1);
    });
    return over.slice(0, 1).map(each => `slide ${number + 1}: ${each.tagName} ${each.textContent}`);
});
"""
TOO_SMALL = """
const texts = [...document.querySelectorAll('section *')].filter(each =>
    [...each.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()));
const plain = texts.filter(each => !each.closest('svg:not([data-marpit-svg]), mjx-container'));
return plain.filter(each => parseFloat(getComputedStyle(each).fontSize) < arguments[0])
    .map(each => each.textContent);
"""
UNTOLD = """
return [...document.images].filter(i => i.alt.trim().split(/\\s+/).length < 5).map(i => i.src)
"""
BROKEN = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"


@pytest.fixture(scope="module")
def maker():
    """The module slides/build.py, which imports its neighbour `figures`."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("build_slides", FOLDER / "build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


DECKS = sorted(FOLDER.glob("part_*.md"))


def slides_of(deck) -> list[str]:
    """The text of every slide of a deck, without its front matter."""
    _, _, text = deck.read_text("utf-8").split("---\n", 2)
    return re.split(r"^---$", text, flags=re.M)


def test_every_figure_has_its_function_and_every_function_is_shown(maker):
    shown = {name for deck in maker.decks() for name in maker.figures_of(deck)}
    own = [name for module in maker.MODULES for name, each in vars(module).items()
           if getattr(each, "__module__", "") == module.__name__]  # fmt: skip
    made = [name for name in own if not name.startswith("_")]
    assert sorted(made) == sorted(shown)  # none is made in two modules


def test_every_image_has_the_text_of_its_function(maker):
    made = maker.with_texts("![h:400](figures/valley.svg)")
    text = "A loss over two weights, and where it is curved most and least."
    assert made == f"![h:400 {text}](figures/valley.svg)"
    for deck in maker.decks():
        for name in maker.figures_of(deck):
            assert len((maker.function_of(name).__doc__ or "").split()) >= 5, name


def test_a_figure_without_function_is_told(maker):
    with pytest.raises(LookupError, match="no function draws figures/nobody.svg"):
        maker.with_texts("![](figures/nobody.svg)")


@pytest.mark.parametrize("deck", DECKS, ids=lambda deck: deck.stem)
def test_every_slide_has_one_heading_and_notes_for_its_speaker(deck):
    for number, slide in enumerate(slides_of(deck), 1):
        assert len(re.findall(r"^# ", slide, flags=re.M)) == 1, f"slide {number}"
        notes = [
            note for note in re.findall(r"<!--(.*?)-->", slide, flags=re.S) if "_class" not in note
        ]
        assert notes and len(notes[0].split()) >= 8, f"slide {number}"


@needs_browser
@pytest.mark.parametrize("deck", DECKS, ids=lambda deck: deck.stem)
def test_nothing_is_over_the_edge_or_too_small(maker, deck, tmp_path):
    if not maker.MARP.exists():
        pytest.skip("Marp is not installed here: `make slides` does that")
    maker.build(tmp_path, [deck.stem], [["--html", "--template", "bare"]])  # all slides at once
    with chromium(tmp_path) as page:
        page.get((tmp_path / f"{deck.stem}.html").as_uri())
        assert page.execute_script("return document.querySelectorAll('section').length") > 1
        assert page.execute_script(BROKEN) == []
        assert page.execute_script(UNTOLD) == []
        assert page.execute_script(TOO_LARGE) == []
        assert page.execute_script(TOO_SMALL, SMALLEST_PX) == []


def test_the_instructors_plans_have_the_minutes_of_readme_and_fill_their_time():
    page = (FOLDER / "INSTRUCTOR.md").read_text("utf-8")
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    told = dict(re.findall(r"^\| (\d\d) \|.*\| (\d+ \+ \d+) \|$", readme, flags=re.M))
    whole = re.findall(r"\[(\d\d) \w+\]\(.*\| (\d+ \+ \d+) \|$", page, flags=re.M)
    assert len(whole) >= 7 and all(told[number] == minutes for number, minutes in whole)
    plans = page.split("\n## ")[2:5]
    row = re.compile(r"^\|(?: \d? ?\|)? ?(\d+) \|", flags=re.M)
    assert [sum(map(int, row.findall(plan))) for plan in plans] == [4 * 60, 7 * 60, 14 * 60]
