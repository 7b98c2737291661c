"""The world of hosts: ranks of this machine that have only a real, shaped Ethernet between them.

values = run(fn, 4, on=hosts(4, rate="1gbit"))        hosts.available() says why not, if not
"""

import os
import re
import socket
import sys
import threading
from typing import NamedTuple

from course.comm.errors import CommError
from course.worlds.cores import required_cores
from course.worlds.helper import HelperProgram, Kept
from course.worlds.local.workers import Workers
from course.worlds.netns import ethernet
from course.worlds.sockets.connect import connect
from course.worlds.supervise import supervise

UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
RATES = 10**3, 10**11  # bits/s; tc takes no less and no more
MOST_HOSTS = 200
ANSWER_S = 60.0  # that the process which holds a cluster may take for it
NONE = "this machine has no hosts in a box: "
PAYLOAD = 1448 / 1514  # of a full Ethernet frame, behind the headers of IP and TCP


class hosts(NamedTuple):  # noqa: N801  (it is called like a function)
    """The world of `number` hosts in a box, each with `ranks_per_host` ranks and a link of `rate`
    ("100mbit", "1gbit"), both ways, to one switch.

    Each host is a network namespace of Linux and each link a shaped veth, so bytes between hosts
    take the time that they take on such an Ethernet; ranks of one host share memory.  The last two
    clusters stay for the next run of this process.  `oversubscribe` as for `processes`.
    Raises ValueError for what cannot be; CommError where the machine cannot have hosts.
    """

    number: int
    ranks_per_host: int = 1
    rate: str = "1gbit"
    oversubscribe: bool = False

    def run(self, call: bytes, ranks: int, **options) -> list:
        """The values of a packed call on `ranks` ranks; see the function `run`."""
        nodes = self._nodes(ranks)
        cluster = cluster_for(self.number, bits_per_s(self.rate))
        place = {"namespaces": len(cluster.of_host(0)), "nodes": nodes, "device": "cpu"}
        return supervise(HostsWorkers(cluster, nodes), call, ranks, join, place, **options)

    @property
    def bytes_per_s(self) -> float:
        """The payload that a link carries each way: a full frame of 1514 bytes has 1448 of it."""
        return bits_per_s(self.rate) / 8 * PAYLOAD

    @staticmethod
    def available():
        """None if this machine can have hosts in a box, else the reason why it cannot."""
        try:
            VirtualCluster(1, 10**9).close()
        except CommError as error:
            return str(error)
        return None

    def _nodes(self, ranks) -> list:
        whole = type(self.number) is int and type(self.ranks_per_host) is int
        if not whole or not 1 <= self.number <= MOST_HOSTS or self.ranks_per_host < 1:
            rule = f"a cluster has 1 to {MOST_HOSTS} hosts of at least 1 rank"
            raise ValueError(f"{rule}, not {self.number!r} of {self.ranks_per_host!r}")
        nodes = [host for host in range(self.number) for _ in range(self.ranks_per_host)]
        if len(nodes) != ranks:
            each = f"{self.number} hosts x {self.ranks_per_host} ranks"
            raise ValueError(f"{each} make {len(nodes)} ranks, but there are {ranks}")
        required_cores(ranks, self)
        return nodes


def bits_per_s(rate: str) -> int:
    """What a rate as `tc` writes it means."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", str(rate), re.ASCII)
    bits = float(match[1]) * UNITS[match[2]] if match else 0
    if not RATES[0] <= bits <= RATES[1]:
        rule = "a rate is a number and kbit, mbit or gbit, from 1kbit to 100gbit"
        raise ValueError(f'{rule}, as "100mbit", not {rate!r}')
    return round(bits)


class VirtualCluster(HelperProgram):
    """A cluster of hosts, held by a program that ends when `control`, our socket to it, closes."""

    def __init__(self, hosts: int, bits_per_s: int):
        if sys.platform != "linux":
            raise CommError(NONE + "they are network namespaces, which only Linux has")
        self.hosts, self.lock, self.namespaces = hosts, threading.Lock(), []
        surroundings = {"PATH": os.environ.get("PATH", "")}  # nothing of PYTHONPATH, PYTHONHOME
        super().__init__(ethernet.__file__, hosts, bits_per_s, environment=surroundings)
        self.control.settimeout(ANSWER_S)
        self.namespaces += self._ask(b"", hosts + 1)

    def of_host(self, host: int) -> list:
        """The namespaces of a host, as open files: the user namespace of all, if any, and its own
        network."""
        if not self.namespaces:
            raise CommError(NONE + "the process that holds them has ended")
        return [*self.namespaces[: -self.hosts], self.namespaces[host - self.hosts]]

    def connection(self, host: int, other: int) -> list:
        """The two ends of a fresh connection over the Ethernet."""
        with self.lock:
            ends = self._ask(ethernet.PAIR.pack(host, other), 2)
        return [socket.socket(fileno=fd) for fd in ends]

    def _ask(self, request, most) -> list:
        """The open files that answer a request.  Without them the cluster is of no further use:
        an answer may still come, and would be taken for the next one."""
        fds, why = [], b"the process that holds them has ended"
        try:
            self.control.sendall(request)
            said, fds, *_ = socket.recv_fds(self.control, 4096, most, socket.MSG_CMSG_CLOEXEC)
            why = said or why
        except TimeoutError:
            why = b"the process that holds them does not answer"
        except OSError:
            pass
        finally:  # an interrupt, too
            if not fds:
                self.close()
        if not fds:
            raise CommError(NONE + why.decode())
        return fds

    def close(self):
        """End the program, and let the namespaces go."""
        super().close()
        while self.namespaces:
            os.close(self.namespaces.pop())


cluster_for = Kept(VirtualCluster, most=2)


class HostsWorkers(Workers):
    """Ranks on the hosts of a cluster; `nodes`: the host of each."""

    def __init__(self, cluster, nodes):
        super().__init__()
        self.cluster, self.nodes = cluster, nodes

    def pair(self, rank, other):
        host, far = self.nodes[rank], self.nodes[other]
        return super().pair(rank, other) if host == far else self.cluster.connection(host, far)

    def _start(self, rank, peers, files):
        super()._start(rank, peers, files + self.cluster.of_host(self.nodes[rank]))


def join(rank, fds, *, namespaces, **world):
    """Enter the host of this rank, whose `namespaces` are the last of the open files `fds`, and
    connect."""
    ethernet.enter(fds[-namespaces:])
    return connect(rank, fds[:-namespaces], interface=ethernet.INTERFACE, **world)
