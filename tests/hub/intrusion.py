"""What a learner has on the machine while at work, and what of it another user can reach."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

LISTEN = 10  # in the kernel's tables of connections
STRANGER = Path("tests", "hub", "stranger.py")
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY", re.IGNORECASE)
PRIVATE = "/api/contents", "/api/kernels", "/api/sessions", "/api/terminals", "/files/", "/lab"


def secrets_of(learner) -> set:
    """What the environment of a learner's processes has of tokens."""
    found = set()
    for process in learner.processes():
        named = (process.info["environ"] or {}).items()
        found |= {value for name, value in named if SECRET.search(name) and len(value) > 15}
    return found


def commands_of(learner) -> str:
    """What everybody sees of a learner's processes."""
    return "\n".join(" ".join(each.info["cmdline"] or []) for each in learner.processes())


def things_of(learner) -> dict:
    """{a process in a network: what can be tried there} for each network that a learner is in."""
    found = {}
    for process in learner.processes():
        net = os.readlink(f"/proc/{process.pid}/ns/net")
        found.setdefault(net, []).append(process)
    outside = learner.files_outside()  # a search through all of /tmp
    return {processes[0].pid: things_in(processes, learner, outside)
            for processes in found.values()}  # fmt: skip


def things_in(processes, learner, outside) -> dict:
    """Ports and sockets of processes of one network, and all files of the learner."""
    doors = listening(processes[0].pid, learner.uid)
    pages = [f"http://{host}:{port}/user/{learner.name}" for host, port in doors]
    return {
        "files": [*map(str, learner.files()), *outside],
        "processes": [process.pid for process in processes],
        "sockets": [name for name in outside if Path(name).is_socket()],
        "urls": [page + private for page in pages for private in PRIVATE],
        "doors": doors,
    }


def listening(pid: int, uid: int) -> list:
    """[(address, port)] on which a user listens in the network of a process."""
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, _, _, _, owner, *_ = line.split()
        if int(state, 16) == LISTEN and int(owner) == uid:
            host, port = local.split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
    return sorted(("127.0.0.1" if host == "0.0.0.0" else host, port) for host, port in found)


def pages_of(learner, hub) -> dict:
    """What the hub, its proxy and the proxy's own port may say of a learner."""
    inside = f"http://{hub.host}:{hub.hub_port}/hub/api"
    return {
        "urls": [
            *(f"{hub.url}/user/{learner.name}{private}" for private in PRIVATE),
            *(f"{where}/users/{learner.name}" for where in (inside, f"{hub.url}/hub/api")),
            f"http://127.0.0.1:{hub.proxy_port}/api/routes",
        ]
    }


def reached(hub, who, network_of: int, things: dict) -> list:
    """What `who` can reach of these things, in the network of a process."""
    inside = ["nsenter", f"--target={network_of}", "--net"]
    inside += ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", "--clear-groups"]
    program = [hub.installation.python, "-P", hub.installation.book / STRANGER]
    done = subprocess.run(
        [*inside, *program], input=json.dumps(things), capture_output=True, text=True, cwd="/",
        env={"PATH": os.environ["PATH"]} | hub.installation.environment,
    )  # fmt: skip
    *lines, last = done.stdout.splitlines() or [""]
    assert last == f"tried {sum(map(len, things.values()))}", done.stderr
    return [line for line in lines if line]
