"""Ranks are killed, and the training comes to what it would have come to."""

import ast
import os
import random
import re
import signal
from pathlib import Path

import pytest
import torch

from course.cluster.failover import Checkpoints, train_with_checkpoints, train_with_restarts
from course.worlds import RankError, run
from tests.cluster.failover import programs

KILLS, STEPS = 50, 230


@pytest.mark.parametrize("ranks, kind", [(3, None), (2, programs.Scheduled)])
def test_with_the_same_ranks_it_is_bit_for_bit_the_same(tmp_path, ranks, kind):
    expected = run(programs.whole, ranks, tmp_path / "all", 13, kind=kind, timeout=120)
    run(programs.whole, ranks, tmp_path / "parts", 5, kind=kind, timeout=120)
    assert run(programs.whole, ranks, tmp_path / "parts", 13, kind=kind, timeout=120) == expected


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of nine steps."""
    return run(programs.whole, 2, tmp_path_factory.mktemp("all"), 9, timeout=120)[0][0]


@pytest.mark.parametrize("forgotten", ["model", "optimizer", "random", "residuals"])
def test_what_is_forgotten_changes_the_losses(tmp_path, forgotten, undisturbed):
    """So that the test above would fail without any of the parts."""
    run(programs.whole, 2, tmp_path, 5, (forgotten,), timeout=120)
    losses, *_ = run(programs.whole, 2, tmp_path, 9, (forgotten,), timeout=120)[0]
    assert losses[:5] == undisturbed[:5] and losses[5:] != undisturbed[5:]


@pytest.mark.parametrize("ranks, others", [(3, [2, 1]), (1, [3, 4])])
def test_with_other_ranks_it_is_right_and_every_sample_is_used_once(tmp_path, ranks, others):
    """Two kills: after each another number of ranks goes on."""
    log, steps, following = tmp_path / "log", 15, iter(others)
    log.mkdir()
    result = train_with_restarts(
        programs.plain, ranks, tmp_path / "saved", steps, log, {6: 0, 11: others[0] - 1},
        after=lambda ranks, error: next(following), timeout=120,
    )  # fmt: skip
    assert (result.ranks, result.began) == ([ranks, *others], [0, 4, 10])
    expected = torch.tensor(programs.serial_losses(steps), dtype=torch.float64)
    for losses, _ in result.values:
        torch.testing.assert_close(torch.tensor(losses, dtype=torch.float64), expected,
                                   rtol=1e-12, atol=1e-12)  # fmt: skip
    assert "was ended by SIGKILL" in result.lost[0] and len(result.lost) == 2
    seen = seen_at_last(log, steps)
    for epoch in range(steps // 3):
        assert sorted(sum(seen[3 * epoch : 3 * epoch + 3], [])) == list(range(programs.SAMPLES))


def seen_at_last(log, steps):
    """[the samples that all ranks together saw in a step, the last time that it was taken]."""
    seen = []
    for step in range(1, steps + 1):
        paths = list(log.glob(f"step {step} ranks *"))
        newest = max(paths, key=lambda path: path.stat().st_mtime_ns)
        (ranks,) = re.findall(r"ranks (\d+)", newest.name)
        of_step = log.glob(f"step {step} ranks {ranks} *")
        seen.append([row for path in of_step for row in ast.literal_eval(path.read_text())])
    return seen


def test_a_program_that_fails_by_itself_is_not_started_again(tmp_path):
    def fails(comm, folder):
        (folder / f"rank {comm.rank} began").touch(exist_ok=False)
        raise ValueError("no such thing")

    with pytest.raises(RankError, match="no such thing"):
        train_with_restarts(fails, 2, tmp_path)


def test_starts_in_vain_end(tmp_path):
    def dies(comm, folder):
        with open(folder / "starts", "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RankError, match="was ended by SIGKILL"):
        train_with_restarts(dies, 1, tmp_path, in_vain=3)
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_training_that_is_over_takes_no_more_steps(tmp_path):
    first, again = [run(programs.plain, 2, tmp_path, 4, timeout=60) for _ in range(2)]
    assert first == again and len(first[0][0]) == 4


def test_a_loss_is_that_of_the_whole_batch_though_a_rank_has_no_rows(tmp_path):
    """Batches of 8 for 3 ranks: 3, 3 and 2 rows; of 6 at the end of an epoch; here of 1 and 2."""

    def program(comm, folder):
        from course.cluster.failover import Order

        with Checkpoints(comm, folder, every=9) as checkpoints:
            step = lambda rows: rows.double().mean().requires_grad_()  # noqa: E731
            return train_with_checkpoints(comm, step, 2, Order(3, 2, seed=0), {}, checkpoints)

    for losses in run(program, 3, tmp_path, timeout=60):
        assert 2 * losses[0] + losses[1] == 0 + 1 + 2


@pytest.mark.parametrize("name", ["order", "losses"])
def test_names_that_are_taken(tmp_path, name):
    def program(comm, folder):
        with Checkpoints(comm, folder, every=1) as checkpoints:
            order = programs.Order(3, 2, seed=0)
            train_with_checkpoints(comm, None, 1, order, {name: order}, checkpoints)

    with pytest.raises(RankError, match=f"rank 0: {name} is the name of a part that is saved anyw"):
        run(program, 1, tmp_path)


# Chaos


def plan_of_kills(seed, ranks):
    """[(rank, what it counts, up to which number)], a kill each: steps, or times that the disk is
    asked to keep something, which is in the middle of a save."""
    generator, plan = random.Random(seed), []
    for _ in range(KILLS):
        rank = generator.randrange(ranks)
        if generator.random() < 0.5:
            plan.append((rank, "steps", generator.randint(1, 6)))
        else:
            plan.append((rank, "disk", generator.randint(1, 2 if rank else 10)))
    return plan


def chaos(comm, folder, steps, log, plan):
    """Train; the kill of this start is the first of the plan that has not been done yet."""
    log, counts = Path(log), {"steps": 0, "disk": 0}
    done = len(list(log.glob("killed *")))
    training = programs.Whole(comm)
    begun = []

    def count(what):
        counts[what] += 1
        if done < len(plan) and plan[done] == (comm.rank, what, counts[what]):
            last = training.order.dealt
            (log / f"killed {done:02} on rank {comm.rank} in step {last}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call):
        def called(*args, **kwargs):
            count("disk")
            return call(*args, **kwargs)

        return called

    def step(rows):
        if not begun and comm.rank == 0:
            begun.append(training.order.dealt)
            (log / f"began {done:02} with step {training.order.dealt}").touch()
        loss = training.step(rows)
        count("steps")
        return loss

    if plan:
        os.fsync, os.rename = counted(os.fsync), counted(os.rename)
    with Checkpoints(comm, folder, every=programs.EVERY) as checkpoints:
        losses = train_with_checkpoints(
            comm, step, steps, training.order, training.parts, checkpoints
        )
    return training.end(losses)


def test_chaos_loses_nothing_beyond_the_interval(tmp_path):
    """50 kills, half of them within saves; one save may be under way when the next interval
    ends, so what is lost is less than two intervals."""
    log, folder, quiet = (tmp_path / name for name in ("log", "saved", "quiet"))
    log.mkdir()
    plan = plan_of_kills(seed=15, ranks=2)
    result = train_with_restarts(chaos, 2, folder, STEPS, log, plan, in_vain=KILLS, timeout=120)
    killed = steps_in(log, "killed")
    began = steps_in(log, "began")
    assert len(killed) == len(result.lost) == KILLS
    for number, step in killed.items():
        if number + 1 in began:  # else it was killed before its first step
            assert step - began[number + 1] < 2 * programs.EVERY
    assert result.began == sorted(result.began)
    assert result.values == run(chaos, 2, quiet, STEPS, log, [], timeout=120)


def steps_in(log, kind):
    """{number of the start: step}."""
    found = (re.search(r"(\d+) .*step (\d+)", path.name) for path in log.glob(f"{kind} *"))
    return {int(match[1]): int(match[2]) for match in found}
