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
    own = {name for name, each in vars(maker.figures).items()
           if getattr(each, "__module__", "") == "figures"}  # fmt: skip
    made = {name for name in own if not name.startswith("_")}
    assert shown == made


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
        assert page.execute_script(TOO_LARGE) == []
        assert page.execute_script(TOO_SMALL, SMALLEST_PX) == []
