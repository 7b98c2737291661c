"""The program on each node of a job: starts its ranks, relays what they say.

srun starts it (`python agent.py OWN PATH`) and gives it the secret by standard input.  It opens a
door on the address by which the launcher's machine reaches this node, says where, and serves the
one who knows the secret, run after run, until that connection closes.  OWN is `job` if the launcher
has asked for the job, which then ends, too; else `step`.
"""

import contextlib
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import time

START_S = 60.0  # for the launcher to connect
OTHERS_S = 5.0  # for the launcher's side to end the job


def main():
    """Serve one launcher."""
    from course.worlds.cores import cores
    from course.worlds.framing import receive, send
    from course.worlds.local.workers import fork_server
    from course.worlds.sockets.door import HEAD, Door, address_towards

    secret = bytes.fromhex(sys.stdin.readline())
    door = Door(address_towards(os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")), secret)
    step = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
    here = " ".join(map(str, ("agent", socket.gethostname(), *door.address, step)))
    os.write(1, f"{here}\n".encode())  # at once: print writes word by word under PYTHONUNBUFFERED
    fork_server()
    head = door.admit({HEAD}, START_S)[HEAD]
    send(head, cores())
    while request := receive(head):
        kind, what = request
        if kind == "clock":
            send(head, (time.perf_counter(), time.time()))
        else:
            follow(head, door, what)


def follow(head, door, part):
    """Do this node's `part` of one run, and tell the launcher what its ranks say."""
    from course.comm.errors import CommError
    from course.worlds.framing import send
    from course.worlds.local.fork_server import LEADER
    from course.worlds.slurm.node import RanksHere

    ranks = RanksHere(head.dup(), door)
    try:
        ranks.begin(part)
        while not ranks.over:
            for entry in ranks.poll():
                send(head, unbuffered(entry))
    except CommError as error:
        send(head, (LEADER, "refused", str(error)))
        ranks.wait_for_the_end()
    for entry in ranks.stop():
        send(head, unbuffered(entry))
    send(head, (LEADER, "stopped", None))


def unbuffered(entry):
    """An entry whose result goes from its memory to the socket."""
    rank, kind, value = entry
    if kind != "result":
        return entry
    return rank, kind, (pickle.PickleBuffer(value[0]), value[1])


def end_job():
    """End this job, if nobody else does: where all of its user's processes were killed, or the
    launcher's machine is down, Slurm would keep the nodes until their time is over."""
    time.sleep(OTHERS_S)
    subprocess.run(["scancel", "--quiet", os.environ["SLURM_JOB_ID"]], check=False)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))  # the launcher's own `course`
    own, path = sys.argv[1:]
    sys.path += path.split(os.pathsep)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher is gone
            main()
    finally:
        if own == "job" and os.environ["SLURM_PROCID"] == "0":
            end_job()
    os._exit(0)
