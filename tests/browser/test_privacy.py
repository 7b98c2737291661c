"""On a shared machine nobody else can listen to a learner's kernel, as `make lab` starts it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from traitlets.config import Config

MAKEFILE = Path(__file__).parents[2] / "Makefile"
AS_MAKE_LAB_SAYS = re.findall(r"--(\w+)\.(\w+)=(\w+)", MAKEFILE.read_text())
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")

# Another user tries all addresses of a kernel, and says to how many there is a way.
STRANGER = """
import json, os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
ways = 0
for address in json.load(sys.stdin):
    kind = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(kind) as one:
        ways += one.connect_ex(address if isinstance(address, str) else tuple(address)) == 0
print(ways)
"""


@pytest.fixture
def runtime(monkeypatch):
    """Where a kernel's files come, in a folder that others may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", f"{folder}/runtime")
        yield Path(folder)


def ways_for_a_stranger(config) -> int:
    """How many of a kernel's five addresses another user can open."""
    manager = KernelManager(config=config)
    manager.start_kernel()
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)
        addresses = [address(json.loads(Path(manager.connection_file).read_text()), port)
                     for port in PORTS]  # fmt: skip
        said = subprocess.run([sys.executable, "-c", STRANGER], input=json.dumps(addresses),
                              capture_output=True, text=True, check=True)  # fmt: skip
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return int(said.stdout)


def address(connection: dict, port: str):
    if connection["transport"] == "ipc":
        return f"{connection['ip']}-{connection[port]}"
    return connection["ip"], connection[port]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_no_other_user_can_reach_a_kernel(runtime):
    config = Config()
    for kind, name, value in AS_MAKE_LAB_SAYS:
        config[kind][name] = value
    assert ways_for_a_stranger(Config()) == 5  # Jupyter's own way
    assert ways_for_a_stranger(config) == 0
