"""The last cell of a notebook under test: every slider and menu in it is moved to its two ends, and
each move draws another picture.  (`tests/browser` moves some with a mouse.)

What a slider draws uses the notebook's names: none of them may be one that is given here.
"""

import functools
import gc

import ipywidgets
from IPython import get_ipython

from course.classroom import film_strip


def picture_of_a_move(move) -> str:
    """What a move draws, as a PNG; whatever it raises is an error of this cell."""
    drawn, publisher = [], get_ipython().display_pub

    def keep(message):
        drawn.append(message["content"].get("data", {}))

    publisher.register_hook(keep)
    move()
    publisher.unregister_hook(keep)
    pictures = [data["image/png"] for data in drawn if "image/png" in data]
    assert pictures, "a control was moved, and nothing was drawn"
    return pictures[-1]


def move_to_both_ends(control):
    """Move a control, from wherever it is; it stays at one of its ends."""
    values = film_strip.places(control)
    assert len(values) > 1, f"{control.description} has one place only"
    ends = values[0], values[-1], values[0]
    moves = (functools.partial(setattr, control, "value", end) for end in ends)
    pictures = [picture_of_a_move(move) for end, move in zip(ends, moves) if control.value != end]
    assert len(set(pictures)) > 1, f"{control.description} moves, and its picture stays the same"


def move_all_sliders():
    """Every control of every box of sliders goes to its ends and back."""
    for box in [each for each in gc.get_objects() if issubclass(type(each), ipywidgets.VBox)]:
        *controls, _ = box.children
        for control in controls:
            start = control.value
            move_to_both_ends(control)
            if control.value != start:
                picture_of_a_move(functools.partial(setattr, control, "value", start))


move_all_sliders()
