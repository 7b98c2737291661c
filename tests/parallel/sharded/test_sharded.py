"""Training on shards is the serial training: every parameter, in every stage, on any ranks."""

import functools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.learning.training.large_batch import LAMB, LARS
from course.parallel.data import DataParallel
from course.parallel.sharded import Sharded
from course.worlds import RankError, run, simulated
from tests.parallel.data import drawn
from tests.parallel.data.test_reducer import FIXED
from tests.parallel.sharded import programs
from tests.worlds.simulator.clusters import switched


def layers(module):
    return isinstance(module, nn.Linear | nn.LayerNorm | programs.Block)


SETTINGS = [{"stage": 1, "bucket_mb": 3e-4}, {"stage": 2, "bucket_mb": 3e-4}, {"stage": 3},
            {"stage": 3, "units": layers}]  # fmt: skip


def every_program(comm, kind):
    return [programs.on_shards(comm, program, kind, 5, **settings)
            for program in programs.PROGRAMS for settings in SETTINGS]  # fmt: skip


@functools.cache
def expected(kind):
    return [programs.serially(program, kind, 5) for program in programs.PROGRAMS for _ in SETTINGS]


@pytest.mark.parametrize("ranks, kind", [(1, "momentum"), (2, "adam"), (3, "momentum"), (4, "adamw")])
def test_five_steps_of_any_program_are_the_serial_ones(ranks, kind):
    for rank, ended in enumerate(run(every_program, ranks, kind, timeout=60)):
        for number, (mine, serial) in enumerate(zip(ended, expected(kind), strict=True)):
            program, settings = divmod(number, len(SETTINGS))
            where = f"rank {rank}, {programs.PROGRAMS[program].__name__}, {SETTINGS[settings]}: "
            assert mine.keys() == serial.keys()
            for name, value in serial.items():
                torch.testing.assert_close(
                    mine[name], value, rtol=1e-12, atol=1e-12,
                    msg=lambda said, where=f"{where}{name}: ": where + said,
                )  # fmt: skip


class Player(drawn.Player):
    """A drawn program on shards; what is seen are whole gradients."""

    def __init__(self, wrapped, net, comm):
        super().__init__(wrapped, net, comm)
        self.optimizer = wrapped.optimizer(torch.optim.SGD, lr=0.05, momentum=0.9)

    def do(self, act):
        getattr(self, act.kind.replace(" ", "_"))(act)
        self.seen.append(whole_gradients(self.wrapped))


def whole_gradients(net):
    found = {}
    for flat in net.flats:
        own = [torch.zeros_like(x) if x.grad is None else x.grad for x in flat.shards.values()]
        found |= flat.whole_of(net.comm, torch.cat(own))
    named = {p: name for name, p in net.module.named_parameters()}
    shards = net.shards
    return [None if shards[name].grad is None else found[p].clone() for p, name in named.items()]


def play(comm, parts, acts, settings):
    net = drawn.Net(parts, seed=comm.rank)
    player = Player(Sharded(net, comm, **settings), net, comm)
    for act in acts:
        player.do(act)
    return player.seen, [player.wrapped.state_dict()[name] for name, _ in net.named_parameters()]


def required_same_play(program, ranks, on, settings):
    parts, acts = program
    if settings["stage"] == 3:  # where weights are used outside of forwards they must be whole
        acts = [act for act in acts if "regulariser" not in act.kind]
    seen, weights = drawn.play(parts, acts)
    rtol, atol = (1e-3, 1e-5) if "single" in parts else (1e-9, 1e-11)
    for rank, (mine, end) in enumerate(run(play, ranks, parts, acts, settings, on=on)):
        for number, (got, wanted) in enumerate(zip([*mine, end], [*seen, weights], strict=True)):
            act = acts[number].kind if number < len(acts) else "the end"
            for tensor, (a, b) in enumerate(zip(got, wanted, strict=True)):
                where = f"rank {rank}, {act} (#{number}), tensor {tensor}: "
                assert (a is None) == (b is None), where + f"{a} and {b}"
                if a is not None:
                    torch.testing.assert_close(
                        a, b, rtol=rtol, atol=atol, msg=lambda said, where=where: where + said
                    )


ANY = st.fixed_dictionaries(
    {"stage": st.sampled_from([1, 2, 3]), "bucket_mb": st.sampled_from([1e-5, 3e-4, 4])}
)


@settings(FIXED, max_examples=40)
@given(drawn.programs(), st.integers(1, 4), ANY)
def test_any_program_on_the_imagined_cluster(program, ranks, settings):
    required_same_play(program, ranks, switched(ranks), settings)
