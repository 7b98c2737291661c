"""Ports, orders, servers that are fed, offers and links: answers that were really likely."""

import itertools
import math

from course.classroom.problems.p23_clusters import (
    busiest_link,
    busiest_link_with_the_bug,
    check_ring_order,
    pod_ports,
    ring_order,
    servers_fed,
)
from tests.classroom.gallery import Gallery, gallery_tests

# Ports


def ports_stub(servers, adapters, narrower):
    """The least number of ports: for the adapters, and for the cables up."""
    ...


def ports_in_whole_numbers(servers, adapters, narrower):
    up = 0
    while up * narrower < servers * adapters:
        up += 1
    return servers * adapters + up


def down_only(servers, adapters, narrower):
    return servers * adapters


def up_only(servers, adapters, narrower):
    return math.ceil(servers * adapters / narrower)


def a_port_a_server(servers, adapters, narrower):
    return servers + math.ceil(servers / narrower)


def twice_as_many_up(servers, adapters, narrower):
    return servers * adapters * (1 + narrower)


def in_parts(servers, adapters, narrower):
    return servers * adapters * (1 + 1 / narrower)


def rounded_down(servers, adapters, narrower):
    return servers * adapters + servers * adapters // narrower


def both_ends(servers, adapters, narrower):
    return servers * adapters + 2 * math.ceil(servers * adapters / narrower)


def multiplied(servers, adapters, narrower):
    return servers * adapters * narrower


def with_management(servers, adapters, narrower):
    return pod_ports(servers, adapters, narrower) + servers


def ports_not_returned(servers, adapters, narrower):
    pod_ports(servers, adapters, narrower)


# Orders


def order_stub(devices):
    """The names of the `devices` [(name, server, pod), ...] in the order of a ring."""
    ...


def order_in_groups(devices):
    pods = {}
    for name, server, pod in devices:
        pods.setdefault(pod, {}).setdefault(server, []).append(name)
    return [name for servers in pods.values() for names in servers.values() for name in names]


def order_as_a_tuple(devices):
    return tuple(ring_order(devices)[::-1])


def as_handed_out(devices):
    return [name for name, _, _ in devices]


def by_server_alone(devices):
    return [name for name, server, _ in sorted(devices, key=lambda each: each[1])]


def by_server_in_an_iterator(devices):
    return map(by_name, sorted(devices, key=lambda each: each[1]))


def by_name(device):
    return device[0]


def order_as_a_generator(devices):
    return (name for name in ring_order(devices))


def servers_take_turns(devices):
    groups = {}
    for name, server, _ in devices:
        groups.setdefault(server, []).append(name)
    dealt = itertools.chain(*itertools.zip_longest(*groups.values()))
    return [name for name in dealt if name]


def one_of_each_server(devices):
    return list({server: name for name, server, _ in devices}.values())


def one_of_them_twice(devices):
    order = ring_order(devices)
    return [order[0], *order[:-1]]


def places_in_the_list(devices):
    return sorted(range(len(devices)), key=lambda number: devices[number][::-1])


def by_numbers_of_names(devices):
    return sorted((name for name, *_ in devices), key=lambda name: int(name.split()[-1]))


def a_list_for_each_server(devices):
    servers = {}
    for name, server, pod in sorted(devices, key=lambda device: device[::-1]):
        servers.setdefault((pod, server), []).append(name)
    return list(servers.values())


def triples(devices):
    return sorted(devices, key=lambda device: device[::-1])


def sorted_in_place(devices):
    devices.sort(key=lambda device: device[::-1])
    return [name for name, *_ in devices]


def how_often_it_crosses(devices):
    return 8


def order_not_returned(devices):
    ring_order(devices)


# What is fed


def fed_stub(images_per_s, image_bytes, per_file, opens_per_s, bytes_per_s):
    """The largest whole number of servers whose GPUs do not wait."""
    ...


def fed_by_trying(images_per_s, image_bytes, per_file, opens_per_s, bytes_per_s):
    servers = 0
    while True:
        images = (servers + 1) * images_per_s * 91 / 90
        if images / per_file > opens_per_s or images * image_bytes > bytes_per_s:
            return servers
        servers += 1


def without_writes(rate, nbytes, per_file, opens, sent):
    return int(min(opens * per_file / rate, sent / rate / nbytes))


def parts_of_servers(rate, nbytes, per_file, opens, sent):
    return min(opens * per_file / rate, sent / rate / nbytes) * 90 / 91


def rounded_up(rate, nbytes, per_file, opens, sent):
    return math.ceil(parts_of_servers(rate, nbytes, per_file, opens, sent))


def to_the_nearest(rate, nbytes, per_file, opens, sent):
    return round(parts_of_servers(rate, nbytes, per_file, opens, sent))


def bytes_alone(rate, nbytes, per_file, opens, sent):
    return int(sent / rate / nbytes * 90 / 91)


def opens_alone(rate, nbytes, per_file, opens, sent):
    return int(opens * per_file / rate * 90 / 91)


def the_larger_one(rate, nbytes, per_file, opens, sent):
    return int(max(opens * per_file / rate, sent / rate / nbytes) * 90 / 91)


def shards_forgotten(rate, nbytes, per_file, opens, sent):
    return int(min(opens / rate, sent / rate / nbytes) * 90 / 91)


def shards_the_wrong_way(rate, nbytes, per_file, opens, sent):
    return int(min(opens / per_file / rate, sent / rate / nbytes) * 90 / 91)


def a_ninetieth_less(rate, nbytes, per_file, opens, sent):
    return int(min(opens * per_file / rate, sent / rate / nbytes) * 89 / 90)


def ninety_writes(rate, nbytes, per_file, opens, sent):
    return int(min(opens * per_file / rate, sent / rate / nbytes) / 90)


def bits(rate, nbytes, per_file, opens, sent):
    return servers_fed(rate, 8 * nbytes, per_file, opens, sent)


def fed_not_returned(rate, nbytes, per_file, opens, sent):
    servers_fed(rate, nbytes, per_file, opens, sent)


# Links


def with_a_name_for_each_direction(routes):
    loads = {}
    for nodes, nbytes in routes:
        for number in range(len(nodes) - 1):
            link = f"{nodes[number]} to {nodes[number + 1]}"
            loads[link] = loads.get(link, 0) + nbytes
    return max(loads.values())


def sorted_ends(routes):
    loads = {}
    for nodes, nbytes in routes:
        for ends in zip(nodes, nodes[1:]):
            link = tuple(sorted(ends))
            loads[link] = loads.get(link, 0) + nbytes
    return max(loads.values())


def by_taking_nodes_away(routes):
    loads = {}
    for nodes, nbytes in routes:
        one = nodes.pop(0)
        while nodes:
            other = nodes.pop(0)
            loads[one, other] = loads.get((one, other), 0) + nbytes
            one = other
    return max(loads.values())


def links_down_alone(routes):
    return busiest_link([(nodes[1:], nbytes) for nodes, nbytes in routes])


def links_up_alone(routes):
    loads = {}
    for nodes, nbytes in routes:
        top = len(nodes) // 2
        for link in zip(nodes[:top], nodes[1 : top + 1]):
            loads[link] = loads.get(link, 0) + nbytes
    return max(loads.values())


def half_of_it(routes):
    return busiest_link_with_the_bug(routes) / 2


def messages_counted(routes):
    return busiest_link([(nodes, 1) for nodes, _ in routes])


def largest_message(routes):
    return max(nbytes for _, nbytes in routes)


def all_links_together(routes):
    return sum((len(nodes) - 1) * nbytes for nodes, nbytes in routes)


def by_where_it_begins(routes):
    loads = {}
    for nodes, nbytes in routes:
        for one in nodes:
            loads[one] = loads.get(one, 0) + nbytes
    return max(loads.values()) * 3


def link_not_returned(routes):
    busiest_link(routes)


GALLERIES = [
    Gallery("pod_ports", ports_stub, [pod_ports, ports_in_whole_numbers], {
        "need a port of this switch, too": down_only,
        "that is only the ports up": up_only,
        "a port for each of its adapters": a_port_a_server,
        "half as many cables up": twice_as_many_up,
        "a part of a port cannot be bought": in_parts,
        "narrower than was accepted": rounded_down,
        "is on another switch": both_ends,
        "ports down and ports up are added": multiplied,
        "count the ports down, then those up": with_management,
        "nothing came back": ports_not_returned,
    }),
    Gallery("ring_order", order_stub,
            [ring_order, order_in_groups, order_as_a_tuple, order_as_a_generator], {
        "keep the devices of a server together": as_handed_out,
        "may be in different pods": by_server_alone,
        "2 times would do: servers that are neighbours": by_server_in_an_iterator,
        "that is round robin": servers_take_turns,
        "and your ring has 6 of them": one_of_each_server,
        "every device has to be in the ring once": one_of_them_twice,
        "not their numbers in the list": places_in_the_list,
        "not the triples": triples,
        "crosses between servers 39 times": by_numbers_of_names,
        "not a list for each server or pod": a_list_for_each_server,
        "the list that the function was given has changed": sorted_in_place,
        "a list of names is wanted": how_often_it_crosses,
        "nothing came back": order_not_returned,
    }),
    Gallery("servers_fed", fed_stub, [servers_fed, fed_by_trying], {
        "the writes take their part": without_writes,
        "a part of a server cannot be fed": parts_of_servers,
        "the last of these servers would have to wait": rounded_up,
        "the last server has to be fed": to_the_nearest,
        "also has to open the files": bytes_alone,
        "also has to send the bytes": opens_alone,
        "the smaller number counts": the_larger_one,
        "is opened once for all of them": shards_forgotten,
        "mean fewer opens, not more": shards_the_wrong_way,
        "divide by 1 + 1/90": a_ninetieth_less,
        "there is one write, not 90": ninety_writes,
        "does one server ask for in a second": bits,
        "nothing came back": fed_not_returned,
    }),
    Gallery("offer", (..., ...), [("C", 571), ["c", "571.4"], ("C", 80 / 0.14)], {
        "what does a step take if one adapter": ("A", 385),
        "three quarters go there": ("B", 643),
        "the shortest step, but of the fewest": ("D", 550),
        "that is what one of its servers does": ("C", 7.14),
        "its servers also have to send": ("C", 800),
        "and then sends 2 GB over 4 adapters": ("C", 100),
        "a pair is wanted": "C",
        "the offers are A, B, C and D": ("E", 571),
        "a number is wanted": ("C", "many"),
    }),
    Gallery("busiest_link", busiest_link_with_the_bug,
            [busiest_link, with_a_name_for_each_direction, by_taking_nodes_away], {
        "these are two links": sorted_ends,
        "only where both directions carry the same": half_of_it,
        "the bytes were asked for": messages_counted,
        "several may share a link": largest_message,
        "the busiest one was asked for": all_links_together,
        "pass a link in the same direction": by_where_it_begins,
        "a link down carries bytes, too": links_up_alone,
        "a link up carries bytes, too": links_down_alone,
        "nothing came back": link_not_returned,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)


def test_an_order_that_is_slow_inside_servers_is_told_how_fast_it_could_be():
    told = {answer: check_ring_order(answer) for answer in (ring_order, order_in_groups)}
    assert "takes 16 ms" in told[ring_order] and "Inside" not in told[ring_order]
    assert "takes 31 ms" in told[order_in_groups] and "takes 16 ms" in told[order_in_groups]
