"""From nothing to three learners in their browsers, and back to nothing, on both kinds of hub."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from tests.browser.test_sliders import chromium, needs_browser
from tests.hub.browser import Desk
from tests.hub.intrusion import commands_of, pages_of, reached, secrets_of, things_of
from tests.hub.site import Hub, until

NOTEBOOK, FIRST_PART, EXERCISE, OWN = "09_collectives.ipynb", 5, 43, 45
IN_A_HOME = {
    ".bash_history", ".cache", ".config", ".course-hub.log", ".ipython", ".jupyter", ".local",
    ".signals", "course-workbook",
}  # fmt: skip
WHERE = """
import pathlib, socket
from course.worlds import slurm

def where(comm):
    x = torch.ones(1)
    collectives.all_reduce(comm, x)
    return comm.node, socket.gethostname(), x.item()

print(run(where, 4, on=slurm(nodes=2)), os.environ["COURSE_DATA"])
"""
WORK = """
def work(comm, signals):
    (signals / f"begun-{comm.rank}").touch()
    while not (signals / "enough").exists():
        time.sleep(0.1)
    return "worked enough"

run(work, 4, pathlib.Path.home() / ".signals", on=slurm(nodes=2), timeout=None)
"""
# A page that gave its scripts up, after seven seconds, said for ever that a server was starting.
PATIENCE_WITH_SCRIPTS_S = "return requirejs.s.contexts._.config.waitSeconds"

pytestmark = [needs_browser, pytest.mark.timeout(1200)]


@contextmanager
def desks_of(learners, hub, folder):
    """Learners, each before a browser."""
    with ExitStack() as browsers:
        made = []
        for learner in learners:
            own = folder / learner.name
            own.mkdir()
            made.append(Desk(browsers.enter_context(chromium(own)), hub, learner))
        yield made


def together(do, *things):
    """What `do` returns for each, done at the same time."""
    with ThreadPoolExecutor(len(things)) as pool:
        return list(pool.map(do, things))


def work_through(desk, answer):
    """Log in, open the notebook, run its first part, answer an exercise, run over two nodes."""
    desk.log_in(NOTEBOOK)
    desk.open()
    desk.run(FIRST_PART, "notebook:run-all-above")
    desk.write(EXERCISE, f'print(check("broadcast_steps", {answer}))')
    desk.run(EXERCISE)
    desk.write(OWN, WHERE)
    shown = desk.run(OWN)
    assert desk.errors() == []
    assert "[(0, 'n1', 4.0), (0, 'n1', 4.0), (1, 'n2', 4.0), (1, 'n2', 4.0)]" in shown
    assert "course-data-" in shown


def leave_working(desk):
    """Begin a run that does not end by itself, and wait until all its ranks are in it."""
    signals = desk.learner.home / ".signals"
    desk.learner.run("mkdir", "-p", signals)
    desk.write(OWN, WORK)
    desk.begin(OWN)
    assert until(lambda: len(list(signals.glob("begun-*"))) == 4), desk.outputs()


def agents(learner):
    """What a learner has on the nodes of runs."""
    running = [(each, " ".join(each.info["cmdline"] or [])) for each in learner.processes()]
    return [each for each, command in running if "slurm/agent.py" in command]


def jobs(hub, learner):
    return hub.box.ask("squeue", "--noheader", f"--user={learner.name}", "--format=%j").split()


def nodes_are_given_back(hub, learner):
    left = {"course-hub"} if hub.kind == "job" else set()
    return not agents(learner) and set(jobs(hub, learner)) == left


def interrupt(desk):
    desk.command("kernelmenu:interrupt")
    desk.ended()
    assert any("KeyboardInterrupt" in json.dumps(each) for each in desk.outputs(OWN, OWN + 1))
    assert until(lambda: nodes_are_given_back(desk.hub, desk.learner))
    desk.stop_server()


def restart(desk):
    desk.command("kernelmenu:restart")
    desk.accept()
    assert until(lambda: nodes_are_given_back(desk.hub, desk.learner))
    desk.write(OWN, "6 * 7")
    assert "42" in desk.run(OWN)
    desk.stop_server()


def close_the_laptop(desk):
    desk.page.quit()
    (desk.learner.home / ".signals" / "enough").touch()


def ledger(learner):
    """What a learner has solved, by its own file."""
    file = learner.home / ".local" / "share" / "course" / "progress.json"
    return json.loads(file.read_text())["exercises"]["broadcast_steps"]["right"]


def a_full_home_is_told(learner, desk):
    """On the page, to who has it; then there is room again."""
    full = f"size=16k,uid={learner.uid},gid={learner.gid},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", full, "none", learner.home], check=True)
    try:
        with pytest.raises(AssertionError, match="No space left on device.*Make room in your home"):
            Desk(desk.page, desk.hub, learner).log_in(NOTEBOOK)
        desk.page.get(f"{desk.hub.url}/hub/logout")
        assert desk.page.execute_script(PATIENCE_WITH_SCRIPTS_S) == 0  # none ends it
    finally:
        subprocess.run(["umount", "--lazy", learner.home], check=True)


def test_three_learners_at_the_same_time(installation, box, data, learners, tmp_path):
    """On both kinds of hub at once: half of the time they wait for servers to end by themselves."""
    hubs = {Hub(kind, installation, box, data): learners[first : first + 4]
            for first, kind in ((0, "login"), (4, "job"))}  # fmt: skip
    together(lambda hub: a_day_at(hub, hubs[hub], tmp_path), *hubs)


def a_day_at(hub, learners, folder):
    """Three learners from their first login until nothing is left of them; a fourth has an account,
    and no server."""
    try:
        with hub, desks_of(learners[:3], hub, folder) as desks:
            try:
                a_day_of(*learners, hub=hub, desks=desks)
            except BaseException as error:
                error.add_note(f"the log of the hub ends:\n{hub.log()[-6000:]}")
                raise
    except BaseException as error:
        error.add_note(f'on a hub with kind="{hub.kind}"')
        raise


def a_day_of(*learners, hub, desks):
    *three, stranger = learners
    a_full_home_is_told(stranger, desks[0])
    answers = dict(zip(desks, (7, 2, 7), strict=True))
    together(lambda desk: work_through(desk, answers[desk]), *desks)
    assert [ledger(learner) for learner in three] == [True, False, True]
    together(leave_working, *desks)
    nothing_is_shown_to(stranger, hub, desks)
    together(lambda act: act[0](act[1]),
             *zip((close_the_laptop, interrupt, restart), desks[::-1], strict=True))  # fmt: skip
    assert until(lambda: not any(jobs(hub, learner) for learner in three))
    assert until(lambda: not any(learner.processes() for learner in three)), hub.log()
    for learner in three:
        assert learner.files_outside() == []
        assert {file.relative_to(learner.home).parts[0] for file in learner.files()} <= IN_A_HOME


def nothing_is_shown_to(stranger, hub, desks):
    """While all three work: no file, process, socket, page, port or secret of theirs."""
    together(lambda desk: nothing_of(desk.learner, stranger, hub), *desks)
    for desk, other in zip(desks, desks[1:] + desks[:1], strict=True):
        page = "/user/{}/api/contents"
        assert desk.status_of(page.format(desk.learner.name)) == 200
        assert desk.status_of(page.format(other.learner.name)) in (403, 404)


def nothing_of(owner, stranger, hub):
    """Is shown to a stranger."""
    secrets = secrets_of(owner)
    assert secrets and not [each for each in secrets if each in commands_of(owner)]
    together(lambda found: nothing_in(*found, owner, stranger, hub), *things_of(owner).items())
    assert reached(hub, stranger, os.getpid(), pages_of(owner, hub)) == []
    job_is_its_owner_s(stranger, hub, owner, secrets)
    if hub.kind == "job":
        hub_runs_nothing_for(owner, hub)


def nothing_in(network, things, owner, stranger, hub):
    """Of one network is reached by a stranger, though its owner reaches it."""
    for kind in ("files", "processes", "doors"):
        assert things[kind]
    own = reached(hub, owner, network, things)  # what is tried does succeed for some
    assert {line.partition(" ")[0] for line in own} >= {"file", "process"}
    assert reached(hub, stranger, network, things) == []


def hub_runs_nothing_for(learner, hub):
    """A learner has the token of a job, and the hub is root."""
    own = [process.info["environ"] or {} for process in learner.processes()]
    [token] = {here["JUPYTERHUB_API_TOKEN"] for here in own if "JUPYTERHUB_API_TOKEN" in here}
    command = json.dumps({"exec_prefix": "touch /tmp/of-the-hub; env"}).encode()
    told = urllib.request.Request(f"http://{hub.host}:{hub.hub_port}/hub/api/batchspawner", command,
                                  headers={"Authorization": f"token {token}"})  # fmt: skip
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(told)


def job_is_its_owner_s(stranger, hub, owner, secrets):
    """A stranger can neither cancel a job nor enter it, nor read a secret in it."""
    at = {"env": hub.box.environment}
    job = hub.box.ask("squeue", "--noheader", f"--user={owner.name}", "--format=%i").split()[0]
    assert "denied" in stranger.run("scancel", job, **at).stderr
    assert stranger.run("srun", "--overlap", f"--jobid={job}", "true", **at).returncode
    told = stranger.run("scontrol", "show", "job", job, **at).stdout
    assert "JobState=RUNNING" in told and not [each for each in secrets if each in told]
