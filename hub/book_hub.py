"""What all hubs of the book have in common; a site's own values stand in jupyterhub_config.py.

The book is installed once, and learners only read it.  Their notebooks are copies in their homes,
made before a server starts.  A server keeps its keys and sockets in a folder of its own
(learner.py), and its kernels talk through those.
"""

import asyncio
import contextlib
import os
import pwd
import shlex
import shutil
import sys
from pathlib import Path

import batchspawner
from batchspawner.api import BatchSpawnerAPIHandler
from batchspawner.batchspawner import JobStatus
from jupyterhub.apihandlers import default_handlers
from tornado import web

from course.worlds.slurm.queue import refusal

BOOK = Path(__file__).resolve().parents[1]
PROXY = BOOK / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
LEARNER = [sys.executable, str(BOOK / "hub" / "learner.py")]
SERVER = str(Path(sys.executable).with_name("jupyterhub-singleuser"))
WORKBOOK = "course-workbook"  # in each home
COPYING_S = 60.0
LOOK_S = 2.0  # between two looks at a job that starts
ENDED = "its job has ended; ~/.course-hub.log says why, unless your home is full"
START_S = 180  # for a server to answer: Python may come from a slow disk, and thirty start at once
# As the learner, without what only the hub may know; Slurm writes a job's log by sbatch's umask.
AS_LEARNER = (
    "env -u CONFIGPROXY_AUTH_TOKEN -u JUPYTERHUB_CRYPT_KEY {runuser} -u {{username}} -- "
    """sh -c 'umask 077; exec "$0" "$@"'"""
)
SCRIPT = """\
#!/bin/bash -l
#SBATCH --job-name=course-hub
#SBATCH --chdir={{homedir}}
#SBATCH --output={{homedir}}/.course-hub.log
#SBATCH --open-mode=truncate
#SBATCH --export={{keepvars}}
{{options}}
{{prologue}}
exec {{cmd}}
"""


def configure(c, *, kind, state, idle_minutes=60, data=None, partition="", account="",
              environment=None, **job):  # fmt: skip
    """Fill in JupyterHub's configuration `c`; what the arguments mean stands in
    jupyterhub_config.py.  Raises ValueError where a value cannot be right."""
    required(kind, data)
    keep_files(c, Path(state))
    c.JupyterHub.template_paths = [str(BOOK / "hub" / "templates")]
    c.JupyterHub.hub_ip = job["address"] if kind == "job" else "127.0.0.1"
    c.Spawner.http_timeout = START_S
    c.Spawner.notebook_dir = f"~/{WORKBOOK}"
    c.Spawner.pre_spawn_hook = hand_out
    c.Spawner.args = options_of_server(round(60 * idle_minutes))
    named = {"COURSE_DATA": data, "SLURM_PARTITION": partition, "SLURM_ACCOUNT": account}
    named |= {"SLURM_CONF": os.environ.get("SLURM_CONF")} | (environment or {})
    c.Spawner.environment = {name: str(value) for name, value in named.items() if value}
    if kind == "job":
        servers_in_jobs(c, partition, account, **job)
    else:
        c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
        c.Spawner.ip, c.Spawner.start_timeout = "127.0.0.1", START_S
        c.Spawner.cmd = [*LEARNER, sys.executable, SERVER]


def required(kind, data):
    """Raises ValueError unless a hub can start with these."""
    if kind not in ("login", "job"):
        raise ValueError(f'kind is "login" or "job", not {kind!r}')
    if data is not None and not Path(data).is_dir():
        raise ValueError(f"data names a folder with staged data; {data} is none on this machine")
    if not PROXY.exists():
        raise ValueError(f"the hub's proxy is not installed ({PROXY}): run `make hub` first")


def found(program: str) -> str:
    """Where a program is.  Raises ValueError if it is not here."""
    place = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if place is None:
        raise ValueError(f'kind="job" needs {program}, which is not on this machine')
    return place


def keep_files(c, state: Path):
    """The hub's own files, in a folder for its user alone."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    c.JupyterHub.cookie_secret_file = str(state / "cookie_secret")
    c.JupyterHub.db_url = f"sqlite:///{state}/hub.sqlite"
    c.ConfigurableHTTPProxy.pid_file = str(state / "proxy.pid")
    c.ConfigurableHTTPProxy.command = [str(PROXY)]


def options_of_server(idle_s: int) -> list:
    """Of a learner's JupyterLab: kernels without ports; an end once nobody needs it."""
    return [
        "--KernelManager.transport=ipc",
        f"--MappingKernelManager.cull_idle_timeout={idle_s}",
        f"--MappingKernelManager.cull_interval={max(1, min(300, idle_s // 2))}",
        f"--TerminalManager.cull_inactive_timeout={idle_s}",
        "--LanguageServerManager.autodetect=False",  # looks for them by starting npm in each home
        f"--ServerApp.shutdown_no_activity_timeout={idle_s}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]


def servers_in_jobs(c, partition, account, *, address, request=(), prologue="", image=()):
    """Each server is a job of Slurm, submitted as its learner."""
    wanted = [*request, *([f"--partition={partition}"] * bool(partition))]
    wanted += [f"--account={account}"] * bool(account)
    found("sbatch")
    spawner = c.JobSpawner
    spawner.exec_prefix = AS_LEARNER.format(runuser=found("runuser"))
    spawner.batch_script = SCRIPT
    spawner.batch_query_cmd = "squeue -h -j {job_id} -o '%T %B %r'"
    spawner.state_exechost_re = r"^\w+ (\S+) "
    spawner.req_options = "\n".join(f"#SBATCH {shlex.quote(each)}" for each in wanted)
    spawner.req_prologue = prologue
    spawner.batchspawner_singleuser_cmd = shlex.join(
        [*LEARNER, *image, sys.executable, "-m", "batchspawner.singleuser"]
    )
    c.Spawner.cmd = [SERVER]
    c.JupyterHub.spawner_class = JobSpawner
    for number, (path, handler) in enumerate(default_handlers):
        if handler is BatchSpawnerAPIHandler:
            default_handlers[number] = (path, JobPort)


class JobSpawner(batchspawner.SlurmSpawner):
    """A learner's server as a job; who waits for one that cannot start, or has ended, is told."""

    async def start(self):
        """As of every spawner of batchspawner, which would wait for the port of a job that has
        ended.  Raises HTTPError if there will be no server, with Slurm's reason."""
        starting = asyncio.ensure_future(super().start())
        try:
            while not (await asyncio.wait({starting}, timeout=LOOK_S))[0]:
                if self.job_id and await self.query_job_status() == JobStatus.NOTFOUND:
                    raise RuntimeError(ENDED)
            return starting.result()
        except RuntimeError as error:
            raise told_to_learner(f"Slurm started no server for you: {error}") from error
        finally:
            starting.cancel()

    async def query_job_status(self):
        """As of every spawner of batchspawner.  Raises HTTPError if waiting is of no use."""
        status = await super().query_job_status()
        reason = self.job_status.split(" ", 2)[-1]
        if status == JobStatus.PENDING and (why := refusal(self.job_id, reason)):
            await self.cancel_batch_job()
            raise told_to_learner(why)
        return status


class JobPort(BatchSpawnerAPIHandler):
    """Where a job tells its server's port, and nothing else: batchspawner sets every attribute of a
    spawner that it is told, such as the command that the hub runs as root."""

    @web.authenticated
    async def post(self):
        """Take a port, {"port": 12345}, from the job that has the spawner's token."""
        told_port(self.get_json_body())
        super().post()


def told_port(said) -> int:
    """The port in a job's message.  Raises HTTPError for any other message."""
    port = said.get("port") if isinstance(said, dict) else None
    if type(port) is not int or not 1024 <= port < 65536 or len(said) > 1:
        raise web.HTTPError(400, "a job tells its port, and nothing else")
    return port


async def hand_out(spawner):
    """Make a learner's copies of the notebooks, as that learner; who has the page open reads why
    not, if not."""
    learner = pwd.getpwnam(spawner.user.name)
    copying = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "course.classroom.workbook", f"{learner.pw_dir}/{WORKBOOK}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd="/",
        env={"PATH": os.defpath} | spawner.environment | {"HOME": learner.pw_dir}, umask=0o077,
        user=learner.pw_uid, group=learner.pw_gid,
        extra_groups=os.getgrouplist(learner.pw_name, learner.pw_gid),
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(copying.communicate(), COPYING_S)
    except TimeoutError:
        copying.kill()
        with contextlib.suppress(TimeoutError):  # it may hang where nothing can end it
            await asyncio.wait_for(copying.wait(), LOOK_S)
        why = f"copying took more than {COPYING_S:g} s: does {learner.pw_dir} answer?"
        raise told_to_learner(why) from None
    if copying.returncode:
        why = said.decode(errors="replace").strip()
        raise told_to_learner(f"{why}.  Make room in your home, or ask who administers it.")


def told_to_learner(sentence: str) -> web.HTTPError:
    """An error whose sentence is shown by every page of the hub."""
    trouble = web.HTTPError(500, sentence)
    trouble.jupyterhub_message = sentence  # on a page that waits
    return trouble
