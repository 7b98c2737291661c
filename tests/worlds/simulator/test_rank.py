"""The tests of the communicator on processes, once more on an imagined cluster."""

import pytest

from tests.comm.test_communicator import (  # noqa: F401
    test_a_message_from_any_rank_says_where_it_came_from,
    test_a_tag_can_be_received_before_one_that_was_sent_earlier,
    test_all_messages_may_be_under_way_at_once,
    test_an_exchange_overtakes_what_nobody_has_asked_for_yet,
    test_every_dtype_and_view_arrives_and_its_neighbours_stay,
    test_exchange_is_right_at_any_size_and_any_number_of_uses,
    test_expanded_conjugate_negative_and_tracked_tensors_are_sent_by_value,
    test_messages_of_groups_never_mix,
    test_messages_of_one_tag_keep_their_order_by_whatever_way_they_come,
)
from tests.worlds.simulator.clusters import switched
from tests.worlds.sockets.test_background_thread import (  # noqa: F401
    test_a_storm_of_messages_in_two_threads,
    test_calls_beside_one_another_and_beside_messages,
)


@pytest.fixture(params=["imagined"])
def on(request):
    """A world for so many ranks."""
    return switched
