"""Learners with accounts of this machine, and what is theirs on it."""

import os
import pwd
import secrets
import subprocess
from pathlib import Path

import psutil

SHARED = "/tmp", "/var/tmp", "/dev/shm", "/run"
HANDED_TO_NEW_USERS = Path("/etc/skel")


def remove(learners):
    """Their accounts, homes, and what may still be there of a test that failed."""
    for process in (process for learner in learners for process in learner.processes()):
        process.kill()
    theirs = [word for learner in learners for word in ("-o", "-user", learner.name)][1:]
    if theirs:
        find = ["find", *SHARED, "-xdev", "(", *theirs, ")", "-delete"]
        subprocess.run(find, capture_output=True)
    for learner in learners:
        subprocess.run(["userdel", "--force", "--remove", learner.name], capture_output=True)


class Learner:
    """An account with a random name and a password, whose home others may enter and read: what is
    private in it must be so by itself."""

    def __init__(self, homes: Path):
        self.name, self.password = f"learner{secrets.token_hex(4)}", secrets.token_hex(12)
        self.home = homes / self.name
        add = ["useradd", "--create-home", "--shell=/bin/bash", f"--home-dir={self.home}"]
        subprocess.run([*add, self.name], check=True, capture_output=True)
        self.home.chmod(0o755)
        known = f"{self.name}:{self.password}"
        subprocess.run(["chpasswd"], input=known, text=True, check=True, capture_output=True)
        account = pwd.getpwnam(self.name)
        self.uid, self.gid = account.pw_uid, account.pw_gid

    def processes(self) -> list:
        """All that run as this learner; what may end at any time is asked at once, for `info`."""
        every = psutil.process_iter(["uids", "status", "cmdline", "environ"])
        mine = [each for each in every if each.info["uids"] and each.info["uids"].real == self.uid]
        return [each for each in mine if each.info["status"] != psutil.STATUS_ZOMBIE]

    def files_outside(self) -> list:
        """What this learner has in folders that all share."""
        find = ["find", *SHARED, "-xdev", "-user", self.name, "-not", "-path", f"{self.home}*"]
        return subprocess.run(find, capture_output=True, text=True).stdout.split()

    def files(self) -> list:
        """All in the home that did not come with it."""
        given = {HANDED_TO_NEW_USERS / name for name in os.listdir(HANDED_TO_NEW_USERS)}
        skip = {self.home / path.name for path in given}
        return [path for path in self.home.rglob("*") if path not in skip and path.is_file()]

    def run(self, *command, **options):
        """A program as this learner, as if from a shell on this machine."""
        account = pwd.getpwnam(self.name)
        plain = {"HOME": str(self.home), "PATH": os.environ["PATH"], "USER": self.name}
        options["env"] = plain | options.get("env", {})
        return subprocess.run(
            command, user=account.pw_uid, group=account.pw_gid, extra_groups=[], cwd=self.home,
            capture_output=True, text=True, **options,
        )  # fmt: skip
