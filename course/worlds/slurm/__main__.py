"""`srun --ntasks=8 python -m course.worlds.slurm module:function`: fn(comm) on each task.

All tasks need one secret, so set it before srun: `export COURSE_SECRET=$(openssl rand -hex 32)`.
"""

import os
import sys

from course.worlds.meeting import Meeting, live
from course.worlds.slurm.queue import ask

FIRST_PORT, PORTS = 20000, 20000  # below those that systems hand out by themselves


def meeting(task: dict) -> Meeting:
    """Where the tasks of a step meet: on the first node of the job, at a port of the step's own.
    Raises ValueError outside of a step, and without a secret."""
    if "SLURM_PROCID" not in task:
        rule = "python -m course.worlds.slurm is for tasks that srun starts"
        raise ValueError(f"{rule}: from a notebook use run(..., on=slurm())")
    if not task.get("COURSE_SECRET"):
        raise ValueError("set a secret before srun: export COURSE_SECRET=$(openssl rand -hex 32)")
    nodes = ask("scontrol", "show", "hostnames", task["SLURM_STEP_NODELIST"]).split()
    address = ask("scontrol", "--oneliner", "show", "node", nodes[0]).partition("NodeAddr=")[2]
    number = int(task["SLURM_JOB_ID"]) * 31 + int(task["SLURM_STEP_ID"])
    return Meeting(
        int(task["SLURM_PROCID"]), int(task["SLURM_NTASKS"]), address.split()[0],
        FIRST_PORT + number % PORTS, task["COURSE_SECRET"].encode(),
    )  # fmt: skip


if __name__ == "__main__":
    here = os.environ["SLURM_STEP_TASKS_PER_NODE"] if "SLURM_STEP_ID" in os.environ else "1"
    live(meeting(dict(os.environ)), int(here.partition("(")[0].partition(",")[0]), sys.argv[1])
