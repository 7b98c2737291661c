"""Exercises of notebook 25: how often to save, from a number and from a log, a save that may be cut
off at any moment, what a checkpoint holds, random numbers that were not saved."""

import math
import tempfile
from pathlib import Path

import torch
from torch import nn

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close
from course.classroom.problems import Exercise, Wrong
from course.classroom.restarts import Momentum
from course.cluster.failover import Alike, Checkpoints, Model, RandomNumbers, Residuals
from course.parallel.data import DataParallel
from course.parallel.data.compression import OneBit

NODES, NODE_H, SAVE_S = 512, 2 * 8760, 90
OLD, NEW = "the old checkpoint", "the new checkpoint"
SEEDS = 11, 12, 13  # of a process, of the rank's weights, of another process


def check_young_minutes(answer):
    got = number(answer)
    root = lambda save, mtbf: math.sqrt(2 * save * mtbf)  # noqa: E731
    mtbf_s = 3600 * NODE_H / NODES
    right = root(SAVE_S, mtbf_s) / 60
    slips = {
        root(SAVE_S, 3600 * NODE_H) / 60: "that is for one node: of 512 one fails 512 times as "
        "often.",
        root(SAVE_S, mtbf_s / 4) / 60: "a node fails once in 2 years, not twice a year.",
        root(SAVE_S, mtbf_s / 2) / 60: "a factor of 2 is missing under the root, or in the years.",
        60 * right: "that is in seconds: minutes were asked for.",
        right / 60: "that is in hours: minutes were asked for.",
        root(SAVE_S / 60, mtbf_s / 3600): "minutes and hours stand under one root: take seconds.",
        mtbf_s / 60: "that is the MTBF of the job: with a save as rare as that, little is safe.",
        mtbf_s / 3600: "that is the MTBF of the job in hours: put it into the square root.",
    }
    for slip, sentence in slips.items():
        if abs(got / slip - 1) < 0.004:
            raise Wrong(sentence)
    if abs(got / right - 1) > 0.02:
        raise Wrong("that is another number: first the MTBF of the job, in seconds, then the root.")
    return f"the job fails every {mtbf_s / 3600:.1f} hours, and saves every {right:.0f} minutes."


def interval_from_log(failures_h, watched_h, watched_nodes, nodes, save_s):
    """Seconds of work between two saves of the job: its MTBF from what was watched, then Young."""
    node_mtbf_h = watched_h * watched_nodes / len(failures_h)
    return math.sqrt(2 * save_s * 3600 * node_mtbf_h / nodes)


LOGS = (
    ([100.0, 250.0, 700.0, 900.0], 1000.0, 16, 16, 60.0),
    ([100.0, 250.0, 700.0, 900.0], 1000.0, 16, 200, 60.0),
    ([30.0], 2000.0, 4, 32, 20.0),
    ([5.0, 6.0, 9.0], 720.0, 64, 8, 120.0),
)


def check_interval_from_log(answer):
    for failures, hours, watched, nodes, save_s in LOGS:
        got = number(function(answer)(list(failures), hours, watched, nodes, save_s))
        right = interval_from_log(failures, hours, watched, nodes, save_s)
        if not right - 1.01 * save_s <= got <= 1.001 * right:  # Daly's is a save shorter
            where = f"{len(failures)} failures in {hours:g} h on {watched} nodes, job of {nodes}: "
            _refuse_interval(got, where, (failures, hours, watched, nodes, save_s), right)
    return "failures for each node and hour are what a log knows, whatever the number of nodes."


def _refuse_interval(got, where, case, right):
    """Say which MTBF was taken instead."""
    failures, hours, watched, nodes, save_s = case
    gaps = (failures[-1] - failures[0]) / max(1, len(failures) - 1)
    slips = [
        (nodes / watched, f"what has a log of {watched} nodes to do with a job of {nodes}?"),
        (1 / watched, f"the log is of {watched} nodes together: one of them fails less often."),
        (nodes, f"a job of {nodes} nodes fails more often than one node."),
        ((nodes / watched) ** 2, "more nodes fail more often, not less."),
    ]
    for factor, sentence in slips:
        if close(got, right * math.sqrt(factor), 1e-3):
            raise Wrong(where + sentence)
    for mtbf_h in (gaps, failures[-1] / len(failures)):
        if close(got, right * math.sqrt(mtbf_h * len(failures) / hours), 1e-3):
            raise Wrong(where + "the hours after the last failure were watched too: the MTBF is "
                        "all the hours / failures.")  # fmt: skip
    for factor, unit in ((1 / 60, "minutes or in mixed units"), (1 / 3600, "hours")):
        if close(got, right * factor, 1e-3):
            raise Wrong(f"{where}that is in {unit}: seconds were asked for.")
    if close(got, right / math.sqrt(2), 1e-3):
        raise Wrong(where + "a factor of 2 is missing under the root.")
    raise Wrong(f"{where}{got:.5g} s is not right: find the MTBF of a node, of the job, the root.")


class CutDisk:
    """A disk that notes what it would hold if power failed within or after each call: file -> text,
    and what was written without a sync is cut short."""

    def __init__(self, files):
        self.files, self.synced = dict(files), set(files)
        self.moments, self.written = [], 0

    def write(self, name, data):
        """Write a whole file, over what it may have held."""
        self.files[name], self.written = data, self.written + 1
        self.synced.discard(name)
        self._note(f"within write({name!r})")

    def sync(self, name):
        """Return when a file is on the disk for good."""
        self._require(name)
        self.synced.add(name)
        self._note(f"after sync({name!r})")

    def rename(self, old, new):
        """Give a file another name; what has that name is replaced."""
        self._require(old)
        whole = old in self.synced
        self.files[new] = self.files.pop(old)
        self.synced -= {old, new}
        self.synced |= {new} if whole else set()
        self._note(f"after rename({old!r}, {new!r})")

    def remove(self, name):
        """Remove a file."""
        self._require(name)
        del self.files[name]
        self.synced.discard(name)
        self._note(f"after remove({name!r})")

    def _require(self, name):
        if name not in self.files:
            raise Wrong(f"there is no file {name!r} then, only {', '.join(self.files) or 'none'}.")

    def _note(self, when):
        left = {name: data if name in self.synced else data[: len(data) // 2]
                for name, data in self.files.items()}  # fmt: skip
        self.moments.append((when, left.get("last")))


def save_safely(disk, data):
    """Replace the checkpoint "last" by `data`."""
    disk.write("last.unfinished", data)
    disk.sync("last.unfinished")
    disk.rename("last.unfinished", "last")


def check_save_safely(answer):
    for others in ({}, {"last.unfinished": "of an earlier save that was cut off"}):
        disk = CutDisk({"last": OLD} | others)
        function(answer)(disk, NEW)
        if not disk.moments:
            raise Wrong("nothing was written.")
        for when, last in disk.moments:
            if last is None:
                raise Wrong(f'if power fails {when}, there is no "last" at all.')
            if last not in (OLD, NEW):
                raise Wrong(f'if power fails {when}, "last" is cut short.')
        if disk.files["last"] != NEW:
            raise Wrong('in the end "last" is still the old checkpoint.')
        if left := set(disk.files) - {"last"} - set(others):
            raise Wrong(f"{', '.join(sorted(left))} is left behind.")
        if disk.written > 1:
            raise Wrong(f"the checkpoint is written {disk.written} times, and once is enough.")
    return "at any moment there is a whole checkpoint."


# What a checkpoint holds


class Trained:
    """A data parallel training with all that may be forgotten."""

    def __init__(self, comm):
        torch.manual_seed(SEEDS[1])
        layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3)
        self.hook = OneBit()
        self.net = DataParallel(nn.Sequential(*layers).double(), comm, hook=self.hook)
        self.momentum = Momentum(self.net.parameters(), rate=0.02)
        torch.manual_seed(100 + comm.rank)

    def steps(self, count):
        for _ in range(count):
            x = torch.randn(7, 6, dtype=torch.float64)  # of the rank's own random numbers
            (self.net(x) - x[:, :3]).square().mean().backward()
            self.momentum.step()

    def state(self) -> dict:
        """What a checkpoint has to bring back, as lists of tensors."""
        kept = self.hook.state_dict(self.net.module)
        tensors = [x for kind in kept.values() for _, x in sorted(kind.items())]
        found = {"the weights": list(self.net.module.parameters()),
                 "the running means and variances of batch normalisation":
                     [*self.net.module.buffers()],
                 "the velocity": self.momentum.velocity,
                 "the residuals of compression": tensors,
                 "the random numbers": [torch.get_rng_state()]}  # fmt: skip
        return {name: [x.detach().clone() for x in tensors] for name, tensors in found.items()}


def whole_training(net, hook, momentum):
    """The parts {name: part} of a checkpoint."""
    return {"model": Model(net), "momentum": Alike(momentum), "random": RandomNumbers(),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def stop_and_go_on(comm, answer, folder) -> tuple | str:
    """Which states of this rank are others after a restart, how many bytes the files have, and
    those of the right answer; or what is wrong with the parts."""
    found = []
    for name, parts_of in (("theirs", answer), ("right", whole_training)):
        path = Path(folder, name)
        torch.manual_seed(SEEDS[0])
        first = Trained(comm)
        first.steps(3)
        parts = parts_of(first.net, first.hook, first.momentum)
        if not isinstance(parts, dict) or not parts:
            return f"a dictionary {{name: part}} is wanted, not {parts!r:.40}."
        with Checkpoints(comm, path, every=1, asynchronous=False) as checkpoints:
            checkpoints.save(3, parts)
            expected = first.state()
            again = Trained(comm)
            torch.manual_seed(SEEDS[2] + comm.rank)
            again.steps(1)
            checkpoints.restore(parts_of(again.net, again.hook, again.momentum))
        comm.barrier()
        got = again.state()
        others = [name for name in expected if not _same(expected[name], got[name])]
        sizes = sum(file.stat().st_size for file in path.rglob("*.pt"))
        found.append((others, sizes))
    return found[0][0], found[0][1], found[1][1]


def _same(mine, theirs) -> bool:
    return len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))


def check_whole_training(answer):
    with tempfile.TemporaryDirectory() as folder:
        told, _ = on_ranks(stop_and_go_on, 2, function(answer), folder)
    if isinstance(told[0], str):
        raise Wrong(told[0])
    for rank, (others, mine, right) in enumerate(told):
        if others:
            raise Wrong(f"after a restart rank {rank} does not have {', nor '.join(others)}.")
        if mine > right + 200:
            raise Wrong(f"all is there, in files of {mine} bytes where {right} are enough: what "
                        "all ranks have alike is written once, by Alike.")  # fmt: skip
    return "every rank goes on as if nothing had been."


# Find the bug


class Task:
    """Steps of a network with dropout, with a velocity; `masks` says which inputs each step left
    in."""

    def __init__(self):
        generator = torch.Generator().manual_seed(SEEDS[1])
        self.x = torch.randn(40, 12, generator=generator, dtype=torch.float64)
        self.w = torch.randn(12, generator=generator, dtype=torch.float64, requires_grad=True)
        self.momentum, self.masks = Momentum([self.w], rate=0.01), []

    def step(self):
        """The loss of a step."""
        mask = (torch.rand(12) < 0.5).double()
        self.masks.append(tuple(mask.tolist()))
        loss = (self.x @ (self.w * mask) - self.x.sum(1)).square().mean()
        loss.backward()
        self.momentum.step()
        return loss.item()

    def state_dict(self):
        return {"w": self.w.detach().clone()} | self.momentum.state_dict()

    def load_state_dict(self, state):
        with torch.no_grad():
            self.w.copy_(state["w"])
        self.momentum.load_state_dict(state)


def train_on(task, file, steps):
    """The losses of the steps that were still to be taken."""
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
        torch.set_rng_state(saved["random"])
    losses = [task.step() for _ in range(done, steps)]
    torch.save({"done": steps, "task": task.state_dict(), "random": torch.get_rng_state()}, file)
    return losses


def train_on_with_the_bug(task, file, steps):
    """The losses of the steps that were still to be taken."""
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
    losses = [task.step() for _ in range(done, steps)]
    torch.save({"done": steps, "task": task.state_dict()}, file)
    return losses


def check_train_on(answer):
    for stops in ((4, 10), (5, 7, 10), (1, 10)):
        with tempfile.TemporaryDirectory() as folder:
            whole, masks = _in_new_processes(answer, Path(folder, "whole"), (10,), SEEDS[0])
            parts, other = _in_new_processes(answer, Path(folder, "parts"), stops, SEEDS[2])
        where = f"10 steps, stopped after {', '.join(map(str, stops[:-1]))}:"
        if len(whole) != 10 or len(parts) != 10:
            raise Wrong(f"{where} {len(parts)} losses came back in all, and there are 10 steps.")
        if len(set(masks)) < 9:
            raise Wrong("steps draw the same random numbers, also where nothing was stopped.")
        if parts != whole:
            _refuse_losses(where, whole, parts, masks, other, stops[0])
    return "stopped or not, the losses are the same to the last bit."


def _in_new_processes(answer, file, stops, seed) -> tuple:
    """All losses and masks of a training that is stopped and begun again, each time as a new
    process would: the first is seeded as all are, the others by chance."""
    losses, masks = [], []
    for number_of_start, steps in enumerate(stops):
        torch.manual_seed(SEEDS[0] if number_of_start == 0 else seed + number_of_start)
        task = Task()
        got = function(answer)(task, file, steps)
        if not isinstance(got, list | tuple):
            raise Wrong(f"a list of losses is wanted, not {got!r:.40}.")
        losses, masks = [*losses, *got], [*masks, *task.masks]
    return losses, masks


def _refuse_losses(where, whole, parts, masks, other, stop):
    """Say what went on otherwise after the first stop."""
    step = next(k for k, (a, b) in enumerate(zip(whole, parts)) if a != b)
    if other[stop] == masks[0]:
        raise Wrong(f"{where} step {stop + 1} draws the numbers that step 1 has drawn: what has to "
                    "be saved is where the generator is at the end.")  # fmt: skip
    if other == masks:
        raise Wrong(f"{where} random numbers are right, and the losses from step {step + 1} on "
                    "are not: what else was there?")  # fmt: skip
    raise Wrong(f"{where} from step {step + 1} on the losses are others, since other random "
                "numbers are drawn.")  # fmt: skip


EXERCISES = [
    Exercise(
        "young_minutes",
        "512 nodes fail once in 2 years each, a save takes 90 seconds: how many minutes of work "
        "between two saves does Young's formula say?",
        check_young_minutes,
        (
            "the MTBF of the job is that of a node / 512.",
            "a node: 2 * 8760 hours. The job: 34.2 hours, in seconds 123188.",
            "sqrt(2 * 90 * 123188) seconds",
        ),
        "the job fails every 2 * 8760 / 512 = 34.22 hours = 123188 s; "
        "sqrt(2 * 90 * 123188) = 4709 s = 78.5 minutes.",
    ),
    Exercise(
        "interval_from_log",
        "write interval_from_log(failures_h, watched_h, watched_nodes, nodes, save_s): seconds of "
        "work between two saves of a job of `nodes`, if `watched_nodes` such nodes have failed at "
        "the hours `failures_h` while they were watched for `watched_h` hours.",
        check_interval_from_log,
        (
            "watched_h * watched_nodes hours of nodes were watched, with len(failures_h) failures.",
            "the MTBF of a node is the one / the other; the job's is that / nodes.",
            "sqrt(2 * save_s * MTBF of the job in seconds)",
        ),
        interval_from_log,
    ),
    Exercise(
        "save_safely",
        'write save_safely(disk, data): replace the file "last" by data with disk.write, '
        'disk.sync, disk.rename and disk.remove, so that "last" is whole if power fails at '
        "any moment.",
        check_save_safely,
        (
            'write("last", ...) destroys the old checkpoint before the new one is there.',
            "give the new one another name first; rename replaces at once.",
            "a file that gets its name before it was synced may be cut short.",
        ),
        save_safely,
    ),
    Exercise(
        "whole_training",
        "write whole_training(net, hook, momentum): the parts {name: part} of a checkpoint that "
        "brings back everything, with what all ranks have alike written once.",
        check_whole_training,
        (
            "five things change: weights, buffers, velocity, residuals, random numbers.",
            "Model(net) has weights and each rank's buffers; the velocity is alike on all ranks.",
            "the random numbers are each rank's own, and so are Residuals(hook, net.module).",
        ),
        whole_training,
    ),
    Exercise(
        "train_on",
        "find the bug in train_on(task, file, steps), whose losses after a restart are not those "
        "of a training in one go, and repair it.",
        check_train_on,
        (
            "task.step() draws its dropout from torch's generator, which is no part of the task.",
            "torch.get_rng_state() says where the generator is; torch.set_rng_state takes it back.",
            "save the state as it is after the last step, and set it after loading.",
        ),
        train_on,
        given=train_on_with_the_bug,
    ),
]
