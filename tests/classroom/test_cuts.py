import numpy as np
import pytest
from matplotlib.colors import to_rgba

from course.classroom import cuts
from course.classroom.figures import COLOURS


def fronts(axes, ranks):
    """The corners of the front face of each rank's part, by rank."""
    faces = {patch.get_facecolor(): patch.get_xy() for patch in axes.patches}
    opaque = [(colour, xy) for colour, xy in faces.items() if colour[3] == 1 and min(colour) < 0.9]
    assert len(opaque) == ranks
    return [xy for _, xy in opaque]


def arrows(axes):
    """The arrows that lead across cuts."""
    pointed = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    return [text for text in pointed if text.arrow_patch.get_linewidth() == 2]


def apart(fronts, axis):
    """Whether the parts lie one after another along an axis of the paper."""
    spans = sorted((xy[:, axis].min(), xy[:, axis].max()) for xy in fronts)
    return all(high < low for (_, high), (low, _) in zip(spans, spans[1:]))


def test_three_ways_each_with_its_name_and_what_crosses():
    titles = [axes.get_title(loc="left") for axes in cuts.draw()]
    assert titles == [
        "Data parallel: cut the images",
        "Model parallel: cut the neurons",
        "Pipeline: cut the layers",
    ]
    said = [axes.texts[0].get_text() for axes in cuts.draw()]
    assert [cut.crosses in text for cut, text in zip(cuts.CUTS, said, strict=True)] == [True] * 3


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_rank_has_a_part_and_the_parts_lie_apart_along_the_cut(ranks):
    data, model, pipeline = (fronts(axes, ranks) for axes in cuts.draw(ranks))
    assert apart(model, 0) and apart(pipeline, 1)
    if ranks > 1:
        assert not apart(model, 1) and not apart(pipeline, 0)
        shift = data[0].min(0) - data[1].min(0)  # what is drawn first is further back
        assert shift == pytest.approx(shift[0] / cuts.DEPTH[0] * np.array(cuts.DEPTH))
        assert shift[0] > 0
    assert len({tuple(patch.get_facecolor()[:3]) for patch in cuts.draw(ranks)[0].patches}) == (
        ranks + 1  # and white below
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_an_arrow_leads_across_each_cut(ranks):
    for axes, cut in zip(cuts.draw(ranks), cuts.CUTS, strict=True):
        across = arrows(axes)
        assert len(across) == ranks - 1
        for number, arrow in enumerate(across, 1):
            (x, y), (u, v) = sorted([arrow.xy, arrow.xyann])
            moved = {0: u - x, 1: abs(v - y), 2: (u - x) / cuts.DEPTH[0]}[cut.axis]
            assert moved == pytest.approx(number / ranks * cuts.GAP + 2 * cuts.REACH)


def test_the_legend_names_the_ranks_in_their_colours():
    legend = cuts.draw(2)[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["rank 0", "rank 1"]
    shown = [patch.get_facecolor() for patch in legend.get_patches()]
    assert shown == [to_rgba(colour) for colour in COLOURS[:2]]
