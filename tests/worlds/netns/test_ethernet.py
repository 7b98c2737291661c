"""What iproute2 is told to build an Ethernet, what is said where it cannot, and who may."""

import subprocess
import sys

import pytest

from course.worlds.netns import ethernet
from tests.worlds.netns.test_world import ROOT, needs_hosts


def test_a_host_knows_all_others_without_asking():
    assert ethernet.addressed(1, 3) == [
        "link set eth0 address 02:00:00:00:00:02",
        "addr add 10.0.0.2/24 dev eth0",
        "link set eth0 gso_max_size 16384 up",
        "link set lo up",
        "neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
        "neigh add 10.0.0.3 lladdr 02:00:00:00:00:03 dev eth0 nud permanent",
    ]


def test_no_two_hosts_have_an_address_in_common():
    for address in (ethernet.address_of, ethernet.mac_of):
        assert len({address(host) for host in range(200)}) == 200
    assert ethernet.mac_of(199) == "02:00:00:00:00:c8"


@pytest.mark.parametrize(("bits_per_s", "burst"), [(10**9, 43022), (10**8, 20522)])
def test_the_bucket_of_a_link_is_small(bits_per_s, burst):
    rate = f"tbf rate {bits_per_s}bit burst {burst} latency 50ms"
    assert ethernet.tbf("port0", bits_per_s) == f"qdisc add dev port0 root {rate}"


def program(folder, text) -> str:
    path = folder / "ip"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_its_programs():
    with pytest.raises(OSError, match="there is no program ipp .install iproute2."):
        ethernet.configure("ipp", [])


@needs_hosts
def test_what_a_program_says_is_passed_on():
    with pytest.raises(OSError, match="^ip says: .*nonsense"):
        ethernet.configure("ip", ["nonsense"])


def test_a_program_that_fails_in_silence(tmp_path):
    with pytest.raises(OSError, match="ip says: nothing, but fails .3.$"):
        ethernet.configure(program(tmp_path, "exit 3"), [])


def test_a_program_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(ethernet, "CONFIGURE_S", 0.1)
    with pytest.raises(OSError, match="ip was not done after 0.1 s$"):
        ethernet.configure(program(tmp_path, "exec sleep 1000"), [])


def test_no_program_of_the_working_folder_is_run(tmp_path, monkeypatch):
    """An empty entry of PATH means that folder."""
    program(tmp_path, "exit 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ethernet, "PROGRAMS", "/nowhere")
    for path in ("", ":", None):
        monkeypatch.delenv("PATH", raising=False)
        if path is not None:
            monkeypatch.setenv("PATH", path)
        with pytest.raises(OSError, match="there is no program ip "):
            ethernet.configure("ip", [])


LIMITED = """
from pathlib import Path
from course.worlds import hosts
for most in "019":  # what was made before may still be on its way out
    Path("/proc/sys/user/max_net_namespaces").write_text(most)
    print(hosts.available())
"""


@needs_hosts
def test_where_there_are_not_enough_namespaces():
    """As root of a user namespace of its own: its limit is nobody else's."""
    private = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*private, "true"], capture_output=True).returncode:
        pytest.skip("there is no user namespace for this user")
    done = subprocess.run([*private, sys.executable, "-c", LIMITED], cwd=ROOT,
                          capture_output=True, text=True)  # fmt: skip
    none = "this machine has no hosts in a box: "
    forbidden, too_few, enough = done.stdout.splitlines()
    assert forbidden.startswith(f"{none}the kernel allows network namespaces neither to this user")
    assert (too_few, enough) == (f"{none}unshare: No space left on device", "None")
    assert done.stderr == ""
