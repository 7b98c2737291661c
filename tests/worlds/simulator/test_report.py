"""What a run tells of itself: how busy everything was, and why it took so long."""

import json

import pytest
import torch

from course.cluster.fabric import coates_2013
from course.cluster.hardware import FDR
from course.collectives import all_reduce
from course.comm import CommTimeout
from course.worlds import run, simulated
from tests.worlds.simulator.clusters import slowly


def seconds(op, flops, nbytes, device):
    """torch.zeros(n) of bytes takes n seconds, all else none."""
    return nbytes if op == "zeros" else 0


def busy(n):
    torch.zeros(n, dtype=torch.uint8)


def hundred():
    return torch.empty(100, dtype=torch.uint8)


def relay(comm):
    """Rank 0 computes 3 s, 1 computes 5 s and hears from it; 2 hears from 1 and computes 4 s."""
    if comm.rank == 0:
        busy(3)
        comm.send(hundred(), 1)
    if comm.rank == 1:
        busy(5)
        comm.recv(hundred(), 0)
        comm.send(hundred(), 2)
    if comm.rank == 2:
        comm.recv(hundred(), 1)
        busy(4)


def reported(fn, ranks, world=None, **options):
    world = world or slowly(ranks, charge=seconds)
    run(fn, ranks, on=world, **options)
    return world.report


def test_the_longest_chain_is_told_part_by_part():
    report = reported(relay, 3)
    assert [tuple(segment) for segment in report.critical_path()] == [
        (0, 5, 1, "rank 1 computes"),
        (5, 6, 2, "latency"),
        (6, 7, 2, "link gpu 1 → switch"),
        (7, 11, 2, "rank 2 computes"),
    ]
    assert report.seconds == 11
    assert report.critical_path_by_cause() == {
        "rank 1 computes": 5, "rank 2 computes": 4, "latency": 1, "link gpu 1 → switch": 1,
    }  # fmt: skip


def test_every_rank_s_time_is_accounted_for():
    ranks = reported(relay, 3).ranks
    assert [(r.seconds, r.computing_s, r.waiting_s, r.sent_bytes) for r in ranks] == [
        (5, 3, 2, 100), (7, 5, 2, 100), (11, 4, 7, 0),
    ]  # fmt: skip


def test_links_tell_what_they_carried():
    links = {use.link: use for use in reported(relay, 3).links}
    assert set(links) == {f"gpu {a} → switch" for a in (0, 1)} | {
        f"switch → gpu {b}" for b in (1, 2)
    }
    for use in links.values():
        assert (use.bytes, use.busy_s, use.utilisation) == (100, 1.0, pytest.approx(1 / 11))


def all_to_rank_0(comm):
    if comm.rank:
        busy(1)
        return comm.send(hundred(), 0)
    for src in range(1, comm.size):
        comm.recv(hundred(), src)


def test_a_run_tells_how_many_events_it_came_by():
    """A relay of two messages: each begins to flow and arrives; and three ranks end."""
    report = reported(relay, 3)
    assert report.events == 2 * 2 + 3
    assert report.events_per_s * report.real_s == pytest.approx(report.events)


def test_the_link_that_all_share_is_to_blame():
    report = reported(all_to_rank_0, 5, checked=False)
    assert report.seconds == pytest.approx(1 + 1 + 4)
    busiest = report.links[0]
    assert (busiest.link, busiest.bytes) == ("switch → gpu 0", 400)
    assert busiest.busy_s == pytest.approx(4) and busiest.utilisation == pytest.approx(4 / 6)
    last = report.critical_path()[-1]
    assert last.cause == "link switch → gpu 0" and last.end == report.seconds


def late_receiver(comm):
    if comm.rank == 1:
        busy(9)
        comm.recv(hundred(), 0)
    else:
        comm.send(hundred(), 1)


def test_who_comes_late_is_to_blame():
    report = reported(late_receiver, 2)
    assert [tuple(segment) for segment in report.critical_path()] == [(0, 9, 1, "rank 1 computes")]


def meeting(comm):
    busy(1 + comm.rank)
    with comm.collective("meeting"):
        busy(2)


def test_who_comes_last_to_a_checked_call_is_to_blame():
    report = reported(meeting, 3)
    assert [(r.start, r.end, r.cause) for r in report.critical_path() if r.end <= 3] == [
        (0, 3, "rank 2 computes")
    ]
    assert report.seconds == 5


@pytest.mark.parametrize("slow", [{}, {5: 40.0}])
def test_reasons_follow_one_another_and_add_up(slow):
    world = simulated(coates_2013(4), slow=slow, device="meta")
    report = reported(ring, 16, world)
    chain = report.critical_path()
    assert chain[0].start == 0 and chain[-1].end == report.seconds
    assert all(a.end == b.start for a, b in zip(chain, chain[1:]))
    assert sum(report.critical_path_by_cause().values()) == pytest.approx(report.seconds)
    worst = next(iter(report.critical_path_by_cause()))
    assert worst == "rank 5 computes" if slow else worst.startswith("link server")


def ring(comm):
    all_reduce(comm, torch.zeros(16_000_000, device=comm.device), segment_bytes=2**30)


def test_an_adapter_shared_by_four_carries_for_four():
    """Round the ring only one rank of each server sends through the adapter: 2n(p-1)/p bytes."""
    report = reported(ring, 16, simulated(coates_2013(4), device="meta"))
    adapters = [use for use in report.links if use.link.endswith("switch")]
    assert [use.bytes for use in adapters] == [2 * 64_000_000 * 15 // 16] * 4
    assert adapters[0].utilisation == pytest.approx(
        adapters[0].bytes / FDR.bytes_per_s / report.seconds
    )


def test_perfetto_finds_ranks_and_links(tmp_path):
    report, path = reported(relay, 3), tmp_path / "trace.json"
    report.save(path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ranks = [(e["tid"], e["name"], e["ts"], e["dur"]) for e in spans if e["pid"] == 0]
    assert (1, "computes", 0, 5e6) in ranks
    assert (1, "waits for its message to rank 2, gpu 1 → switch", 5e6, 2e6) in ranks
    assert (2, "waits for rank 1, gpu 1 → switch", 0, 7e6) in ranks
    links = [(rows[1, e["tid"]], e["name"], e["ts"], e["dur"]) for e in spans if e["pid"] == 1]
    assert sorted(links) == [
        ("gpu 0 → switch", "0 → 1", 4e6, 1e6), ("gpu 1 → switch", "1 → 2", 6e6, 1e6),
        ("switch → gpu 1", "0 → 1", 4e6, 1e6), ("switch → gpu 2", "1 → 2", 6e6, 1e6),
    ]  # fmt: skip


def gives_up(comm):
    if comm.rank == 0:
        busy(30)
        comm.send(hundred(), 1)
    else:
        with pytest.raises(CommTimeout):
            comm.recv(hundred(), 0)
        busy(40)
        comm.recv(hundred(), 0)


def test_waiting_in_vain_is_a_reason():
    report = reported(gives_up, 2, timeout=20)
    assert report.critical_path_by_cause() == {"rank 1 computes": 40, "rank 1 waits in vain": 20}
    assert report.ranks[1].waiting_s == 20


def nothing(comm):
    pass


def test_a_run_without_anything_has_no_reasons():
    report = reported(nothing, 2)
    assert (report.seconds, report.critical_path(), report.links) == (0.0, [], [])
