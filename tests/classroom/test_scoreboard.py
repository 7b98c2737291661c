import pytest
import torch

from course.classroom import scoreboard
from course.classroom.scoreboard import (
    Row,
    Scoreboard,
    losses,
    paces,
    spread,
    steps_for,
    trial,
    verdicts,
)
from course.classroom.trainings import (
    RATE,
    by_asynchronous_server,
    by_gossip,
    by_server,
    data_parallel,
    elastic,
)
from course.learning.training import digits
from course.parallel.flat_parameters import FlatParameters


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(scoreboard, "IMAGES", 12 * 64)


def serial(seed, batch, rate):
    """The verdict on a net that learned from whole batches on one process."""
    net, split = digits.digit_net(seed), digits.digit_split()
    weights = FlatParameters(net)
    for x, y in digits.batches(split.training, batch, steps_for(batch), seed):
        digits.backward(net, x, y)
        weights.add_gradient(weights.flat, -rate)
    return digits.judge(net, split.validation)


def test_who_waits_for_nobody_is_hardly_later_with_a_slow_worker():
    alone = by_asynchronous_server
    quick, slow = (trial(alone, 0, servers=1, alone=True, slow=slow) for slow in (1.0, 5.0))
    waits = trial(by_server, 0, servers=1, slow=5.0)
    assert quick.seconds < slow.seconds < 1.3 * quick.seconds < waits.seconds


def unchecked(comm, net, batches):
    """`data_parallel` where no collective begins with a roll call."""
    assert not comm.checked
    return data_parallel(comm, net, batches)


def test_real_processes_learn_the_same_and_need_no_roll_calls():
    found = losses(unchecked)
    expected = [serial(seed, 64, RATE).loss for seed in digits.SEEDS]
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("train", [data_parallel, by_gossip, elastic])
def test_seeds_learn_side_by_side_as_by_themselves(train):
    found = verdicts(train, 128, (0, 7))
    expected = [trial(train, seed, batch=128).verdict for seed in (0, 7)]
    for got, alone in zip(found, expected, strict=True):
        assert got == pytest.approx(alone, rel=1e-4)
    assert found[0].loss != found[1].loss


def clipped(comm, net, batches):
    """Like `data_parallel`, but the length of the whole gradient sets the rate."""
    weights = FlatParameters(net)
    for x, y in batches:
        digits.backward(net, x, y)
        gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
        weights.flat.sub_(gradient / gradient.norm())
    return weights.flat


def test_a_way_that_mixes_its_seeds_is_refused():
    with pytest.raises(ValueError, match="clipped: seeds learn together as alone"):
        Scoreboard().add("clipped", clipped)


def test_a_spread_is_a_mean_and_a_deviation():
    assert spread((0.1, 0.2)) == "0.150 ± 0.071"
    assert spread((1.0, 2.0, 3.0), 1) == "2.0 ± 1.0"


def nothing_learned(comm, net, batches):
    """Weights, and the images of this rank."""
    taken = [len(x) for x, _ in batches]
    assert sum(taken) == {0: 240, 3: 48}.get(comm.rank, 240)
    return FlatParameters(net).flat


def test_workers_who_go_alone_take_images_by_their_speed():
    assert trial(nothing_learned, 0, slow=5.0, alone=True).verdict == serial_start(0)


def serial_start(seed):
    return digits.judge(digits.digit_net(seed), digits.digit_split().validation)


def test_a_rank_without_weights_has_no_say():
    def only_rank_2(comm, net, batches):
        list(batches)
        weights = FlatParameters(net).flat
        return weights if comm.rank == 2 else None

    assert trial(only_rank_2, 1).verdict == serial_start(1)


def test_what_comes_before_the_first_batch_is_not_counted():
    def with_a_start(comm, net, batches):
        if comm.rank == 0:
            comm.send(torch.zeros(100_000), 1)
        if comm.rank == 1:
            comm.recv(torch.zeros(100_000), 0)
        comm.barrier()
        list(batches)
        return FlatParameters(net).flat

    outcome = trial(with_a_start, 0)
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


def test_what_has_been_learned_before_is_not_learned_again():
    row = Scoreboard().add("server", by_server, servers=1, learned=[(0.1, 0.02), (0.3, 0.04)])
    assert row.losses == (0.1, 0.3) and row.errors == (0.02, 0.04)
    assert row.slow_seconds > row.seconds > 0


ROWS = [
    Row("all-reduce", 100, 19280.0, 0.0567, 0.1412, (0.1, 0.12), (0.03, 0.05)),
    Row("<large batch>", 25, 1928.0, 0.3, 1.25, (0.1, 0.1), (0.03, 0.03)),
]
TABLE = """
               steps  kB a step  ms in all  with one slow           loss  wrong (%)
all-reduce       100      19.28       56.7          141.2  0.110 ± 0.014  4.0 ± 1.4
<large batch>     25       1.93      300.0         1250.0  0.100 ± 0.000  3.0 ± 0.0
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
