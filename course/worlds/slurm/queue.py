"""What Slurm says of a job: its place in the queue, and why it does not start."""

import re
import subprocess

ANSWER_S = 20.0
ANOTHER = "name another partition, there are: {partitions}"
# Reasons that do not pass by waiting, and what to do about each.
FINAL = {
    "PartitionDown": ("its partition is down", ANOTHER),
    "PartitionInactive": ("its partition is inactive", ANOTHER),
    "PartitionTimeLimit": ("its partition allows less time", f"ask for less, or {ANOTHER}"),
    "PartitionConfig": ("its partition has not so many nodes, or no such ones", ANOTHER),
    "PartitionNodeLimit": ("its partition allows fewer nodes", f"ask for fewer, or {ANOTHER}"),
    "BadConstraints": ("no node is as it asks for", "`sinfo --Node --long` shows what there is"),
    "AccountNotAllowed": ("its account may not use this partition", ANOTHER),
    "InvalidAccount": ("its account is not known", "name one of yours"),
    "InvalidQOS": ("its quality of service is not known", "name one of yours"),
    "JobHeldUser": ("its user holds it", "ask for it without --hold"),
    "JobHeldAdmin": ("an administrator holds it", "ask who looks after the cluster"),
}
NOT_ALLOWED = "use this partition"  # ends the first half of each sentence of Slurm about that
# What to do about what srun says; the first that fits counts.
ADVICE = {
    "nvalid partition": "there are: {partitions}",
    "nvalid account": 'name one of yours, slurm(account="...")',
    "TIME LIMIT": 'ask for more time, slurm(time="01:00:00"), and inside a job for a longer job',
    "ode failure": "the next run asks for other nodes; `sinfo --list-reasons` says more",
    ": Killed": 'was memory short? ask for more, slurm(options=("--mem=16G",))',
    ": Exited with": "the course's own program has failed there: tell the authors",
    "CANCELLED AT": "somebody has ended the job, as by scancel: the next run asks for another",
    "start munged": "munge, which tells Slurm who asks, does not run on this machine",
    "contact slurm controller": "wait, or ask who looks after it",
    "asked for": "the job around this process must have as many nodes: ask for it with --nodes=...",
    "More processors": "the job around this process has fewer cores: ask for it with more",
    NOT_ALLOWED: "name another, slurm(partition=...); there are: {partitions}",
}
NOISE = re.compile(
    "queued and waiting|allocated resources|launch/slurm|Force Terminated Step|Job step aborted|"
    "Srun communication|up, restart|slurm_send_node_msg"
)


def ask(*command: str) -> str:
    """What a program of Slurm prints; nothing if it is not there or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def waiting(name: str) -> tuple:
    """(number, state, reason) of the job of this name; ("", "", "") if there is none."""
    said = ask("squeue", "--noheader", f"--name={name}", "--format=%i|%T|%r").partition("\n")[0]
    return tuple(said.split("|", 2)) if said.count("|") >= 2 else ("", "", "")


def sentence(job: str, reason: str) -> str:
    """Where a job stands, for who waits."""
    more = f"`squeue --start --job={job}` says when it may start"
    return f"job {job} waits in Slurm's queue ({reason}); {more}"


def refusal(job: str, reason: str):
    """Why waiting for a job is of no use, and what to do; None if it is."""
    why, advice = FINAL.get(reason.strip("()"), ("", ANOTHER))
    if NOT_ALLOWED in reason:
        why = "its account or quality of service may not use its partition"
    if not why:
        return None
    advice = advice.format(partitions=partitions())
    return f"job {job} cannot start: {why} ({reason}); {advice}"


def said(lines) -> str:
    """What srun has said of errors, in one sentence, and what to do about it."""
    words = [line.removeprefix("srun: ").removeprefix("error: ").strip() for line in lines]
    found = "; ".join(dict.fromkeys(each for each in words if each and not NOISE.search(each)))
    for known, advice in ADVICE.items():
        if known in found:
            return f"{found} ({advice.format(partitions=partitions())})"
    return found


def partitions() -> str:
    """The partitions there are, in words, with the state of those that are not up."""
    states = dict(
        line.split() for line in ask("sinfo", "--noheader", "--format=%R %a").splitlines()
    )
    named = (name + f" ({state})" * (state != "up") for name, state in sorted(states.items()))
    return ", ".join(named) or "none"
