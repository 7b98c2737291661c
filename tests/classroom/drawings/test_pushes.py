"""The server's timeline says which version each gradient was of, and how stale it came."""

import matplotlib.pyplot as plt
import pytest

from course.classroom.drawings.pushes import Turn, server_timeline, staleness, versions

BY_HAND = [Turn("A", 0, 1, "8"), Turn("B", 0, 1.5, "8"), Turn("A", 1, 2, "4")]
IN_TURN = [Turn("A", 0, 1, "8"), Turn("B", 1, 2, "4"), Turn("A", 2, 3, "2")]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def test_a_gradient_ages_by_the_pushes_between_its_pull_and_its_push():
    assert versions(BY_HAND) == [0, 0, 1] and staleness(BY_HAND) == [0, 1, 1]
    assert versions(IN_TURN) == [0, 1, 2] and staleness(IN_TURN) == [0, 0, 0]


def test_the_drawing_says_versions_weights_slopes_and_ages():
    axes = server_timeline(BY_HAND, [8, 4, 0, -2], "a title")
    texts = [text.get_text() for text in axes.texts]
    server = [text for text in texts if text.startswith("version")]
    assert server == [f"version {k}\nw = {w}" for k, w in enumerate((8, 4, 0, "−2"))]
    pushes = [text for text in texts if text.startswith("push")]
    assert pushes == ["push 8\nstaleness 0", "push 8\nstaleness 1", "push 4\nstaleness 1"]
    assert [text for text in texts if text.startswith("slope")] == [
        "slope of version 0", "slope of version 0", "slope of version 1",
    ]  # fmt: skip
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "client A",
        "server",
        "client B",
    ]


def test_pulls_lead_away_from_the_server_and_pushes_to_it():
    axes = server_timeline(BY_HAND, [8, 4, 0, -2], "a title")
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
    away = [abs(arrow.xy[1] - 1) > abs(arrow.xyann[1] - 1) for arrow in arrows]
    assert away == [True, False] * 3
    assert len({arrow.arrow_patch.get_linestyle() for arrow in arrows}) == 2
