"""Nodes that Slurm has allotted, with an agent on each."""

import contextlib
import os
import secrets
import socket
import sys
import time

from course.comm.errors import CommError
from course.worlds.framing import Inbox, receive, send
from course.worlds.helper import HelperProgram, Kept, search_path
from course.worlds.slurm import agent, holder, queue
from course.worlds.sockets.door import HEAD, knock

LOOK_S = 1.0  # between two looks at the queue
AGENT_S = 120.0  # from a job's start to an agent's word: torch may come from a slow disk
PINGS = 8  # to compare two clocks
ANSWER_S = 10.0  # for an agent that has nothing else to do
LAST_S = 10.0  # for srun to say why nodes are lost
# srun takes these of an outer job for its own options.
OPTIONS_OF_OUTER_STEP = (
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK",
    "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_DISTRIBUTION", "SLURM_CPU_BIND",
    "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS", "SLURM_EXACT",
    "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_PROCID", "SLURM_LOCALID",
)  # fmt: skip


class Agent:
    """The launcher's line to the agent of one node."""

    def __init__(self, node: str, door: tuple, secret: bytes):
        self.node, self.door = node, door
        try:
            self.socket = knock(door, HEAD, secret)
        except CommError as error:
            rule = f"node {node} was lost before the run began, or a firewall is before it"
            raise CommError(f"{rule}: {error}") from None
        self.inbox = Inbox(self.socket)
        try:
            self.cores = self._answer(AGENT_S)
        except BaseException:  # an interrupt, too
            self.socket.close()
            raise

    @property
    def gone(self) -> bool:
        """Whether it has closed its line."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def tell(self, *thing):
        """Send it something; a node that is lost will be heard of."""
        with contextlib.suppress(OSError):
            send(self.socket, thing)

    def clocks(self) -> tuple:
        """(seconds that its clock of events is ahead of this process's, the same of the time of
        day, by how much both may be wrong): the best of a few questions and answers."""
        best = None
        for _ in range(PINGS):
            asked, day = time.perf_counter(), time.time()
            self.tell("clock", None)
            answer = self._answer(ANSWER_S)
            half = (time.perf_counter() - asked) / 2
            found = answer[0] - asked - half, answer[1] - day - half, half
            best = found if best is None or half < best[2] else best
        return best

    def _answer(self, seconds):
        """What it says.  Raises CommError for a node that is gone, is suspended, has no network."""
        self.socket.settimeout(seconds)
        answer = receive(self.socket)
        if answer is None:
            rule = f"was lost before the run began, or has said nothing for {seconds:g} s"
            raise CommError(f"node {self.node} {rule}")
        self.socket.settimeout(None)
        return answer


class Allocation(HelperProgram):
    """Nodes of a job of our own or, inside a job, of a step; they are held for the next run for
    `keep_s` seconds, or as long as this process lives.  `options`: srun's."""

    def __init__(self, nodes: int, keep_s: float, options: tuple):
        self.nodes, self.agents, self.name = nodes, [], f"course-{secrets.token_hex(4)}"
        self.secret, self.rest, self.said = secrets.token_bytes(32), b"", []
        self.step, self.inside, self.listen_until = "", "SLURM_JOB_ID" in os.environ, None
        command = self._command(nodes, options)
        super().__init__(
            holder.__file__, self.name, keep_s, *command, environment=own_environment()
        )
        try:
            self.control.sendall(self.secret.hex().encode() + b"\n")
            self._await_agents()
        except BaseException:  # an interrupt, too
            self.close()
            raise

    def _command(self, nodes, options):
        where = ["--overlap"] if self.inside else [f"--job-name={self.name}"]
        return [
            "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mpi=none",
            "--kill-on-bad-exit=1", "--unbuffered", "--export=ALL", *where, *options,
            sys.executable, "-P", agent.__file__, "step" if self.inside else "job", search_path(),
        ]  # fmt: skip

    def _await_agents(self):
        """Until all nodes have answered; why not, if there is a reason."""
        doors, shown, started = {}, None, time.monotonic() if self.inside else None
        while len(doors) < self.nodes:
            for word in self.lines(LOOK_S):
                node, host, port, self.step = word.split()
                doors[node] = (host, int(port))
            if not (started or doors) and (news := queue.waiting(self.name))[1:] != shown:
                shown = news[1:]
                self._say(*news)
            if doors or shown and shown[0] == "RUNNING":
                started = started or time.monotonic()
            if started:
                self._required_in_time(started, doors)
        for node in sorted(doors, key=by_number):
            self.agents.append(Agent(node, doors[node], self.secret))

    def _required_in_time(self, started, doors):
        if time.monotonic() - started > AGENT_S:
            rule = f"only {len(doors)} of {self.nodes} nodes had answered after {AGENT_S:g} s"
            raise CommError(f"{rule}; {self.words()}".rstrip("; "))

    def _say(self, job, state, reason):
        """Tell who waits where the job stands."""
        if state == "PENDING" and (why := queue.refusal(job, reason)):
            raise CommError(why)
        if state == "PENDING" and reason not in ("None", ""):
            print(queue.sentence(job, reason), file=sys.stderr, flush=True)

    def lines(self, timeout) -> list:
        """What agents said meanwhile.  Raises CommError once srun has ended, with its words."""
        self.control.settimeout(timeout)
        try:
            data = self.control.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        *whole, self.rest = (self.rest + data).split(b"\n")
        lines = [line.decode(errors="replace").partition(" ") for line in whole]
        self.said += [words for kind, _, words in lines if kind == "said"]
        if not data:
            words = self.words() or "srun ended without a word"
            began = ": task " in words
            rule = "the nodes were lost before the run began" if began else "Slurm gave no nodes"
            raise CommError(f"{rule}: {words}")
        return [words for kind, _, words in lines if kind == "agent"]

    def last_said(self) -> str:
        """What srun says of its end, of which a node's loss may be a consequence, if it ends."""
        self.listen_until = self.listen_until or time.monotonic() + LAST_S
        with contextlib.suppress(CommError):
            while time.monotonic() < self.listen_until:
                self.lines(LOOK_S)
        return self.words()

    def words(self) -> str:
        """What srun has said of errors, in one sentence."""
        return queue.said(self.said)

    def busy(self) -> bool:
        """Begin a run: whether the nodes are still there."""
        try:
            self.control.sendall(b"busy\n")
            self.control.settimeout(AGENT_S)
            while b"ready\n" not in self.rest:
                data = self.control.recv(4096)
                if not data:
                    return False
                self.rest += data
        except OSError:
            return False
        self.rest = self.rest.replace(b"ready\n", b"")
        return not any(agent.gone for agent in self.agents)

    def idle(self):
        """End a run."""
        with contextlib.suppress(OSError):
            self.control.sendall(b"idle\n")

    def close(self):
        """Let the nodes go, and a job that waits."""
        for each in self.agents:
            each.socket.close()
        super().close()


def own_environment() -> dict:
    """This process's variables, without what srun would take for options."""
    kept = {k: v for k, v in os.environ.items() if k not in OPTIONS_OF_OUTER_STEP}
    return kept | ({"SLURM_EXPORT_ENV": "ALL"} if "SLURM_EXPORT_ENV" in kept else {})


def by_number(node: str):
    """Sorts n2 before n10."""
    digits = "".join(c if c.isdigit() else " " for c in node).split()
    return [int(each) for each in digits], node


allocation_for = Kept(Allocation)
