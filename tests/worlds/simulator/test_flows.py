"""Max-min fair sharing, against arithmetic, against its definition and against SimGrid."""

import json
import pathlib
import random
import shutil
import subprocess

import networkx
import pytest

from course.worlds.simulator.events import Event, EventQueue
from course.worlds.simulator.flows import Flow, Flows, Link, Route
from course.worlds.simulator.log import NO_FLOW
from course.worlds.simulator.routes import Routes

SYSTEM_PYTHON = "/usr/bin/python3"  # Debian's SimGrid is for this one


class Timed(Flow):
    """A flow that begins at a given time, and then notes when it ends."""

    def __init__(self, traffic, start_s, nbytes, links):
        route = Route(links)
        super().__init__(route, nbytes, start_s + route.latency_s)
        self.traffic, self.end = traffic, None

    def happen(self):
        if self.began == NO_FLOW:
            self.traffic.flows.begin(self)
        else:
            self.traffic.flows.end(self)
            self.end = self.traffic.queue.now


class Traffic:
    """Flows that begin at given times, until all have ended."""

    def __init__(self):
        self.queue, self.all = EventQueue(), []
        self.flows = Flows(self.queue)

    def add(self, start_s, nbytes, links):
        self.all.append(Timed(self, start_s, nbytes, links))
        self.queue.schedule(self.all[-1].due, self.all[-1])
        return self.all[-1]

    def run(self):
        while self.flows.changed or self.queue.next_time is not None:
            if self.flows.changed:
                self.flows.recompute_rates()
                self.check_fairness()
            if self.queue.next_time is not None:
                self.queue.advance()
        return [flow.end for flow in self.all]

    @property
    def under_way(self):
        return [flow for flow in self.all if flow.began != NO_FLOW and flow.end is None]

    def check_fairness(self):
        """No link carries too much, and every flow has a full link on which none is faster."""
        links = {link for flow in self.under_way for link in flow.route.links}
        full = {link for link in links
                if sum(f.rate for f in link.flows) >= link.bytes_per_s * (1 - 1e-9)}  # fmt: skip
        for link in links:
            assert sum(flow.rate for flow in link.flows) <= link.bytes_per_s * (1 + 1e-9)
            for flow in link.flows:
                assert any(flow.rate >= max(f.rate for f in other.flows) * (1 - 1e-9)
                           for other in flow.route.links if other in full)  # fmt: skip
                assert flow.bottleneck in full


def link(bytes_per_s, latency_s=0.0):
    return Link(("a", "b"), latency_s, bytes_per_s)


def test_a_flow_alone_takes_its_latency_and_its_bytes():
    traffic = Traffic()
    flow = traffic.add(1.0, 300, [link(100, 0.25), link(50, 0.5), link(200)])
    assert traffic.run() == [1.0 + 0.75 + 6.0]
    assert flow.bottleneck.bytes_per_s == 50


def test_two_flows_share_a_link_and_the_longer_one_has_it_alone_at_the_end():
    shared, traffic = link(100), Traffic()
    traffic.add(0, 100, [shared])
    traffic.add(0, 300, [shared])
    assert traffic.run() == [2.0, 4.0]


def test_a_flow_that_comes_later_slows_the_first_from_then_on():
    shared, traffic = link(100), Traffic()
    traffic.add(0, 200, [shared])
    traffic.add(1.5, 50, [shared])
    assert traffic.run() == [2.5, 2.5]


def test_what_one_flow_cannot_use_the_others_get():
    """Three flows on a link of 100; one of them comes through a link of 10: 10, 45, 45."""
    wide, narrow, traffic = link(100), link(10), Traffic()
    flows = [traffic.add(0, 450, route) for route in ([wide], [wide], [narrow, wide])]
    traffic.queue.advance()
    traffic.flows.recompute_rates()
    assert [flow.rate for flow in flows] == [45, 45, 10]
    assert [flow.bottleneck for flow in flows] == [wide, wide, narrow]


def test_the_long_flow_of_a_chain_gets_its_fair_share_of_every_link():
    """The parking lot: one flow over three links, one flow more on each."""
    links, traffic = [link(90), link(60), link(120)], Traffic()
    flows = [traffic.add(0, 1000, links), *(traffic.add(0, 1000, [one]) for one in links)]
    traffic.queue.advance()
    traffic.flows.recompute_rates()
    assert [flow.rate for flow in flows] == [30, 60, 30, 90]


def test_only_flows_that_share_links_get_new_rates():
    one, other, traffic = link(100), link(100), Traffic()
    for start_s, where in [(0, one), (0, one), (1, other), (1, other)]:
        traffic.add(start_s, 1000, [where])
    traffic.queue.advance()
    traffic.flows.recompute_rates()
    due = [flow.due for flow in one.flows]
    traffic.queue.advance()
    assert set(traffic.flows.changed) == {other}
    traffic.flows.recompute_rates()
    assert [flow.due for flow in one.flows] == due
    assert traffic.run() == [20.0, 20.0, 21.0, 21.0]


def random_network(seed):
    """A random network of switches, on which twelve devices hang; every cable is different."""
    draw, graph = random.Random(seed), networkx.connected_watts_strogatz_graph(8, 4, 0.3, seed=seed)
    for device in range(8, 20):
        graph.add_edge(device, draw.randrange(8))
        graph.nodes[device]["device"] = True
    for _, _, cable in graph.edges(data=True):
        cable.update(latency_s=draw.uniform(1e-5, 1e-3), bytes_per_s=draw.uniform(1e7, 1e9))
    return graph


def random_star(seed):
    """Twelve devices on one switch: latencies are equal, bandwidths are not."""
    draw, graph = random.Random(seed), networkx.star_graph(12)
    for device in range(1, 13):
        graph.nodes[device]["device"] = True
    for _, _, cable in graph.edges(data=True):
        cable.update(latency_s=0.01, bytes_per_s=draw.uniform(1e7, 1e9))
    return graph


def random_traffic(seed, network=random_network):
    """Links, and flows (start_s, bytes, route) at random times between devices."""
    draw, routes, flows = random.Random(-seed), Routes(network(seed)), []
    for _ in range(60):
        src, dst = draw.sample(routes.devices, 2)
        flows.append((draw.uniform(0, 1), draw.randrange(10**5, 10**8), routes.route(src, dst)))
    return list(routes.links.values()), flows


def ours(flows):
    traffic = Traffic()
    for start_s, nbytes, route in flows:
        traffic.add(start_s, nbytes, route.links)
    return traffic.run()


@pytest.mark.parametrize("seed", range(3))
def test_random_flows_are_shared_fairly_at_every_moment(seed):
    assert all(end is not None for end in ours(random_traffic(seed)[1]))


def simgrid(links, flows, latencies):
    numbers = {link: n for n, link in enumerate(links)}
    given = {
        "links": [[link.latency_s * latencies, link.bytes_per_s] for link in links],
        "flows": [[start_s + route.latency_s * (not latencies), nbytes,
                   [numbers[link] for link in route.links]] for start_s, nbytes, route in flows],
    }  # fmt: skip
    script = pathlib.Path(__file__).with_name("simgrid_flows.py")
    done = subprocess.run([SYSTEM_PYTHON, script], input=json.dumps(given), text=True,
                          capture_output=True, check=True, timeout=60)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def has_simgrid():
    if not shutil.which(SYSTEM_PYTHON):
        return False
    return (
        subprocess.run([SYSTEM_PYTHON, "-c", "import simgrid"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not has_simgrid(), reason="needs SimGrid (Debian: python3-simgrid)")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("network", [random_network, random_star])
def test_random_flows_end_when_simgrid_s_do(network, seed):
    """SimGrid favours flows of small latency, as TCP does and we do not: where latencies differ it
    gets links without any, and flows that begin so much later."""
    links, flows = random_traffic(seed, network)
    expected = simgrid(links, flows, latencies=network is random_star)
    assert ours(flows) == pytest.approx(expected, rel=1e-9)


def test_two_runs_are_the_same_to_the_last_bit():
    assert ours(random_traffic(5)[1]) == ours(random_traffic(5)[1])


def test_equal_flows_end_at_the_same_time_whatever_the_number():
    for count in (3, 7, 10, 49):
        shared, traffic = link(1e9), Traffic()
        for _ in range(count):
            traffic.add(0, 10**6, [shared, link(1e9)])
        ends = traffic.run()
        assert len(set(ends)) == 1 and ends[0] == pytest.approx(count * 1e-3, rel=1e-12)


def test_a_flow_that_is_cancelled_leaves_its_links_to_the_others():
    shared, alone, traffic = link(100), link(100), Traffic()
    gone = [traffic.add(0, 1000, [shared]), traffic.add(0, 1000, [alone])]
    late = traffic.add(9.0, 1000, [alone])
    traffic.add(0, 300, [shared])
    traffic.queue.schedule(2.0, Event(lambda: [*map(traffic.flows.cancel, [*gone, late])]))
    assert traffic.run() == [None, None, None, 4.0] and not alone.flows
