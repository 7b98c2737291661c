"""Exercises of notebook 23: the ports of a pod, an order for a ring, how many servers a file system
feeds, an offer, a link that was counted for both directions."""

import math
import random

from course.classroom.answers import function, number
from course.classroom.comparison import compare
from course.classroom.problems import Exercise, Wrong
from course.cluster.hardware import EDR, FREE
from course.cluster.loads import link_loads, ring_all_reduce_s


def _float(right):
    """So that parts in an answer are seen."""
    return lambda *case: float(right(*case))


def pod_ports(servers, adapters, narrower):
    """The least number of ports: for the adapters, and for the cables up."""
    down = servers * adapters
    return down + math.ceil(down / narrower)


def check_pod_ports(answer):
    cases = [(10, 2, 4), (6, 4, 2), (36, 4, 2), (36, 4, 1), (7, 3, 4), (5, 1, 2), (1, 1, 3)]
    slips = [
        (lambda s, a, o: s * a, "the cables up need a port of this switch, too."),
        (lambda s, a, o: math.ceil(s * a / o), "that is only the ports up."),
        (lambda s, a, o: s + math.ceil(s / o), "a server needs a port for each of its adapters."),
        (lambda s, a, o: s * a * (1 + o),
         "2:1 means that there are half as many cables up, not twice as many."),
        (lambda s, a, o: s * a + s * a / o,
         "a part of a port cannot be bought: round up to a whole number."),
        (lambda s, a, o: s * a + s * a // o,
         "rounded down, it is narrower than was accepted: round up."),
        (lambda s, a, o: s * a + 2 * math.ceil(s * a / o),
         "the other end of a cable up is on another switch."),
        (lambda s, a, o: math.ceil(s * a * o), "ports down and ports up are added."),
    ]  # fmt: skip
    otherwise = "count the ports down, then those up, and add them."
    compare(answer, _float(pod_ports), cases, slips, shape_is="one number", otherwise=otherwise)
    return f"the deck's pod: {pod_ports(36, 4, 2)} ports, which is the director that it names."


PODS, SERVERS = 2, 3  # of the cluster of exercise 2: pods, servers in each


def building():
    """The cluster of exercise 2, and what is told of it: servers numbered across the pods."""
    from course.cluster.fabric import dgx_large  # here: other exercises have no use for networkx

    graph = dgx_large(PODS, SERVERS, uplinks=SERVERS * 2)
    told = []
    for name, node in graph.nodes(data=True):
        if node.get("device") is not None:
            pod, number = divmod(node["server"], SERVERS)
            told.append((name, f"server {PODS * number + pod}", f"pod {pod}"))
    random.Random(0).shuffle(told)
    return graph, told


def ring_order(devices):
    """The names of the `devices` [(name, server, pod), ...] in the order of a ring."""
    return [name for name, server, pod in sorted(devices, key=lambda device: device[::-1])]


def check_ring_order(answer):
    graph, told = building()
    renamed = [(f"gpu {number}", *each[1:]) for number, each in enumerate(told)]
    for devices in (told, told[::-1], [each for each in told if each[1] != "server 3"], renamed):
        given = list(devices)
        order = _same_devices(function(answer)(given), devices)
        if given != devices:
            raise Wrong("the order is right, but the list that the function was given has changed.")
        _crossings(order, devices)
    took, before, best = (
        1e3 * ring_all_reduce_s(graph, order, 1e8)
        for order in (list(function(answer)(list(told))), [name for name, *_ in told],
                      ring_order(told))
    )  # fmt: skip
    said = f"an all-reduce of 100 MB takes {took:.0f} ms, and as it was handed out {before:.0f} ms."
    return said if took < 1.1 * best else (
        f"{said} Inside a server the order matters, too: sorted by name as well, it takes "
        f"{best:.0f} ms, because no cable carries two messages in one direction."
    )  # fmt: skip


def _same_devices(order, devices) -> list:
    """The order as a list, which an iterator gives only once.  Refuse one of other devices."""
    if order is None:
        raise Wrong("nothing came back: does the function end in return?")
    names = [name for name, *_ in devices]
    try:
        got = list(order)
    except TypeError:
        raise Wrong(f"a list of names is wanted, not {order!r:.40}.") from None
    if got and all(isinstance(each, int) for each in got):
        raise Wrong("the names of the devices are wanted, not their numbers in the list.")
    if got and all(isinstance(each, tuple | list) for each in got):
        if any(len(each) != 3 for each in got):
            raise Wrong("one list of all names is wanted, not a list for each server or pod.")
        raise Wrong("only the names are wanted, not the triples.")
    if len(got) < len(names):
        raise Wrong(f"there are {len(names)} devices, and your ring has {len(got)} of them.")
    if sorted(map(str, got)) != sorted(names):
        raise Wrong("every device has to be in the ring once, and no other one.")
    return got


def _crossings(order, devices):
    """Refuse an order that crosses between servers or pods more often than it has to."""
    server = {name: server for name, server, _ in devices}
    pod = {name: pod for name, _, pod in devices}
    for place, what in ((server, "servers"), (pod, "pods")):
        least = len(set(place.values()))
        crossed = sum(
            place[one] != place[other] for one, other in zip(order, order[1:] + order[:1])
        )
        if crossed <= least:
            continue
        if crossed == len(order):
            raise Wrong(f"every message crosses between {what}: that is round robin.")
        raise Wrong(
            f"your ring crosses between {what} {crossed} times, and {least} times would do: "
            + ("keep the devices of a server together." if what == "servers" else
               "servers that are neighbours in the ring may be in different pods.")
        )  # fmt: skip


def servers_fed(images_per_s, image_bytes, per_file, opens_per_s, bytes_per_s):
    """The largest whole number of servers whose GPUs do not wait."""
    reads = 1 + 1 / 90
    by_opens = opens_per_s / (reads * images_per_s / per_file)
    by_bytes = bytes_per_s / (reads * images_per_s * image_bytes)
    return int(min(by_opens, by_bytes))


def check_servers_fed(answer):
    files, shards = (5377, 110e3, 1, 20e3, 10e9), (5377, 110e3, 1024, 20e3, 10e9)
    cases = [(1000, 1e5, 1, 40.9e3, 9e9), files, shards, (1000, 2e6, 1, 50e3, 100e9),
             (3000, 1e3, 10, 30e3, 1e9), (500, 1e5, 100, 1e3, 20e9), (4000, 1e6, 1, 1000, 1e9),
             (1000, 1e3, 1, 91_005, 1e12)]  # fmt: skip
    reads = 1 + 1 / 90

    def by(rate, nbytes, per_file, opens, sent):
        return opens * per_file / rate, sent / (rate * nbytes)

    slips = [
        (lambda *case: int(min(by(*case))), "the writes take their part of opens and of bytes."),
        (lambda *case: min(by(*case)) / reads, "a part of a server cannot be fed: a whole number."),
        (lambda *case: round(min(by(*case)) / reads), "round down: the last server has to be fed."),
        (lambda *case: math.ceil(min(by(*case)) / reads),
         "the last of these servers would have to wait: round down."),
        (lambda *case: int(by(*case)[1] / reads), "the file system also has to open the files."),
        (lambda *case: int(by(*case)[0] / reads), "the file system also has to send the bytes."),
        (lambda rate, nbytes, each, opens, sent: int(min(by(rate, nbytes, 1, opens, sent)) / reads),
         "a file with many images is opened once for all of them."),
        (lambda rate, nbytes, each, opens, sent:
         int(min(by(rate, nbytes, 1 / each, opens, sent)) / reads),
         "more images in a file mean fewer opens, not more."),
        (lambda *case: int(min(by(*case)) * 89 / 90),
         "a write for every 90 reads is 91 requests where there were 90: divide by 1 + 1/90."),
        (lambda *case: int(min(by(*case)) / 90), "for 90 reads there is one write, not 90."),
    ]  # fmt: skip
    got = [function(answer)(*case) for case in (files, shards)]
    if got == [int(max(by(*case)) / reads) for case in (files, shards)]:
        raise Wrong("both limits hold: the smaller number counts.")
    otherwise = "how many files, and how many bytes, does one server ask for in a second?"
    compare(answer, _float(servers_fed), cases, slips, shape_is="one number", otherwise=otherwise)
    few, many = servers_fed(*files), servers_fed(*shards)
    return f"{few} servers from single files, {many} from shards: as in the figure of the notebook."


OFFERS = {"A": (100, 1, 1), "B": (90, 4, 4), "C": (80, 4, 1), "D": (66, 8, 1)}


def batches_a_second(servers, adapters, narrower):
    """What an offer of exercise 4 does: 100 ms, and 2 GB of which 3/4 leave the pod."""
    wire_s = 2e9 / (adapters * 12.5e9) * max(1, narrower * 0.75)
    return servers / (0.1 + wire_s)


def check_offer(answer):
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong(f'a pair is wanted, such as ("A", 100), not {answer!r:.40}.')
    letter, rate = str(answer[0]).strip().upper(), number(answer[1])
    if letter not in OFFERS:
        raise Wrong(f"the offers are A, B, C and D, not {answer[0]!r:.20}.")
    reasons = {
        "A": "the most servers, but what does a step take if one adapter carries all 2 GB?",
        "B": "4:1 between pods, and three quarters go there: how long does that take?",
        "D": "the shortest step, but of the fewest servers: divide servers by seconds.",
    }
    if letter in reasons:
        raise Wrong(f"{letter}: {reasons[letter]}")
    right = batches_a_second(*OFFERS["C"])
    if abs(rate * 80 / right - 1) < 0.01:
        raise Wrong("C it is; but that is what one of its servers does, all 80 were asked for.")
    if abs(rate / (80 / 0.1) - 1) < 0.01:
        raise Wrong("C it is; but its servers also have to send.")
    if abs(rate / right - 1) > 0.01:
        raise Wrong("C it is; its step computes, and then sends 2 GB over 4 adapters: add up.")
    return "all offers: " + ", ".join(
        f"{name} {batches_a_second(*each):.0f}" for name, each in OFFERS.items()
    )


def busiest_link(routes):
    """The most bytes that any link carries."""
    loads = {}
    for nodes, nbytes in routes:
        for link in zip(nodes, nodes[1:]):
            loads[link] = loads.get(link, 0) + nbytes
    return max(loads.values())


def busiest_link_with_the_bug(routes):
    """The most bytes that any link carries."""
    loads = {}
    for nodes, nbytes in routes:
        for one, other in zip(nodes, nodes[1:]):
            link = frozenset((one, other))
            loads[link] = loads.get(link, 0) + nbytes
    return max(loads.values())


def _halved(routes):
    return busiest_link_with_the_bug(routes) / 2


def _counted(routes):
    return busiest_link([(nodes, 1) for nodes, _ in routes])


def _all_links(routes):
    return sum((len(nodes) - 1) * nbytes for nodes, nbytes in routes)


def _largest_message(routes):
    return max(nbytes for _, nbytes in routes)


def _links_up(routes):
    return busiest_link([(nodes[: len(nodes) // 2 + 1], nbytes) for nodes, nbytes in routes])


def _links_down(routes):
    return busiest_link([(nodes[1:], nbytes) for nodes, nbytes in routes])


def routes_of(messages):
    """`messages` on a small fat tree, as exercise 5 wants them."""
    from course.cluster.fabric import fat_tree

    tree, told = fat_tree(2, 3, FREE, EDR, 3), []
    for source, target, nbytes in messages:
        links = list(link_loads(tree, [(source, target, nbytes)]))
        told.append(([links[0][0], *(end for _, end in links)], nbytes))
    return told


def check_busiest_link(answer):
    ring = [(rank, (rank + 1) % 6, 100) for rank in range(6)]
    cases = [(routes_of(messages),) for messages in (
        ring, [(0, 3, 70), (3, 0, 20)], [(0, 3, 5), (1, 4, 6), (5, 2, 7)], [(2, 1, 9)],
        [(0, 1, 8), (1, 0, 8), (0, 2, 3)], [(0, 2, 70), (1, 2, 60)])]  # fmt: skip
    slips = [
        (busiest_link_with_the_bug,
         "a cable carries its bytes in each direction at the same time: these are two links."),
        (_halved, "half of the sum is right only where both directions carry the same."),
        (_counted, "messages are counted here: the bytes were asked for."),
        (_links_up, "a link down carries bytes, too."),
        (_links_down, "a link up carries bytes, too."),
        (_largest_message, "that is the largest message: several may share a link."),
        (_all_links, "that is the sum over all links: the busiest one was asked for."),
    ]  # fmt: skip
    compare(answer, busiest_link, cases, slips, shape_is="one number",
            otherwise="which messages pass a link in the same direction?")  # fmt: skip
    return "a cable is two links, and each is counted for itself."


EXERCISES = [
    Exercise(
        "pod_ports",
        "write pod_ports(servers, adapters, narrower): the least number of ports of a switch with "
        "so many servers of so many adapters each, and at most `narrower` times fewer cables up.",
        check_pod_ports,
        (
            "each adapter of each server has a cable down.",
            "ports up: ports down / narrower, and at least as many.",
            "down + math.ceil(down / narrower)",
        ),
        pod_ports,
    ),
    Exercise(
        "ring_order",
        "write ring_order(devices): the names of the devices, which are triples (name, server, "
        "pod), in an order in which a ring crosses as little as possible.",
        check_ring_order,
        (
            "a ring that keeps the devices of a server together leaves each server once.",
            "servers of one pod should follow one another, too.",
            "sort by pod, then by server, then by name: in a server, neighbours have cables.",
        ),
        ring_order,
    ),
    Exercise(
        "servers_fed",
        "write servers_fed(images_per_s, image_bytes, per_file, opens_per_s, bytes_per_s): how "
        "many servers a shared file system feeds so that none waits.",
        check_servers_fed,
        (
            "a server opens images_per_s / per_file files and reads images_per_s * image_bytes.",
            "with its share of the writes: (1 + 1/90) times as much.",
            "the smaller of two quotients, rounded down.",
        ),
        servers_fed,
    ),
    Exercise(
        "offer",
        "put a pair in place of the dots: the letter of the best offer, and how many batches a "
        "second all its servers do.",
        check_offer,
        (
            "sending takes 2 GB / (adapters * 12.5 GB/s), if nothing is narrower.",
            "at o:1, with three quarters to other pods, that is max(1, 0.75 o) times as long.",
            "servers / (0.1 s + sending)",
        ),
        "A 100 / (0.1 + 0.16) = 385, B 90 / (0.1 + 0.04 * 3) = 409, "
        "C 80 / (0.1 + 0.04) = 571, D 66 / (0.1 + 0.02) = 550: C.",
    ),
    Exercise(
        "busiest_link",
        "find the bug in busiest_link(routes), by which a ring fills every cable twice as much as "
        "measured, and repair it.",
        check_busiest_link,
        (
            "what does frozenset((one, other)) say about the direction?",
            "a cable can send and receive at the same time, each at full speed.",
            "loads[one, other]",
        ),
        busiest_link,
        given=busiest_link_with_the_bug,
    ),
]
