"""An Ethernet cluster: network namespaces, each a host, joined by shaped links to one switch.

    host 0: eth0 -- port0 +
    host 1: eth0 -- port1 + switch       each veth sends through a token bucket of the link's rate
    host 2: eth0 -- port2 +

It is a program of its own (`python ethernet.py FD HOSTS BITS_PER_S`).  No namespace has a name:
they live while this process, whoever it handed them to, or a rank inside holds them.  So nothing
of a cluster survives those, whatever ends them.
"""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # of unshare(2)
PAIR = struct.Struct("<ii")  # the hosts of a connection that is asked for
INTERFACE = "eth0"
PACKET_BYTES = 16 << 10  # the longest train of frames that passes as one
UP = f"gso_max_size {PACKET_BYTES} up"
BURST_S = 0.2e-3  # what a link makes up for where the kernel serves it late
QUEUE_S = 0.05  # how long a packet may wait for its link
CONNECT_S = 5.0
CONFIGURE_S = 20.0  # that a program may take for all its commands
# An ordinary user may not have these on PATH; an empty entry there means any folder one works in.
PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
SETTINGS = {
    "ipv4/tcp_congestion_control": "reno",  # nothing is lost here: steady at the full rate
    "ipv4/tcp_rmem": "4096 4194304 33554432",  # the link stays busy while a rank has no core
    "ipv6/conf/default/disable_ipv6": "1",
}
FORBIDDEN = (
    "the kernel allows network namespaces neither to this user nor in a user namespace (work as "
    "root, or allow kernel.unprivileged_userns_clone, user.max_user_namespaces, "
    "user.max_net_namespaces and, on Ubuntu, disallow "
    "kernel.apparmor_restrict_unprivileged_userns)"
)

libc = ctypes.CDLL(None, use_errno=True)


def main(line, hosts: int, bits_per_s: int):
    """Build a cluster, hand its namespaces over, then the two ends of a connection whenever a pair
    of hosts is asked for, until `line` closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        user, nets = build(hosts, bits_per_s)
    except OSError as error:
        return line.sendall(str(error.args[-1]).encode())
    socket.send_fds(line, [b"+"], user + nets)
    while request := line.recv(PAIR.size):
        ends = connection(nets, *PAIR.unpack(request))
        socket.send_fds(line, [b"+"], [end.fileno() for end in ends])
        for end in ends:
            end.close()


def build(hosts: int, bits_per_s: int) -> tuple[list, list]:
    """([the user namespace, unless this is root], [a network namespace for each host]), as open
    files; this process is in the switch's."""
    user = unshare()
    switch, nets = open_namespace("net"), []
    for _ in range(hosts):
        syscall("unshare", NEW_NET)
        nets.append(open_namespace("net"))
        set_sysctls()
    syscall("setns", switch, 0)
    ends = f"type veth peer name {INTERFACE} netns /proc/{os.getpid()}/fd"
    made = [f"link add port{host} {ends}/{net}" for host, net in enumerate(nets)]
    ports = [f"port{host}" for host in range(hosts)]
    plugged = [f"link set {port} master switch {UP}" for port in ports]
    configure("ip", ["link add switch type bridge", "link set switch up", *made, *plugged])
    configure("tc", [tbf(port, bits_per_s) for port in ports])
    for host, net in enumerate(nets):
        syscall("setns", net, 0)
        configure("ip", addressed(host, hosts))
        configure("tc", [tbf(INTERFACE, bits_per_s)])
    return user, nets


def addressed(host: int, hosts: int) -> list:
    """What gives a host its addresses, and those of all others.  Neighbours that it had to look for
    would be in a table that the whole machine shares, of 1,024 places; permanent ones do not count.
    """
    return [
        f"link set {INTERFACE} address {mac_of(host)}",
        f"addr add {address_of(host)}/24 dev {INTERFACE}",
        f"link set {INTERFACE} {UP}",
        "link set lo up",
        *(
            f"neigh add {address_of(other)} lladdr {mac_of(other)} dev {INTERFACE} nud permanent"
            for other in range(hosts)
            if other != host
        ),
    ]


def set_sysctls():
    """Give a fresh network namespace its settings, as far as they may be written here."""
    for name, value in SETTINGS.items():
        with contextlib.suppress(OSError), open(f"/proc/sys/net/{name}", "w") as file:
            file.write(value)


def tbf(interface: str, bits_per_s: int) -> str:
    """What lets all that an interface sends flow at a rate: a token bucket filter."""
    burst = 1.1 * PACKET_BYTES + BURST_S * bits_per_s / 8
    bucket = f"tbf rate {bits_per_s}bit burst {burst:.0f} latency {QUEUE_S * 1000:g}ms"
    return f"qdisc add dev {interface} root {bucket}"


def unshare() -> list:
    """Leave the machine's network namespace, and its user namespace if there is no other way;
    [the latter's open file], if so."""
    try:
        syscall("unshare", NEW_NET)
        return []
    except OSError:  # not permitted, or none is left
        own = {"uid_map": f"0 {os.getuid()} 1", "gid_map": f"0 {os.getgid()} 1"}
    try:
        syscall("unshare", NEW_USER | NEW_NET)
        for name, text in ({"setgroups": "deny"} | own).items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise PermissionError(FORBIDDEN) from error
    return [open_namespace("user")]


def configure(program: str, commands: list):
    """Let iproute2's `program` carry out `commands`.  Raises OSError with what it says."""
    path = f"{PROGRAMS}:{os.environ.get('PATH', '')}".rstrip(":")
    settings = {"text": True, "capture_output": True, "env": {"PATH": path}}
    try:
        done = subprocess.run(
            [program, "-batch", "-"], input="\n".join(commands), timeout=CONFIGURE_S, **settings
        )
    except FileNotFoundError:
        raise OSError(f"there is no program {program} (install iproute2)") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"{program} was not done after {CONFIGURE_S:g} s") from None
    if done.returncode:
        said = done.stderr.strip().partition("\n")[0] or f"nothing, but fails ({done.returncode})"
        raise OSError(f"{program} says: {said}")


def connection(nets: list, near: int, far: int) -> list:
    """The two ends of a fresh connection between two hosts."""
    syscall("setns", nets[near], 0)
    with socket.create_server((address_of(near), 0)) as server:
        syscall("setns", nets[far], 0)
        end = socket.create_connection(server.getsockname(), CONNECT_S)
        ends = [server.accept()[0], end]
    for end in ends:
        end.setblocking(True)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ends


def enter(namespaces: list):
    """Let this process, while it has but one thread, live in these namespaces (open files)."""
    for namespace in namespaces:
        syscall("setns", namespace, 0)
        os.close(namespace)


def address_of(host: int) -> str:
    """The address of a host in its cluster's network."""
    return f"10.0.0.{host + 1}"


def mac_of(host: int) -> str:
    """The hardware address of a host, made up and known to all others."""
    return f"02:00:00:00:00:{host + 1:02x}"


def open_namespace(kind: str) -> int:
    """An open file that keeps this process's present namespace of a kind alive."""
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)


def syscall(call: str, *args):
    """Make a system call of libc.  Raises the OSError that its errno means."""
    if getattr(libc, call)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody wants it any more
        main(socket.socket(fileno=int(sys.argv[1])), *map(int, sys.argv[2:]))
