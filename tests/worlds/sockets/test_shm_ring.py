"""Bytes through a ring, round its end."""

from course.worlds.sockets.shm_ring import ShmRing


def test_what_is_read_is_what_was_written_round_and_round():
    memory = memoryview(bytearray(10))
    out, into, sent, got = ShmRing(memory, 10), ShmRing(memory, 0), bytes(range(50)), bytearray()
    left = memoryview(sent)
    while len(got) < len(sent):
        count = out.write(left[:7])
        left, into.available = left[count:], into.available + count
        piece = memoryview(bytearray(3))
        count = into.read(piece)
        got += piece[:count]
        out.available += count
    assert bytes(got) == sent and out.available + into.available == 10


def test_a_full_ring_takes_nothing():
    out = ShmRing(memoryview(bytearray(4)), 4)
    assert out.write(memoryview(b"abcdef")) == 4 and out.write(memoryview(b"g")) == 0
