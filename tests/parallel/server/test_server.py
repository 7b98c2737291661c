"""A parameter server trains as the serial program does, and its rules, faults and snapshots hold.

On real processes and on imagined clusters, where workers are slow or die when a test wants it.
"""

import itertools
import math
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from course.cluster.fabric import one_switch
from course.cluster.hardware import FDR, FREE
from course.comm import CommMismatch, Trace
from course.parallel.server.client import Client
from course.parallel.server.messages import REQUEST_BYTES
from course.parallel.server.server import serve
from course.parallel.server.shards import Plan, shard_plan, step_bytes
from course.parallel.server.snapshots import Snapshots
from course.parallel.server.staleness import asynchronous, bounded, synchronous
from course.parallel.server.updates import adagrad, sgd
from course.worlds import RankError, processes, run, simulated
from tests.parallel.workers import (
    ELEMENTS,
    STEPS,
    cut_off,
    descend,
    disagreeing,
    downpour,
    enduring,
    exit_at_once,
    five_times,
    gathered,
    loses_a_server,
    loss,
    net,
    outlived,
    paced,
    part_of_a_world,
    push_ones,
    rarely_fetching,
    refused,
    rows,
    scaled,
    train,
    uneven,
    vector,
)  # fmt: skip
from tests.worlds.simulator.clusters import slowly, switched

RULES = {"synchronous": synchronous(), "bounded": bounded(2), "asynchronous": asynchronous()}


def serially(update, steps=STEPS, count=11):
    """The large batch on one process: every parameter after every step, [steps + 1, elements]."""
    module, kept, path = net(), {}, []
    for step in range(steps):
        path.append(vector(module))
        module.zero_grad()
        loss(module, *rows(step, count)).backward()
        weights = vector(module)
        update(weights, torch.cat([p.grad.flatten() for p in module.parameters()]), kept, 1)
        nn.utils.vector_to_parameters(weights, module.parameters())
    return torch.stack([*path, vector(module)])


PLANS = [
    *(shard_plan(*sizes, ELEMENTS) for sizes in ((2, 1), (3, 1), (3, 2), (4, 2), (4, 3))),
    Plan((3, 0), (1, 2), (0, 50, ELEMENTS)),
    Plan((0, 1, 2), (3,), (0, 0, ELEMENTS, ELEMENTS)),
]


def ranks_of(plan):
    return len(plan.servers) + len(plan.clients)


# It is the serial program


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_synchronous_steps_are_those_of_the_large_batch(plan):
    """Rows that do not divide, shards that are uneven or empty; every parameter, every step."""
    for update in (descend, downpour):
        expected = serially(update())
        results = run(train, ranks_of(plan), plan, update, on=switched(ranks_of(plan)))
        torch.testing.assert_close(gathered(results, plan), expected[-1], rtol=0, atol=1e-12)
        for client in plan.clients:
            torch.testing.assert_close(results[client], expected[:-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("plan, checked", [*zip(PLANS, itertools.cycle([True, False]))])
def test_real_processes_train_as_the_large_batch(plan, checked):
    results = run(train, ranks_of(plan), plan, downpour, checked=checked)
    expected = serially(downpour())
    torch.testing.assert_close(gathered(results, plan), expected[-1], rtol=0, atol=1e-12)
    for client in plan.clients:
        torch.testing.assert_close(results[client], expected[:-1], rtol=0, atol=1e-12)
    for server in plan.servers:
        account = results[server]
        assert account.histogram == [STEPS * len(plan.clients)] and account.version == STEPS
        assert account.lost == ()


def test_clients_without_samples_take_part():
    """Of 2 rows three clients get 1, 1 and none: the mean over no rows is nan."""
    plan = shard_plan(4, 1, ELEMENTS)
    results = run(train, 4, plan, descend, count=2, on=switched(4))
    torch.testing.assert_close(
        gathered(results, plan), serially(sgd(0.1), count=2)[-1], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_single_client_is_the_serial_program_by_any_rule(rule):
    plan = shard_plan(3, 2, ELEMENTS)
    results = run(train, 3, plan, downpour, rule=RULES[rule])
    torch.testing.assert_close(results[2], serially(adagrad(0.05))[:-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("checked", [True, False])
def test_five_uses_of_one_communicator(checked):
    plan = shard_plan(4, 2, ELEMENTS)
    results = run(five_times, 4, plan, checked=checked)
    for use in range(5):
        here = [mine[use] for mine in results]
        expected = serially(sgd(0.1), use + 1)
        torch.testing.assert_close(gathered(here, plan), expected[-1], rtol=0, atol=1e-12)


def test_within_a_smaller_group():
    plan = shard_plan(3, 1, ELEMENTS)
    results = run(part_of_a_world, 6, plan, on=switched(6))
    torch.testing.assert_close(results[1].values, serially(sgd(0.1))[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("checked", [True, False])
def test_messages_longer_than_any_buffer(checked):
    plan, world = shard_plan(4, 2, 600_011), processes(nodes=(0, 0, 1, 1))
    assert run(push_ones, 4, plan, 3, checked=checked, on=world)[2:] == [[-2.0]] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_dtypes(dtype):
    assert (
        run(push_ones, 3, shard_plan(3, 1, 5), 4, None, dtype, on=switched(3))[1:] == [[-3.0]] * 2
    )


# What it costs


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_bytes_are_two_w_a_client_and_step_and_spread_over_the_servers(plan):
    trace, ranks = Trace(), ranks_of(plan)
    run(train, ranks, plan, descend, rule=asynchronous(), on=switched(ranks), trace=trace)
    leave = [REQUEST_BYTES * len(plan.servers) * (rank in plan.clients) for rank in range(ranks)]
    step = step_bytes(plan, 8)
    assert trace.sent_bytes == [STEPS * a + b for a, b in zip(step, leave)]
    heads = len(plan.servers) * len(plan.clients) * (2 * REQUEST_BYTES + 32)
    assert sum(step) == 2 * ELEMENTS * 8 * len(plan.clients) + heads


def test_real_processes_send_the_same_bytes():
    trace, plan = Trace(), PLANS[5]
    run(train, 4, plan, descend, trace=trace)
    assert trace.sent_bytes[0] == STEPS * step_bytes(plan, 8)[0]
    assert trace.sent_bytes[1] == STEPS * step_bytes(plan, 8)[1] + 2 * REQUEST_BYTES


@pytest.mark.parametrize("servers, narrowest", [(2, "server"), (8, "both"), (16, "client")])
def test_whose_links_are_the_bottleneck_of_8_clients(servers, narrowest):
    """AlexNet's 61 M weights over FDR: enough servers are as many as clients."""
    plan, steps, ranks = shard_plan(8 + servers, servers, 61_000_000), 2, 8 + servers
    world = simulated(one_switch(ranks, FREE, FDR), device="meta")
    run(push_ones, ranks, plan, steps, asynchronous(), on=world, timeout=None)
    busy = {use.link: use.utilisation for use in world.report.links}
    of_server, of_client = busy["gpu 0 → switch"], busy[f"gpu {servers} → switch"]
    assert of_server / of_client == pytest.approx(8 / servers, rel=1e-3)
    assert max(of_server, of_client) == pytest.approx(0.5, rel=1e-2)  # a push, then a pull
    assert (of_server > 0.49, of_client > 0.49) == (narrowest != "client", narrowest != "server")
    narrow = 61e6 * 4 * max(1, 8 / servers) / FDR.bytes_per_s
    assert world.report.seconds == pytest.approx(2 * steps * narrow, rel=1e-2)


# Rules


def a_second(operation, flops, nbytes, device):
    """Only tanh takes time: a step of `paced` a second."""
    return 1.0 if operation == "tanh" else 0.0


def on_slow(ranks, slow=None, **options):
    return switched(ranks, charge=a_second, slow=slow, **options)


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_the_mean_staleness_of_equal_workers_is_one_less_than_their_number(clients):
    """Not in step with one another: each takes its turn, after the first round."""
    slow = {rank: 1 + 1e-3 * rank for rank in range(1, clients + 1)}
    account = run(paced, clients + 1, shard_plan(clients + 1, 1, 4), asynchronous(), 12,
                  on=on_slow(clients + 1, slow))[0]  # fmt: skip
    later = [row.staleness for row in account.applied[clients:]]
    assert set(later) == {clients - 1}
    assert account.version == 12 * clients and (account.values == -account.version).all()


@pytest.mark.parametrize("s", [1, 2, 4])
@pytest.mark.parametrize("servers", [1, 2])
def test_nobody_gets_further_ahead_than_the_bound(s, servers):
    plan = shard_plan(servers + 3, servers, 7)
    world = on_slow(servers + 3, {servers + 2: 7.0, servers: 0.5})
    accounts = run(paced, servers + 3, plan, bounded(s), 12, on=world, timeout=None)[:servers]
    for account in accounts:
        assert max(row.lead for row in account.pulled) == s
        waited = {row.client for row in account.pulled if row.waited_s > 1}
        assert waited == {servers, servers + 1}  # and never the slowest
    free = run(paced, servers + 3, plan, asynchronous(), 12, on=world, timeout=None)[0]
    assert max(row.lead for row in free.pulled) == 11
    assert max(row.waited_s for row in free.pulled) == 0


def test_a_slow_worker_costs_the_others_their_time_only_where_they_wait_for_it():
    """Three clients, 12 steps, one of them 4 times slower: who is done when."""
    seconds = {}
    for name, rule in RULES.items():
        world = on_slow(4, {3: 4.0})
        run(paced, 4, shard_plan(4, 1, 4), rule, 12, on=world, timeout=None)
        seconds[name] = [round(use.seconds) for use in world.report.ranks[1:]]
    assert seconds == {
        "synchronous": [45, 45, 48],
        "bounded": [37, 37, 48],
        "asynchronous": [12, 12, 48],
    }


def test_who_has_stopped_holds_nobody_up():
    """A client takes 2 steps, the other 9: the last seven are its own."""
    plan = shard_plan(3, 1, 4)
    for rule in (synchronous(), bounded(1)):
        account = run(uneven, 3, plan, rule, on=switched(3))[0]
        assert Counter(row.client for row in account.applied) == {1: 2, 2: 9}
        assert account.version == (9 if rule.synchronous else 11) and account.lost == ()


def test_a_stale_gradient_moves_less():
    """Two clients out of step: every gradient but the first two is 1 version old; of four, 3."""
    for clients, kept in ((2, 1.0), (4, 1 / 3)):
        slow = {rank: 1 + 1e-3 * rank for rank in range(1, clients + 1)}
        plan, world = shard_plan(clients + 1, 1, 4), on_slow(clients + 1, slow)
        account = run(scaled, clients + 1, plan, 10, on=world)[0]
        factors = [1 / max(1, row.staleness) for row in account.applied]
        torch.testing.assert_close(account.values, torch.full((4,), -sum(factors)))
        assert factors[-1] == kept


# Whoever is lost

FIVE = shard_plan(5, 2, 7)  # servers 0 and 1, clients 2 to 4
WORLDS = {  # seconds that six steps take and a bit, where computing takes them, and where messages
    "computing": (7.0, lambda **options: on_slow(5, {3: 1.1, 4: 1.2}, **options)),
    "messages": (90.0, lambda **options: slowly(5, **options)),
}


def notes(folder):
    """What the ranks that came to their end have noted, by rank."""
    files = Path(folder).glob("*.note")
    return {int(f.stem.split()[1]): torch.load(f, weights_only=False) for f in files}


def lived(folder, rule, world):
    """The failures by rank of a run in which somebody may be lost, and the notes of the others."""
    try:
        run(enduring, 5, FIVE, rule, STEPS, folder, on=world, timeout=100)
    except RankError as error:
        return error.failures, notes(folder)
    return {}, notes(folder)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rule", RULES)
def test_any_rank_may_die_at_any_time(tmp_path, seed, rule):
    """The others go on without a client, and end with a sentence without a server; what they have
    saved can be read, and the next run comes to its end."""
    draw, (life_s, world) = random.Random(f"{seed} {rule}"), WORLDS[sorted(WORLDS)[seed % 2]]
    dead, second = draw.randrange(5), draw.uniform(0.0, life_s)
    failures, told = lived(tmp_path, RULES[rule], world(dead={dead: second}))
    if dead in FIVE.clients and failures and told:
        assert set(failures) == {dead} and set(told) == set(range(5)) - {dead}
        for server in FIVE.servers:
            others = {told[server]["applied"][client] for client in {2, 3, 4} - {dead}}
            assert others == {STEPS} and told[server]["applied"][dead] <= STEPS
        assert (dead,) in [told[server]["lost"] for server in FIVE.servers]
    elif failures:
        assert set(told) >= {0, 1} - {dead} or not told
        assert set(told) | set(failures) == set(range(5))
        expected = f"PeerLost: server rank {dead} (shard {dead} of 2) was lost; client rank"
        for rank in failures.keys() - {dead}:
            begun = not told and "in parameter_server #1" in failures[rank]
            assert failures[rank].startswith("PeerLost: rank" if begun else expected)
    again(tmp_path, RULES[rule])


def again(folder, rule):
    """Begin from the snapshots: every client makes up what is missing, and nothing saved is lost.

    Every push takes one from every weight; where clients go together, every round does."""
    saved = Snapshots(folder)
    before = [saved.newest(shard, 2, common=rule.synchronous) or 0 for shard in range(2)]
    failures, told = lived(folder, rule, WORLDS["computing"][1]())
    assert not failures
    for shard in range(2):
        state = saved.load(shard, 2, saved.versions(shard, 2)[-1])
        assert state["version"] == told[shard]["version"] >= before[shard]
        assert (state["values"] == -state["version"]).all()
        assert min(state["counts"].values()) >= STEPS and len(state["counts"]) == 3
        if not rule.synchronous:
            assert sum(state["counts"].values()) == state["version"]
        else:  # a client's last push may have reached one server only
            assert sorted(state["counts"].values())[:2] == [STEPS, STEPS]
            assert max(state["counts"].values()) <= STEPS + 1 and len(told[shard]["stale"]) < 2


def test_a_client_that_was_lost_makes_up_for_it_while_the_others_wait(tmp_path):
    """It has done one step of six when it is lost, and does five alone afterwards."""
    world = WORLDS["computing"][1]
    assert lived(tmp_path, synchronous(), world(dead={4: 1.5}))[0].keys() == {4}
    failures, told = lived(tmp_path, synchronous(), world())
    assert not failures and told[0]["applied"] == {4: 5} and told[0]["version"] == 6 + 5


@pytest.mark.parametrize("second", [0.5, 1.7, 3.3, 5.2])
@pytest.mark.parametrize("dead", [0, 1])
def test_after_a_restart_the_training_is_the_one_that_was_not_interrupted(tmp_path, dead, second):
    """Bare and Adagrad's sums of both shards, of the same version."""
    plan, snapshots = shard_plan(5, 2, ELEMENTS), Snapshots(tmp_path, every=2)
    world = on_slow(5, {3: 1.1}, dead={dead: second})
    with pytest.raises(RankError, match=rf"server rank {dead} \(shard {dead} of 2\) was lost"):
        run(train, 5, plan, downpour, snapshots=snapshots, on=world)
    results = run(train, 5, plan, downpour, snapshots=snapshots, on=switched(5))
    expected = serially(adagrad(0.05))
    begun = STEPS - len(results[2])
    assert begun == int(second) // 2 * 2
    torch.testing.assert_close(results[2], expected[begun:-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(gathered(results, plan), expected[-1], rtol=0, atol=1e-12)


class SlowDisk(Snapshots):
    """The second shard is saved a second later."""

    def save(self, shard, shards, state):
        if shard == 1:
            torch.tanh(torch.ones(1))
        super().save(shard, shards, state)


@pytest.mark.parametrize("second", [1.5, 2.5, 3.5, 6.5])
def test_servers_that_were_several_versions_apart_begin_again_together(tmp_path, second):
    """Four pushes a fetch: a server with a slow disk lags behind.  All lose their power at once."""
    plan, snapshots, steps = shard_plan(3, 2, 7), SlowDisk(tmp_path), 12
    world = on_slow(3, dead=dict.fromkeys(range(3), second))
    with pytest.raises(RankError):
        run(rarely_fetching, 3, plan, snapshots, steps, on=world)
    quick, slow = (snapshots.versions(shard, 2) for shard in (0, 1))
    common = max(set(quick) & set(slow))
    assert max(quick) - max(slow) > 1 and common == int(second) - 1
    *accounts, begun = run(rarely_fetching, 3, plan, snapshots, steps, on=on_slow(3))
    assert begun == common
    for account in accounts:
        assert account.version == steps and len(account.applied) == steps - begun
        assert (account.values == -steps).all()
    assert max(snapshots.versions(0, 2)) == max(snapshots.versions(1, 2)) == steps


def ended_by(how, rank, folder, rule="asynchronous", **options):
    return run(
        outlived, 4, shard_plan(4, 2, 7), RULES[rule], 4, folder, {(rank, 3): how}, **options
    )


@pytest.mark.parametrize("rule", RULES)
def test_real_processes_go_on_without_a_worker(tmp_path, rule):
    """Its lines are cut in its fourth step."""
    accounts = ended_by(cut_off, 2, tmp_path, rule)[:2]
    for account in accounts:
        assert account.lost == (2,)
        assert Counter(row.client for row in account.applied) == {2: 3, 3: 4}
    assert set(notes(tmp_path)) == {0, 1, 3}


@pytest.mark.parametrize("rule", RULES)
def test_a_worker_s_process_ends_and_is_named_and_the_others_go_on(tmp_path, rule):
    with pytest.raises(RankError, match="rank 2 exited with status 3") as caught:
        ended_by(exit_at_once, 2, tmp_path, rule, on=processes(grace_s=math.inf))
    assert set(caught.value.failures) == {2}
    for server in (0, 1):
        account = caught.value.values[server]
        assert account.lost == (2,)
        assert Counter(row.client for row in account.applied) == {2: 3, 3: 4}


@pytest.mark.parametrize("checked", [True, False])
def test_real_processes_hear_what_the_loss_of_a_server_means(tmp_path, checked):
    account, _, *sentences = run(loses_a_server, 4, shard_plan(4, 2, 7), tmp_path, checked=checked)
    for client, said in zip((2, 3), sentences):
        assert said == (
            f"server rank 1 (shard 1 of 2) was lost; client rank {client} last had version 0 of "
            "it and knows of no snapshot: its 0 pushes are lost too"
        )
    assert account.version == 0 and sorted(account.lost) == [2, 3]


def test_what_a_client_says_of_a_lost_server_and_its_snapshot(tmp_path):
    failures, _ = lived(tmp_path, synchronous(), WORLDS["computing"][1](dead={1: 4.0}))
    assert failures[3] == (
        "PeerLost: server rank 1 (shard 1 of 2) was lost; client rank 3 last had version 3 of it: "
        "its snapshot of version 2 has 2 of its 3 pushes, and serve() with the same snapshots "
        "begins there, or with the newest that all servers have if they go in step"
    )


def test_a_rank_that_is_lost_before_all_have_begun_ends_the_run(tmp_path):
    failures, told = lived(tmp_path, synchronous(), WORLDS["computing"][1](dead={3: 0.0}))
    assert not told and set(failures) == set(range(5))
    assert failures[0].startswith("PeerLost: rank 3 was lost while rank 0 was in parameter_server")


# What cannot be


def test_calls_that_cannot_be():
    plan, module, mixed = shard_plan(2, 1, 9), nn.Linear(2, 3), nn.Sequential(nn.Linear(1, 2))
    mixed.append(nn.Linear(2, 1).double())
    calls = {
        lambda comm: Client(comm, plan, module):
            "ValueError: rank 0 is no client: those are [1]",
        lambda comm: serve(comm, Plan((1,), (0,), (0, 9)), module, sgd(1)):
            "ValueError: rank 0 is no server: those are [1]",
        lambda comm: Client(comm, Plan((1,), (0,), (0, 9)), module, n_push=0):
            "ValueError: rank 0: n_push is a whole number, 1 or more, not 0",
        lambda comm: Client(comm, Plan((1,), (0,), (0, 9)), module, n_fetch=1.5):
            "ValueError: rank 0: n_fetch is a whole number, 1 or more, not 1.5",
        lambda comm: Client(comm, Plan((1,), (0,), (0, 9)), module, rate=0):
            "ValueError: rank 0: a client's own rate is above 0, not 0",
        lambda comm: serve(comm, Plan((0,), (), (0, 8)), module, sgd(1)):
            "ValueError: rank 0: 1 shards of 9 parameters cannot have the bounds [0, 8]",
        lambda comm: serve(comm, Plan((0,), (1, 2), (0, 9)), module, sgd(1)):
            "ValueError: rank 0: a plan gives each of 1 ranks one part to play, but this one has "
            "servers [0] and clients [1, 2]",
        lambda comm: serve(comm, plan, mixed, sgd(1)):
            "ValueError: weights in one tensor are of one dtype and device, not float32 on cpu and "
            "float64 on cpu",
        lambda comm: serve(comm, plan, nn.Tanh(), sgd(1)):
            "ValueError: weights in one tensor are of one dtype and device, not none",
    }  # fmt: skip
    assert run(refused, 1, list(calls)) == [list(calls.values())]


@pytest.mark.parametrize(
    "other", [shard_plan(3, 2, 7), Plan((1,), (0, 2), (0, 7)), shard_plan(3, 1, 8)], ids=str
)
def test_plans_and_models_that_differ_are_told(other):
    with pytest.raises(RankError) as caught:
        run(disagreeing, 3, [shard_plan(3, 1, 7), other, shard_plan(3, 1, 7)])
    assert isinstance(caught.value.exception, CommMismatch)
    assert "in parameter_server #1 (float32 [" in str(caught.value)


def test_snapshots_of_another_cut_are_refused(tmp_path):
    snapshots = Snapshots(tmp_path)
    run(train, 3, shard_plan(3, 2, ELEMENTS), descend, snapshots=snapshots, on=switched(3))
    with pytest.raises(RankError, match="has snapshots of 2 shards, but there are 1"):
        run(train, 3, shard_plan(3, 1, ELEMENTS), descend, snapshots=snapshots, on=switched(3))
    plan = shard_plan(3, 2, ELEMENTS)._replace(bounds=(0, 5, ELEMENTS))
    with pytest.raises(
        RankError, match=r"with bounds \[0, 32, 65\], not float64 \[5\] of \[0, 5, 65"
    ):
        run(train, 3, plan, descend, snapshots=snapshots, on=switched(3))
