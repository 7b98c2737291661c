"""How messages know their group, and what an envelope says.  Whether worlds keep the contract of
`course/comm/transport.py` is tested by `tests/worlds/test_transport.py`."""

import itertools

import torch

from course.comm.tensors import CODES
from course.comm.transport import BACKGROUND, WORLD, Envelope, group_id, in_background

STEPS = (1, 2, "1", '"1"', "null", "[0, 1]", BACKGROUND)
PATHS = [path for length in range(4) for path in itertools.product(STEPS, repeat=length)]


def test_groups_that_came_about_in_other_ways_have_other_numbers():
    assert len({group_id(path) for path in PATHS}) == len(PATHS) > 300
    assert group_id(()) == WORLD


def test_the_number_is_the_same_in_every_process():
    """Of the path alone: no hash that Python seeds anew, no count of what was made before."""
    assert group_id(()) == 5694367389426422166
    assert group_id((1, "a")) == 8415240736594023236
    assert group_id((1, "a", BACKGROUND)) == 10630074110175586725


def test_a_number_says_whether_its_group_is_in_the_background():
    for path in PATHS:
        assert in_background(group_id(path)) is (BACKGROUND in path)
        assert 0 <= group_id(path) < 2**64  # as headers have it


def test_no_color_puts_a_group_in_the_background():
    """Colors come as JSON text, with their quotes."""
    assert not in_background(group_id((3, '"background"')))


def test_an_envelope_in_words_counts_elements():
    envelope = Envelope(WORLD, 3, 9, CODES[torch.float64], 48)
    assert str(envelope) == "float64 [6], tag 9"
    assert str(Envelope(dtype=CODES[torch.bfloat16])) == "bfloat16 [0], tag 0"


def test_the_first_three_fields_pick_the_receive():
    assert Envelope._fields[:3] == ("group", "call", "tag")
