"""This site's hub, and the one file that a site changes.  How to start it: hub/README.md.

What follows `configure` is JupyterHub's own configuration: who may log in, under which address.
"""

import sys
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1]  # of a copy of this file: Path("/where/the/book/is")
sys.path.insert(0, str(BOOK / "hub"))

from book_hub import configure  # noqa: E402

configure(
    c,  # noqa: F821  (JupyterHub gives it)
    # "login": servers live on this machine, and cells ask Slurm for nodes by on=slurm(nodes=2).
    # "job": each server is a job of Slurm, and such a run is a step of that job.
    kind="login",
    # Where the hub keeps its own files; for root alone.
    state="/var/lib/course-hub",
    # What cells get that name no partition and no account, and what servers in jobs run in.
    partition="",
    account="",
    # A server without a browser and without a busy kernel ends after so long.
    idle_minutes=60,
    # Staged once for all: see README, «Larger data».  None: no notebook needs it.
    data=None,
    # More variables of the learners' servers.  COURSE_CROWDED: while more programs a core than
    # these want to compute, a run waits for others to end, a minute at most.
    environment={"COURSE_CROWDED": 4},
    # kind="job" alone: this machine's address as compute nodes reach it,
    address="127.0.0.1",
    # what to ask for, as sbatch spells it,
    request=(
        "--nodes=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--mem=8G",
        "--time=04:00:00",
    ),
    # lines of shell before the server: "module load cuda",
    prologue="",
    # and the program that starts it in an image: ("apptainer", "exec", "--nv", "/images/gpu.sif").
    image=(),
)

# A proxy with a certificate, or a tunnel, stands before this address.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # noqa: F821
# Who has an account on this machine may log in, by its password.
c.Authenticator.allow_all = True  # noqa: F821
