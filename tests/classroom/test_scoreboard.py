import functools

import pytest
import torch

from course.classroom import scoreboard
from course.classroom.scoreboard import Row, Scoreboard, paces, race, steps_of
from course.classroom.trainings import RATE, by_gossip, by_server, data_parallel
from course.learning.training import digits
from course.parallel.flat_parameters import FlatParameters
from course.parallel.server.staleness import asynchronous, bounded

WEIGHTS = 64 * 32 + 32 + 32 * 10 + 10


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(scoreboard, "IMAGES", 12 * 64)


def serial(seed, batch, rate):
    """The verdict on a net that learned from whole batches on one process."""
    net, split = digits.net(seed), digits.digits()
    weights = FlatParameters(net)
    for x, y in digits.batches(split.training, batch, steps_of(batch), seed):
        digits.backward(net, x, y)
        weights.add_gradient(weights.flat, -rate)
    return digits.judge(net, split.validation)


@pytest.mark.parametrize("batch", [64, 256])
def test_data_parallel_learns_what_one_process_learns_and_sends_by_formula(batch):
    outcome = race(functools.partial(data_parallel, rate=0.4), 3, batch=batch)
    assert outcome.verdict.loss == pytest.approx(serial(3, batch, 0.4).loss, rel=1e-4)
    assert outcome.step_bytes == 2 * 4 * WEIGHTS  # two exchanges among 4


def test_a_server_in_step_learns_what_one_process_learns_and_sends_most():
    outcome = race(by_server, 0, servers=1)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=1e-4)
    assert outcome.step_bytes == pytest.approx(4 * 4 * WEIGHTS, rel=0.03)  # and short heads


def test_the_mean_of_gossip_is_near_the_gradients_mean():
    outcome = race(by_gossip, 0)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=0.1)
    assert outcome.step_bytes == pytest.approx(2 * 4 * WEIGHTS, rel=0.1)


@pytest.mark.parametrize("rule", [bounded(2), asynchronous()])
def test_servers_of_other_rules_run_and_learn(rule):
    alone = rule == asynchronous()
    outcome = race(functools.partial(by_server, rule=rule), 0, servers=1, alone=alone, slow=5.0)
    assert outcome.verdict.loss == pytest.approx(serial(0, 64, RATE).loss, rel=0.3)


def test_who_waits_for_nobody_is_hardly_later_with_a_slow_worker():
    alone = functools.partial(by_server, rule=asynchronous())
    quick, slow = (race(alone, 0, servers=1, alone=True, slow=slow) for slow in (1.0, 5.0))
    waits = race(by_server, 0, servers=1, slow=5.0)
    assert quick.seconds < slow.seconds < 1.3 * quick.seconds < waits.seconds


def nothing_learned(comm, net, batches):
    """Weights, and the images of this rank."""
    taken = [len(x) for x, _ in batches]
    assert sum(taken) == {0: 240, 3: 48}.get(comm.rank, 240)
    return FlatParameters(net).flat


def test_workers_who_go_alone_take_images_by_their_speed():
    assert race(nothing_learned, 0, slow=5.0, alone=True).verdict == serial_start(0)


def serial_start(seed):
    return digits.judge(digits.net(seed), digits.digits().validation)


def test_a_rank_without_weights_has_no_say():
    def only_rank_2(comm, net, batches):
        list(batches)
        weights = FlatParameters(net).flat
        return weights if comm.rank == 2 else None

    assert race(only_rank_2, 1).verdict == serial_start(1)


def test_what_comes_before_the_first_batch_is_not_counted():
    def with_a_start(comm, net, batches):
        if comm.rank == 0:
            comm.send(torch.zeros(100_000), 1)
        if comm.rank == 1:
            comm.recv(torch.zeros(100_000), 0)
        comm.barrier()
        list(batches)
        return FlatParameters(net).flat

    outcome = race(with_a_start, 0)
    assert outcome.step_bytes == 0
    assert outcome.seconds < 1e-4  # the message takes 3 ms


@pytest.mark.parametrize("steps", [12, 25, 100])
@pytest.mark.parametrize("slow", [1.0, 2.0, 5.0, 7.3])
def test_paces_add_up_whatever_the_speed(slow, steps):
    each = paces(slow, steps)
    assert sum(each) == 4 * steps and len(set(each[:3])) == 1
    assert each[3] / each[0] == pytest.approx(1 / slow, abs=2 / each[0])


def test_a_row_has_five_seeds_and_the_board_shows_it():
    board = Scoreboard()
    row = board.add("all-reduce", data_parallel)
    expected = [serial(seed, 64, RATE) for seed in digits.SEEDS]
    assert row.losses == pytest.approx([verdict.loss for verdict in expected], rel=1e-4)
    assert row.errors == pytest.approx([verdict.error for verdict in expected], abs=0.01)
    assert row.slow_seconds > 1.5 * row.seconds > 0 and row.steps == 12
    assert board.rows == [row]


ROWS = [
    Row("all-reduce", 100, 19280.0, 0.0567, 0.1412, (0.1, 0.12), (0.03, 0.05)),
    Row("<large batch>", 25, 1928.0, 0.3, 1.25, (0.1, 0.1), (0.03, 0.03)),
]
TABLE = """
               steps  kB a step     ms  ms, one slow           loss  wrong (%)
all-reduce       100      19.28   56.7         141.2  0.110 ± 0.014  4.0 ± 1.4
<large batch>     25       1.93  300.0        1250.0  0.100 ± 0.000  3.0 ± 0.0
"""


def test_columns_are_aligned():
    board = Scoreboard()
    board.rows += ROWS
    assert f"\n{board!r}\n" == TABLE


def test_the_page_shows_the_same_cells_and_no_markup_of_names():
    board = Scoreboard()
    board.rows += ROWS
    page = board._repr_html_()
    assert page.count("<tr>") == 3 and page.count("</td>") == 14
    assert all(f">{cell}</td>" in page for cell in ROWS[0].cells())
    assert "&lt;large batch&gt;" in page and "<large" not in page
