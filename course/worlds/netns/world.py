"""The world of hosts: ranks of this machine that have only a real, shaped Ethernet between them.

values = run(fn, 4, on=hosts(4, rate="1gbit"))        hosts.available() says why not, if not
"""

import atexit
import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
from typing import NamedTuple

from course.comm.errors import CommError
from course.worlds.cores import required_cores
from course.worlds.local.workers import Workers
from course.worlds.netns import ethernet
from course.worlds.pickling import pack
from course.worlds.sockets.connect import connect
from course.worlds.supervise import supervise

UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
MOST_HOSTS = 200
NONE = "this machine has no hosts in a box: "
PAYLOAD = 1448 / 1514  # of a full Ethernet frame, behind the headers of IP and TCP


class hosts(NamedTuple):
    """The world of `number` hosts in a box, each with `ranks_per_host` ranks and a link of `rate`
    ("100mbit", "1gbit"), both ways, to one switch.

    Each host is a network namespace of Linux and each link a shaped veth, so bytes between hosts
    take the time that they take on such an Ethernet; ranks of one host share memory.  The box
    stays for the next run of this process.  `oversubscribe` as for `processes`.
    Raises ValueError for what cannot be; CommError where the machine cannot have hosts.
    """

    number: int
    ranks_per_host: int = 1
    rate: str = "1gbit"
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, *, timeout, limit, checked, trace, live) -> list:
        """The values of a packed call on `ranks` ranks; see `course.worlds.run`."""
        nodes = self._nodes(ranks)
        place = box(self.number, bits_per_s(self.rate))
        world = {"homes": len(place.homes[0]), "nodes": nodes, "device": "cpu"}
        world = pack(join, (), world | {"timeout": timeout, "checked": checked})
        workers = HostsWorkers(place, nodes)
        return supervise(workers, call, world, ranks, trace=trace, live=live, limit=limit)

    @property
    def bytes_per_s(self) -> float:
        """The payload that a link carries each way: a full frame of 1514 bytes has 1448 of it."""
        return bits_per_s(self.rate) / 8 * PAYLOAD

    @staticmethod
    def available():
        """None if this machine can have hosts in a box, else the reason why it cannot."""
        try:
            Box(1, 10**9).close()
        except CommError as error:
            return str(error)
        return None

    def _nodes(self, ranks) -> list:
        if not 1 <= self.number <= MOST_HOSTS or self.ranks_per_host < 1:
            rule = f"a box holds 1 to {MOST_HOSTS} hosts of at least 1 rank"
            raise ValueError(f"{rule}, not {self.number} of {self.ranks_per_host}")
        nodes = [host for host in range(self.number) for _ in range(self.ranks_per_host)]
        if len(nodes) != ranks:
            each = f"{self.number} hosts x {self.ranks_per_host} ranks"
            raise ValueError(f"{each} make {len(nodes)} ranks, but there are {ranks}")
        required_cores(ranks, self.oversubscribe)
        return nodes


def bits_per_s(rate: str) -> int:
    """What a rate as `tc` writes it means."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", str(rate))
    if not match or not float(match[1]):
        raise ValueError(f'a rate is a number and kbit, mbit or gbit, as "100mbit", not {rate!r}')
    return round(float(match[1]) * UNITS[match[2]])


class Box:
    """A box of hosts, and the process that holds it: it ends when `line` closes."""

    def __init__(self, hosts: int, bits_per_s: int):
        if sys.platform != "linux":
            raise CommError(NONE + "they are network namespaces, which only Linux has")
        self.line, theirs = socket.socketpair()
        program = [sys.executable, "-P", pathlib.Path(ethernet.__file__), str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                [*program, str(hosts), str(bits_per_s)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt of the notebook is not for the box
            )
        atexit.register(self.close)
        self.spaces = []
        try:
            self.spaces = self._hear(hosts + 1)
        finally:  # an interrupt, too
            if not self.spaces:
                self.close()
        self.homes = [[*self.spaces[:-hosts], space] for space in self.spaces[-hosts:]]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def connection(self, host: int, other: int) -> list:
        """The two ends of a fresh connection over the Ethernet."""
        with contextlib.suppress(BrokenPipeError):
            self.line.sendall(ethernet.PAIR.pack(host, other))
        return [socket.socket(fileno=fd) for fd in self._hear(2)]

    def _hear(self, most) -> list:
        try:
            said, fds, *_ = socket.recv_fds(self.line, 4096, most, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            said, fds = b"", []
        if not fds:
            why = said.decode() or "the process that holds them has ended"
            raise CommError(NONE + why)
        return fds

    def close(self):
        atexit.unregister(self.close)
        self.line.close()
        self.process.wait()
        for space in self.spaces:
            os.close(space)


_lock, _boxes = threading.Lock(), {}


def box(hosts: int, bits_per_s: int) -> Box:
    """The box of this process for so many hosts and such links."""
    shape = hosts, bits_per_s
    with _lock:
        if shape in _boxes and not _boxes[shape].alive:
            _boxes.pop(shape).close()
        if shape not in _boxes:
            _boxes[shape] = Box(*shape)
        return _boxes[shape]


class HostsWorkers(Workers):
    """Ranks on the hosts of a box; `nodes`: the host of each."""

    def __init__(self, box, nodes):
        super().__init__()
        self.box, self.nodes = box, nodes

    def pair(self, rank, other):
        host, far = self.nodes[rank], self.nodes[other]
        return super().pair(rank, other) if host == far else self.box.connection(host, far)

    def _start(self, rank, sockets, files):
        super()._start(rank, sockets, files + self.box.homes[self.nodes[rank]])


def join(rank, fds, *, homes, **world):
    """Enter the host of this rank, whose namespaces are the last `homes` of the open files `fds`,
    and connect."""
    ethernet.enter(fds[-homes:])
    os.environ["GLOO_SOCKET_IFNAME"] = ethernet.INTERFACE
    return connect(rank, fds[:-homes], **world)
