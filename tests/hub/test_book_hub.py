"""`hub/book_hub.py`: what a site says becomes JupyterHub's configuration, or a sentence."""

import asyncio
import getpass
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from traitlets.config import Config

pytest.importorskip("batchspawner", reason="no hub is installed here: `make hub-test` does that")

HUB = Path(__file__).parents[2] / "hub"
sys.path.append(str(HUB))
import book_hub  # noqa: E402


@pytest.fixture(autouse=True)
def proxy(monkeypatch, tmp_path):
    """A proxy is installed."""
    monkeypatch.setattr(book_hub, "PROXY", tmp_path / "proxy")
    book_hub.PROXY.touch()
    for program in ("sbatch", "runuser"):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def configured(tmp_path):
    def configure(kind="login", **settings):
        c = Config()
        book_hub.configure(c, kind=kind, state=tmp_path / "state", **settings)
        return c

    return configure


def test_kernels_have_no_ports_and_idle_servers_end(configured):
    options = configured(idle_minutes=20).Spawner.args
    assert "--KernelManager.transport=ipc" in options
    assert "--ServerApp.shutdown_no_activity_timeout=1200" in options
    assert "--MappingKernelManager.cull_idle_timeout=1200" in options


def test_a_server_on_a_crowded_machine_may_take_minutes_to_answer(configured):
    c = configured()
    assert c.Spawner.http_timeout == c.Spawner.start_timeout == 180


def test_what_the_hub_keeps_is_for_its_user_alone(configured, tmp_path):
    c = configured()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert c.JupyterHub.db_url.startswith(f"sqlite:///{tmp_path}/state/")
    assert c.JupyterHub.cookie_secret_file.startswith(f"{tmp_path}/state/")


def test_cells_that_name_no_partition_get_the_site_s(configured, tmp_path):
    c = configured(partition="gpu", account="course", data=tmp_path, environment={"OMP": 2})
    found = {key: value for key, value in c.Spawner.environment.items() if key != "SLURM_CONF"}
    assert found == {"SLURM_PARTITION": "gpu", "SLURM_ACCOUNT": "course", "OMP": "2",
                     "COURSE_DATA": str(tmp_path)}  # fmt: skip
    assert c.Spawner.ip == c.JupyterHub.hub_ip == "127.0.0.1"


def test_a_server_in_a_job_asks_for_what_the_site_says(configured):
    image = ("apptainer", "exec", "/images/a b.sif")
    c = configured("job", address="10.0.0.1", partition="gpu", account="course",
                   request=("--mem=8G",), prologue="module load cuda", image=image)  # fmt: skip
    job = c.JobSpawner
    wanted = "#SBATCH --mem=8G\n#SBATCH --partition=gpu\n#SBATCH --account=course"
    assert job.req_options == wanted and job.req_prologue == "module load cuda"
    assert "learner.py apptainer exec '/images/a b.sif' " in job.batchspawner_singleuser_cmd
    assert "/runuser -u {username} -- sh -c 'umask 077; " in job.exec_prefix
    assert c.JupyterHub.hub_ip == "10.0.0.1"


def test_only_a_port_is_taken_from_a_job(configured):
    configured("job", address="10.0.0.1")
    at = [handler for path, handler in book_hub.default_handlers if path == "/api/batchspawner"]
    assert at == [book_hub.JobPort]
    assert book_hub.told_port({"port": 12345}) == 12345
    for said in (None, [], "port", {}, {"port": "12345"}, {"port": True}, {"port": 80},
                 {"port": 12345, "exec_prefix": "touch /here"}, {"exec_prefix": "x"}):  # fmt: skip
        with pytest.raises(book_hub.web.HTTPError, match="its port, and nothing else"):
            book_hub.told_port(said)


@pytest.mark.parametrize("reason, sentence", [
    ("PartitionDown", "job 17 cannot start: its partition is down"),
    ("PartitionTimeLimit", "job 17 cannot start: its partition allows less time"),
    ("Job's account not known, so it can't use this partition", "its account or quality of"),
])  # fmt: skip
def test_who_waits_for_a_job_that_cannot_start_is_told(configured, reason, sentence):
    asked = []

    async def answer(command, *_, **__):
        asked.append(command)
        return f"PENDING n/a {reason}" if "squeue" in command else ""

    spawner = book_hub.JobSpawner(config=configured("job", address="10.0.0.1"))
    spawner.job_id, spawner.run_command = "17", answer
    spawner.req_username = spawner.req_homedir = spawner.req_keepvars = "ann"
    with pytest.raises(book_hub.web.HTTPError, match=sentence):
        asyncio.run(spawner.query_job_status())
    assert "runuser -u ann -- " in asked[-1] and asked[-1].endswith(" scancel 17")
    reason = "Resources"
    assert asyncio.run(spawner.query_job_status()) == book_hub.JobStatus.PENDING


@pytest.mark.parametrize("jobs, sentence", [
    (["RUNNING n1 None", ""], "Slurm started no server for you: its job has ended; ~/.course-hub"),
    (["sbatch: error: Invalid account"], "Slurm started no server for you: sbatch: error: Inv"),
])  # fmt: skip
def test_who_waits_for_a_job_that_has_ended_is_told(configured, monkeypatch, jobs, sentence):
    """Until the time to start was over, and without a reason."""

    async def answer(command, *_, **__):
        if "sbatch" not in command:
            return jobs.pop(0) if len(jobs) > 1 else jobs[0]
        if "error" in jobs[0]:
            raise RuntimeError(jobs[0])
        return "17"

    monkeypatch.setattr(book_hub, "LOOK_S", 0.01)
    spawner = book_hub.JobSpawner(config=configured("job", address="10.0.0.1"))
    monkeypatch.setattr(spawner, "get_env", dict)
    monkeypatch.setattr(spawner, "cmd_formatted_for_batch", str)
    spawner.run_command = answer
    spawner.req_username = spawner.req_homedir = spawner.req_keepvars = "ann"
    with pytest.raises(book_hub.web.HTTPError, match=sentence):
        asyncio.run(spawner.start())


def test_who_has_a_home_that_does_not_answer_is_told(monkeypatch):
    """And gets no server, which would not come up either."""
    monkeypatch.setattr(book_hub, "COPYING_S", 0.0)
    spawner = SimpleNamespace(user=SimpleNamespace(name=getpass.getuser()), environment={})
    with pytest.raises(book_hub.web.HTTPError, match="copying took more than 0 s: does .* answer"):
        asyncio.run(book_hub.hand_out(spawner))


def test_what_cannot_be_is_told_in_a_sentence(configured, tmp_path):
    with pytest.raises(ValueError, match='kind is "login" or "job", not \'slurm\''):
        configured("slurm")
    with pytest.raises(ValueError, match="data names a folder with staged data; /no/where is none"):
        configured(data="/no/where")
    (tmp_path / "sbatch").unlink()
    if not Path("/usr/sbin/sbatch").exists():
        with pytest.raises(ValueError, match='kind="job" needs sbatch, which is not on this'):
            configured("job", address="10.0.0.1")
    book_hub.PROXY.unlink()
    with pytest.raises(ValueError, match="proxy is not installed .*: run `make hub` first"):
        configured()
