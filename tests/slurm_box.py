"""A real Slurm cluster on one machine, for what has to run on many nodes.

    python tests/slurm_box.py FOLDER          until Ctrl-C; export SLURM_CONF=FOLDER/slurm.conf

Each node's slurmd lives in a network namespace of its own, under a host name of its own, which the
nodes know of one another, with a link to the others like that of a host in a box; this machine is
the login node.  Needs root, and from Debian slurm-wlm, munge and iproute2.

    this machine: slurmctld, munged ── bridge ══ n1: slurmd        each ══ is a shaped veth
                                              ══ n2: slurmd
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course.worlds.netns import ethernet
from course.worlds.netns.world import bits_per_s

PROGRAMS = "slurmctld", "slurmd", "munged", "srun", "ip", "tc", "nsenter", "unshare"
SYSTEM = "/usr/sbin:/sbin"
START_S = 60.0
CONFIGURATION = """\
ClusterName=box
SlurmctldHost={host}({network}.254)
SlurmctldPort={port}
SlurmdPort=26818
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
CompleteWait=0
MpiDefault=none
ReturnToService=2
KillWait=30
MailProg=/bin/true
SlurmdParameters=config_overrides
"""


def missing():
    """Why there can be no box here; None if there can."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM}"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"not here: {', '.join(absent)} (Debian: slurm-wlm, munge, iproute2)"
    if os.geteuid():
        return "network namespaces with names, and slurmd, need root"
    probe = ["unshare", "--net", "--uts", "--mount", "true"]
    probe = subprocess.run(probe, capture_output=True, text=True)
    return f"no network namespaces here: {probe.stderr.strip()}" if probe.returncode else None


class SlurmBox:
    """`with SlurmBox(nodes=4, rate="1gbit") as box:`; programs find it by `box.environment`."""

    def __init__(self, nodes=4, rate="1gbit", cpus=2):
        self.nodes, self.rate, self.cpus = nodes, rate, cpus
        self.tag = secrets.token_hex(3)  # of interfaces, which have 15 letters at most
        self.network = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250) + 1}"
        self.folder, self.processes = Path(tempfile.mkdtemp(prefix="slurm-box-")), []

    @property
    def environment(self) -> dict:
        """What a process needs to find this Slurm."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        try:
            self._configure()
            self._start_controller()
            for number in range(1, self.nodes + 1):
                self._start_node(number)
            self._await_nodes()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def _configure(self):
        self.folder.chmod(0o755)  # munged asks it of the folder of its socket
        (self.folder / "state").mkdir()
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        host, network = socket.gethostname().partition(".")[0], self.network
        text = CONFIGURATION.format(host=host, network=network, port=port, folder=self.folder)
        for n in range(1, self.nodes + 1):
            where = f"NodeName=n{n} NodeHostname=n{n} NodeAddr={network}.{n}"
            text += f"{where} CPUs={self.cpus} RealMemory=4000 State=UNKNOWN\n"
        all_nodes = f"Nodes=n[1-{self.nodes}]"
        text += f"PartitionName=box {all_nodes} Default=YES MaxTime=01:00:00 OverSubscribe=YES\n"
        text += f"PartitionName=closed {all_nodes} State=DOWN\n"
        (self.folder / "slurm.conf").write_text(text)
        names = [f"{network}.{n} n{n}\n" for n in range(1, self.nodes + 1)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(names))

    def _start_controller(self):
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = {"key": key} | {
            f"{kind}-file" if kind != "socket" else kind: self.folder / f"munge.{kind}"
            for kind in ("socket", "pid", "log", "seed")
        }
        files["key-file"] = files.pop("key")
        self._run("munged", "--force", "--origin=127.0.0.1",
                  *(f"--{name}={path}" for name, path in files.items()))  # fmt: skip
        self._plug_in()
        self._run("slurmctld", "-c")

    def _plug_in(self):
        """A switch in a namespace of its own, where no filter of this machine looks at what passes,
        and a line from this machine to it."""
        for command in (
            f"ip netns add {self.switch}",
            f"ip -n {self.switch} link add switch type bridge",
            f"ip -n {self.switch} link set switch up",
            f"ip link add {self.line} type veth peer name login netns {self.switch}",
            f"ip -n {self.switch} link set login master switch up",
            f"ip addr add {self.network}.254/24 dev {self.line}",
            f"ip link set {self.line} up",
        ):
            self._run(*command.split())

    def _start_node(self, number: int):
        """A namespace, a link of the rate both ways like that of a host in a box, and slurmd."""
        space, switch, port = self.space(number), self.switch, f"port{number}"
        inside = ("nsenter", f"--net=/run/netns/{space}")  # `ip netns exec` hides the cgroups
        rate = bits_per_s(self.rate)
        for command in (
            f"ip netns add {space}",
            f"ip -n {switch} link add {port} type veth peer name eth0 netns {space}",
            f"ip -n {switch} link set {port} master switch {ethernet.UP}",
            f"ip -n {space} addr add {self.network}.{number}/24 dev eth0",
            f"ip -n {space} link set eth0 {ethernet.UP}",
            f"ip -n {space} link set lo up",
        ):
            self._run(*command.split())
        for where, interface in ((switch, port), (space, "eth0")):
            self._run("tc", "-n", where, *ethernet.tbf(interface, rate).split())
        written = (f"echo {value} > /proc/sys/net/{at}" for at, value in ethernet.SETTINGS.items())
        self._run(*inside, "sh", "-c", "; ".join(written))
        own = f"mount --bind {self.folder}/hosts /etc/hosts; hostname n{number}"
        own_names = ("unshare", "--uts", "--mount", "sh", "-c", f"{own}; exec slurmd -N n{number}")
        self._run(*inside, *own_names)

    def _await_nodes(self):
        deadline = time.monotonic() + START_S
        while self.ask("sinfo", "-h", "-p", "box", "-t", "idle", "-o", "%D") != str(self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Slurm's nodes were not idle in {START_S:g} s: {self.logs()}")
            time.sleep(0.1)

    @property
    def switch(self) -> str:
        """The name of the switch's network namespace."""
        return f"box-{self.tag}-switch"

    @property
    def line(self) -> str:
        """The name of this machine's network interface in the nodes' network."""
        return f"box{self.tag}"

    def space(self, number: int) -> str:
        """The name of a node's network namespace."""
        return f"box-{self.tag}-{number}"

    def ask(self, *command) -> str:
        """What a program prints."""
        return self._run(*command, check=False).stdout.strip()

    def pid(self, name: str) -> int:
        """Of a daemon: `controller`, `n1` ... `munge`."""
        return int((self.folder / f"{name}.pid").read_text())

    def logs(self) -> str:
        """The last lines of all logs."""
        found = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{file.name}: {file.read_text()[-600:]}" for file in found)

    def _run(self, *command, check=True):
        path = {"PATH": f"{os.environ.get('PATH', '')}:{SYSTEM}"}
        done = subprocess.run(
            command, capture_output=True, text=True, env=os.environ | path | self.environment
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done

    def close(self):
        """End all daemons, and remove all namespaces and files."""
        self.ask("scancel", "--user=root")
        for file in sorted(self.folder.glob("*.pid")):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), 15)
        deadline = time.monotonic() + 10
        while [*self.folder.glob("*.pid")] and time.monotonic() < deadline:
            time.sleep(0.05)
        for number in range(1, self.nodes + 1):
            for pid in self.ask("ip", "netns", "pids", self.space(number)).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)  # of a step that had not ended yet
            self.ask("ip", "netns", "del", self.space(number))
        self.ask("ip", "netns", "del", self.switch)
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell's background programs ignore one
        signal.signal(ending, signal.default_int_handler)
    with SlurmBox() as box:
        print(f"export SLURM_CONF={box.folder}/slurm.conf", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
