"""A diary that outlives its ranks, and an optimiser that is the same as torch's."""

import warnings

import torch
from torch import nn

from course.classroom.restarts import Momentum, note_step, starts, warned
from course.worlds import run


def test_it_moves_as_torchs_optimiser_does_and_goes_on_from_its_state():
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    theirs = torch.optim.SGD(nets[0].parameters(), lr=0.1, momentum=0.9)
    mine = Momentum(nets[1].parameters())
    for turn in range(4):
        x = torch.randn(5, 3, dtype=torch.float64)
        for net, optimizer in zip(nets, (theirs, mine)):
            net.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        if turn == 1:
            state = mine.state_dict()
            mine = Momentum(nets[1].parameters())
            mine.load_state_dict(state)
    for a, b in zip(nets[0].parameters(), nets[1].parameters()):
        torch.testing.assert_close(a, b)


def test_a_diary_has_the_steps_of_each_start(tmp_path):
    def program(comm, first, last):
        for step in range(first, last + 1):
            note_step(comm, tmp_path, step)

    for first, last in ((1, 4), (3, 3), (3, 5)):
        run(program, 2, first, last, timeout=60)
    found = starts(tmp_path)
    assert [steps for _, steps in found.values()] == [[1, 2, 3, 4], [3], [3, 4, 5]]
    assert list(found) == ["first start", "second start", "third start"]
    seconds = sum((seconds for seconds, _ in found.values()), [])
    assert seconds[0] == 0 and seconds == sorted(seconds)


def test_warnings_travel_without_the_place(tmp_path):
    def program(comm, folder, number):
        if comm.rank == 0:
            for _ in range(2):
                warnings.warn(f"{folder} lacks it", stacklevel=1)
        return number + comm.rank

    first, second = run(warned, 2, program, tmp_path / "saved", 5, timeout=60)
    assert first == (5, [".../saved lacks it"] * 2)
    assert second == (6, [])
