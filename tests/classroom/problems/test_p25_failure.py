"""Intervals, saves, checkpoints and random numbers: answers that were really likely."""

import math

import torch

from course.classroom.problems.p25_failure import (
    interval_from_log,
    save_safely,
    train_on,
    train_on_with_the_bug,
    whole_training,
)
from course.cluster.failover import Alike, Each, Model, RandomNumbers, Residuals
from course.cluster.failover.interval import daly, optimal
from tests.classroom.gallery import Gallery, gallery_tests

# The interval


def interval_stub(failures_h, watched_h, watched_nodes, nodes, save_s):
    """Seconds of work between two saves of the job."""
    ...


def by_daly(failures_h, watched_h, watched_nodes, nodes, save_s):
    failures_an_hour = len(failures_h) / watched_h / watched_nodes * nodes
    return daly(save_s, 3600 / failures_an_hour)


def by_the_exact_minimum(failures_h, watched_h, watched_nodes, nodes, save_s):
    return optimal(save_s, 3600 * watched_h / len(failures_h) * watched_nodes / nodes)


def nodes_forgotten(failures_h, watched_h, watched_nodes, nodes, save_s):
    return math.sqrt(2 * save_s * 3600 * watched_h / len(failures_h))


def log_of_one_node(failures_h, watched_h, watched_nodes, nodes, save_s):
    return math.sqrt(2 * save_s * 3600 * watched_h / len(failures_h) / nodes)


def job_of_one_node(failures_h, watched_h, watched_nodes, nodes, save_s):
    return math.sqrt(2 * save_s * 3600 * watched_h / len(failures_h) * watched_nodes)


def more_nodes_fail_less(failures_h, watched_h, watched_nodes, nodes, save_s):
    return math.sqrt(2 * save_s * 3600 * watched_h / len(failures_h) * nodes / watched_nodes)


def mean_of_gaps(failures_h, watched_h, watched_nodes, nodes, save_s):
    gap = (failures_h[-1] - failures_h[0]) / max(1, len(failures_h) - 1)
    return math.sqrt(2 * save_s * 3600 * gap * watched_nodes / nodes)


def until_the_last_failure(failures_h, watched_h, watched_nodes, nodes, save_s):
    return interval_from_log(failures_h, failures_h[-1], watched_nodes, nodes, save_s)


def in_hours(failures_h, watched_h, watched_nodes, nodes, save_s):
    return interval_from_log(failures_h, watched_h, watched_nodes, nodes, save_s) / 3600


def in_mixed_units(failures_h, watched_h, watched_nodes, nodes, save_s):
    return math.sqrt(2 * save_s * watched_h * watched_nodes / len(failures_h) / nodes)


def without_the_two(failures_h, watched_h, watched_nodes, nodes, save_s):
    return interval_from_log(failures_h, watched_h, watched_nodes, nodes, save_s) / math.sqrt(2)


def the_mtbf(failures_h, watched_h, watched_nodes, nodes, save_s):
    return 3600 * watched_h * watched_nodes / len(failures_h) / nodes


def interval_not_returned(failures_h, watched_h, watched_nodes, nodes, save_s):
    interval_from_log(failures_h, watched_h, watched_nodes, nodes, save_s)


# The save


def save_stub(disk, data):
    """Replace the checkpoint "last" by `data`."""
    ...


def removed_what_was_left(disk, data):
    disk.write("new", data)
    disk.sync("new")
    disk.rename("new", "last")
    disk.sync("last")


def written_over(disk, data):
    disk.write("last", data)
    disk.sync("last")


def never_synced(disk, data):
    disk.write("new", data)
    disk.rename("new", "last")


def old_one_removed_first(disk, data):
    disk.write("new", data)
    disk.sync("new")
    disk.remove("last")
    disk.rename("new", "last")


def old_one_aside(disk, data):
    disk.rename("last", "before")
    disk.write("last", data)
    disk.sync("last")
    disk.remove("before")


def never_renamed(disk, data):
    disk.write("new", data)
    disk.sync("new")


def written_twice(disk, data):
    disk.write("new", data)
    disk.sync("new")
    disk.rename("new", "last")
    disk.write("backup", data)
    disk.remove("backup")


def something_left(disk, data):
    disk.write("new", data)
    disk.sync("new")
    disk.rename("new", "last")
    disk.write("backup", data)


def of_another_name(disk, data):
    disk.write("new", data)
    disk.sync("now")
    disk.rename("new", "last")


# The parts


def parts_stub(net, hook, momentum):
    """The parts {name: part} of a checkpoint."""
    ...


def in_another_order(net, hook, momentum):
    parts = {"left out": Residuals(hook, net.module), "numbers": RandomNumbers()}
    parts["velocity"] = Alike(momentum)
    parts["net"] = Model(net)
    return parts


def without_weights(net, hook, momentum):
    return {"momentum": Alike(momentum), "random": RandomNumbers(),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def without_velocity(net, hook, momentum):
    return {"model": Model(net), "random": RandomNumbers(),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def without_random_numbers(net, hook, momentum):
    return {"model": Model(net), "momentum": Alike(momentum),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def without_residuals(net, hook, momentum):
    return {"model": Model(net), "momentum": Alike(momentum), "random": RandomNumbers()}


def buffers_of_rank_0(net, hook, momentum):
    return {"model": Alike(net.module), "momentum": Alike(momentum), "random": RandomNumbers(),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def velocity_of_each(net, hook, momentum):
    return {"model": Model(net), "momentum": Each(momentum), "random": RandomNumbers(),
            "residuals": Residuals(hook, net.module)}  # fmt: skip


def a_list_of_parts(net, hook, momentum):
    return [Model(net), Alike(momentum), RandomNumbers(), Residuals(hook, net.module)]


def the_things_themselves(net, hook, momentum):
    return {"model": net, "momentum": momentum}


# The bug


def seeded_by_the_step(task, file, steps):
    """Another right way: a step's random numbers hang on its number alone."""
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
    losses = []
    for step in range(done, steps):
        torch.manual_seed(1000 + step)
        losses.append(task.step())
    torch.save({"done": steps, "task": task.state_dict()}, file)
    return losses


def seeded_at_the_start(task, file, steps):
    torch.manual_seed(0)
    return train_on_with_the_bug(task, file, steps)


def seeded_in_every_step(task, file, steps):
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
    losses = []
    for _ in range(done, steps):
        torch.manual_seed(0)
        losses.append(task.step())
    torch.save({"done": steps, "task": task.state_dict()}, file)
    return losses


def seeded_after_loading(task, file, steps):
    if file.exists():
        torch.manual_seed(7)
    return train_on_with_the_bug(task, file, steps)


def saved_too_early(task, file, steps):
    done, random = 0, torch.get_rng_state()
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
        torch.set_rng_state(saved["random"])
    losses = [task.step() for _ in range(done, steps)]
    torch.save({"done": steps, "task": task.state_dict(), "random": random}, file)
    return losses


def saved_and_never_set(task, file, steps):
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        task.load_state_dict(saved["task"])
    losses = [task.step() for _ in range(done, steps)]
    torch.save({"done": steps, "task": task.state_dict(), "random": torch.get_rng_state()}, file)
    return losses


def task_not_loaded(task, file, steps):
    done = 0
    if file.exists():
        saved = torch.load(file)
        done = saved["done"]
        torch.set_rng_state(saved["random"])
    losses = [task.step() for _ in range(done, steps)]
    torch.save({"done": steps, "task": task.state_dict(), "random": torch.get_rng_state()}, file)
    return losses


def all_steps_again(task, file, steps):
    return [task.step() for _ in range(steps)]


def nothing_said(task, file, steps):
    train_on(task, file, steps)


GALLERIES = [
    Gallery("young_minutes", ..., [78.48, "78.5", 78], {
        "that is for one node": 1775.8,
        "not twice a year": 39.24,
        "a factor of 2 is missing": 55.5,
        "that is in seconds": 4709,
        "that is in hours": 1.308,
        "minutes and hours stand under one root": 10.13,
        "that is the MTBF of the job: with": 2053,
        "that is the MTBF of the job in hours": 34.22,
        "first the MTBF of the job, in seconds": 20,
        "a number is wanted": "often",
    }),
    Gallery("interval_from_log", interval_stub,
            [interval_from_log, by_daly, by_the_exact_minimum], {
        "what has a log of": nodes_forgotten,
        "one of them fails less often": log_of_one_node,
        "fails more often than one node": job_of_one_node,
        "more nodes fail more often": more_nodes_fail_less,
        "the hours after the last failure were watched too": until_the_last_failure,
        "were watched too: the MTBF is all the hours": mean_of_gaps,
        "that is in hours": in_hours,
        "that is in minutes or in mixed units": in_mixed_units,
        "a factor of 2 is missing": without_the_two,
        "find the MTBF of a node": the_mtbf,
        "a number is wanted": interval_not_returned,
    }),
    Gallery("save_safely", save_stub, [save_safely, removed_what_was_left], {
        "within write('last'), \"last\" is cut short": written_over,
        "after rename('new', 'last'), \"last\" is cut short": never_synced,
        "after remove('last'), there is no \"last\"": old_one_removed_first,
        "after rename('last', 'before'), there is no \"last\"": old_one_aside,
        "still the old checkpoint": never_renamed,
        "written 2 times": written_twice,
        "backup is left behind": something_left,
        "there is no file 'now'": of_another_name,
    }),
    Gallery("whole_training", parts_stub, [whole_training, in_another_order], {
        "does not have the weights": without_weights,
        "does not have the velocity": without_velocity,
        "does not have the random numbers": without_random_numbers,
        "does not have the residuals": without_residuals,
        "does not have the running means": buffers_of_rank_0,
        "written once, by Alike": velocity_of_each,
        "a dictionary {name: part} is wanted": a_list_of_parts,
        "stopped": the_things_themselves,
    }),
    Gallery("train_on", train_on_with_the_bug, [train_on, seeded_by_the_step], {
        "draws the numbers that step 1 has drawn": seeded_at_the_start,
        "steps draw the same random numbers": seeded_in_every_step,
        "where the generator is at the end": saved_too_early,
        "since other random numbers are drawn": saved_and_never_set,
        "on the losses are others": seeded_after_loading,
        "random numbers are right": task_not_loaded,
        "and there are 10 steps": all_steps_again,
        "a list of losses is wanted": nothing_said,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
