"""A door opens to those who know the secret, once each."""

import contextlib
import socket

import pytest

from course.comm.errors import CommError
from course.worlds.sockets.door import HEAD, Door, Ticket, knock, read_ticket

SECRET, RUN = bytes(range(32)), b"a run, 16 bytes."


@pytest.fixture
def door():
    with Door("127.0.0.1", SECRET) as made:
        yield made


def said_to(address, data):
    """A connection over which somebody has said `data`."""
    end = socket.create_connection(address)
    end.sendall(data)
    return end


def test_a_ticket_has_a_seal_that_only_the_secret_makes():
    ticket = Ticket(RUN, 3, 7)
    sealed = ticket.sealed(SECRET)
    assert len(sealed) == 56 and read_ticket(sealed, SECRET) == ticket
    assert read_ticket(sealed, bytes(32)) is None
    for place in (0, 17, 30, 55):
        forged = bytearray(sealed)
        forged[place] ^= 1
        assert read_ticket(bytes(forged), SECRET) is None


def test_all_that_are_expected_come_in_whatever_the_order(door):
    tickets = [Ticket(RUN, 0, peer) for peer in range(1, 5)]
    ends = {ticket: knock(door.address, ticket, SECRET) for ticket in reversed(tickets)}
    admitted = door.admit(set(tickets), 60)
    assert list(admitted) != [] and set(admitted) == set(tickets)
    for ticket, end in ends.items():
        end.sendall(bytes([ticket.peer]))
        assert admitted[ticket].recv(1) == bytes([ticket.peer])
        end.close()
        admitted[ticket].close()


STRANGERS = {
    "another secret": lambda: HEAD.sealed(bytes(32)),
    "a ticket of another run": lambda: Ticket(bytes(16), 0, 1).sealed(SECRET),
    "half a ticket": lambda: HEAD.sealed(SECRET)[:20],
    "nothing": lambda: b"",
    "a web browser": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n" * 2,
}


@pytest.mark.parametrize("said", STRANGERS)
def test_strangers_are_turned_away_and_hold_nobody_up(door, said):
    stranger = said_to(door.address, STRANGERS[said]())
    guest = knock(door.address, Ticket(RUN, 0, 1), SECRET)
    admitted = door.admit({Ticket(RUN, 0, 1)}, 60)
    assert set(admitted) == {Ticket(RUN, 0, 1)}
    stranger.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        assert stranger.recv(1) == b""
    for end in (stranger, guest, *admitted.values()):
        end.close()


def test_strangers_are_turned_away_when_nobody_is_expected(door):
    """They stayed in the queue, and waited there."""
    stranger = said_to(door.address, bytes(56))
    silent = socket.create_connection(door.address)
    assert door.admit(set(), 60) == {}
    for end in (stranger, silent):
        end.settimeout(60)
        with end, contextlib.suppress(ConnectionResetError):
            assert end.recv(1) == b""


def test_what_was_overheard_opens_nothing(door):
    ticket = Ticket(RUN, 0, 1)
    first = knock(door.address, ticket, SECRET)
    again = said_to(door.address, ticket.sealed(SECRET))
    other = knock(door.address, Ticket(RUN, 0, 2), SECRET)
    admitted = door.admit({ticket, Ticket(RUN, 0, 2)}, 60)
    first.sendall(b"x")
    assert admitted[ticket].recv(1) == b"x"
    again.settimeout(60)
    with pytest.raises((AssertionError, ConnectionResetError)):
        assert again.recv(1)
    for end in (first, again, other, *admitted.values()):
        end.close()


def test_where_there_is_no_door_is_told():
    with Door("127.0.0.1", SECRET) as closed:
        address = closed.address
    with pytest.raises(CommError, match=f"^no connection to 127.0.0.1:{address[1]}: .*refused"):
        knock(address, Ticket(RUN, 0, 1), SECRET)


def test_who_does_not_come_is_not_waited_for_without_end(door):
    with pytest.raises(CommError, match="^2 connections had not come in 0.05 s$"):
        door.admit({Ticket(RUN, 0, 1), Ticket(RUN, 0, 2)}, 0.05)
