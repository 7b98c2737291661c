"""What the check of `rank_order` knows about who could have heard of whom."""

from course.classroom.problems.p00_start_here import news
from course.comm.trace import Message


def test_news_travels_only_by_messages_sent_after_it():
    messages = [Message(2, 1, 2, 0, 4, 3.0, 4.0), Message(1, 0, 1, 0, 4, 1.0, 2.0)]
    assert news(messages, 0, 0.5) == {0: 0.5, 1: 2.0, 2: 4.0}
    assert news(messages, 0, 1.5) == {0: 1.5}
    assert news(messages, 1, 0.0) == {1: 0.0, 2: 4.0}
