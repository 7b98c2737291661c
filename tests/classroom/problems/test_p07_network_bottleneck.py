"""A billion parameters, a break-even, one message for many, seconds of a ring, bits and bytes:
answers that were really likely."""

import math

import torch

from course.classroom.problems.p07_network_bottleneck import (
    all_gather_seconds,
    seconds_on_wire,
    seconds_on_wire_bits,
    send_one_by_one,
    send_together,
)
from course.collectives import broadcast
from tests.classroom.gallery import Gallery, gallery_tests

# One message for many tensors


def together_in_a_buffer(comm, tensors):
    buffer, at = torch.empty(sum(x.numel() for x in tensors)), 0
    places = []
    for x in tensors:
        places.append(buffer[at : at + x.numel()])
        at += x.numel()
    if comm.rank == 0:
        for place, x in zip(places, tensors):
            place.copy_(x.reshape(-1))
        comm.send(buffer, 1)
    else:
        comm.recv(buffer, 0)
        for place, x in zip(places, tensors):
            x.reshape(-1).copy_(place)


def together_with_handles(comm, tensors):
    row = torch.cat([x.view(-1) for x in tensors])
    (comm.isend(row, 1) if comm.rank == 0 else comm.irecv(row, 0)).wait()
    if comm.rank:
        for x, part in zip(tensors, row.split([x.numel() for x in tensors])):
            x[...] = part.view(x.shape)


def one_by_one_by_number(comm, tensors):
    for k in range(len(tensors)):
        comm.recv(tensors[k], 0) if comm.rank else comm.send(tensors[k], 1)


def together_and_forgotten(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)


def together_returned(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)
    parts = row.split([x.numel() for x in tensors])
    return [part.view(x.shape) for x, part in zip(tensors, parts)]


def together_each_from_the_start(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)
    for x in tensors:
        if comm.rank:
            x.copy_(row[: x.numel()].view_as(x))


def together_transposed(comm, tensors):
    row = torch.cat([x.T.flatten() if x.dim() == 2 else x.flatten() for x in tensors])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)
    for x, part in zip(tensors, row.split([x.numel() for x in tensors])):
        if comm.rank:
            x.copy_(part.view_as(x))


def together_padded(comm, tensors):
    longest = max(x.numel() for x in tensors)
    table = torch.zeros(len(tensors), longest)
    for row, x in zip(table, tensors):
        row[: x.numel()] = x.flatten()
    comm.recv(table, 0) if comm.rank else comm.send(table, 1)
    for row, x in zip(table, tensors):
        x.copy_(row[: x.numel()].view_as(x))


def together_there_and_back(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    other = torch.empty_like(row)
    comm.exchange(row, 1 - comm.rank, other, 1 - comm.rank)
    for x, part in zip(tensors, other.split([x.numel() for x in tensors])):
        x.copy_(part.view_as(x))


def together_by_broadcast(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    broadcast(comm, row)
    for x, part in zip(tensors, row.split([x.numel() for x in tensors])):
        x.copy_(part.view_as(x))


def together_both_receive(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    comm.recv(row, 1 - comm.rank)


def together_in_another_order(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors[::-1]])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)
    for x, part in zip(tensors, row.split([x.numel() for x in tensors])):
        if comm.rank:
            x.copy_(part.view_as(x))


# Seconds of a ring


def ring_stub(p, nbytes, alpha, beta):
    """Seconds until each of p ranks has all parts."""
    ...


def ring_added_up(p, nbytes, alpha, beta):
    seconds = 0.0
    for _ in range(p - 1):
        seconds += alpha + nbytes * beta
    return seconds


def ring_as_tensor(p, nbytes, alpha, beta):
    return torch.tensor((p - 1) * (alpha + nbytes * beta))


def ring_of_p_steps(p, nbytes, alpha, beta):
    return p * (alpha + nbytes * beta)


def ring_one_latency(p, nbytes, alpha, beta):
    return alpha + (p - 1) * nbytes * beta


def ring_one_part(p, nbytes, alpha, beta):
    return (p - 1) * alpha + nbytes * beta


def ring_of_the_total(p, nbytes, alpha, beta):
    return (p - 1) * alpha + (p - 1) / p * nbytes * beta


def ring_one_step(p, nbytes, alpha, beta):
    return alpha + nbytes * beta


def ring_without_latency(p, nbytes, alpha, beta):
    return (p - 1) * nbytes * beta


def ring_in_turns(p, nbytes, alpha, beta):
    return p * (p - 1) * (alpha + nbytes * beta)


def ring_of_bits(p, nbytes, alpha, beta):
    return (p - 1) * (alpha + 8 * nbytes * beta)


def ring_by_bandwidth(p, nbytes, alpha, beta):
    return (p - 1) * (alpha + nbytes / beta)


def ring_twice(p, nbytes, alpha, beta):
    return 2 * (p - 1) * (alpha + nbytes * beta)


def ring_as_a_tree(p, nbytes, alpha, beta):
    return math.ceil(math.log2(p)) * (alpha + nbytes * beta)


def ring_returns_nothing(p, nbytes, alpha, beta):
    (p - 1) * (alpha + nbytes * beta)


# Bits and bytes


def wire_by_bytes_per_s(x, gbit_per_s, latency_us):
    return x.nbytes / (gbit_per_s * 125e6) + latency_us * 1e-6


def wire_still_bits(x, gbit_per_s, latency_us):
    gigabytes = x.numel() * x.element_size() / 1e9
    return latency_us / 1e6 + gigabytes / gbit_per_s


def wire_of_another_2_30(x, gbit_per_s, latency_us):
    nbytes = x.numel() * x.element_size()
    return latency_us / 1e6 + nbytes / (gbit_per_s * 2**30)


def wire_still_2_30(x, gbit_per_s, latency_us):
    gigabits = 8 * x.numel() * x.element_size() / 2**30
    return latency_us / 1e6 + gigabits / gbit_per_s


def wire_divided(x, gbit_per_s, latency_us):
    gigabytes = x.numel() * x.element_size() / 1e9
    return latency_us / 1e6 + gigabytes / 8 / gbit_per_s


def wire_divided_2_30(x, gbit_per_s, latency_us):
    gigabytes = x.numel() * x.element_size() / 2**30
    return latency_us / 1e6 + gigabytes / 8 / gbit_per_s


def wire_of_4_bytes(x, gbit_per_s, latency_us):
    return latency_us / 1e6 + 32 * x.numel() / 1e9 / gbit_per_s


def wire_of_numbers(x, gbit_per_s, latency_us):
    return latency_us / 1e6 + 8 * x.numel() / 1e9 / gbit_per_s


def wire_without_latency(x, gbit_per_s, latency_us):
    return 8 * x.nbytes / 1e9 / gbit_per_s


def wire_of_milliseconds(x, gbit_per_s, latency_us):
    return latency_us / 1e3 + 8 * x.nbytes / 1e9 / gbit_per_s


def wire_latency_of_seconds(x, gbit_per_s, latency_us):
    return latency_us + 8 * x.nbytes / 1e9 / gbit_per_s


def wire_with_packaging(x, gbit_per_s, latency_us):
    return latency_us / 1e6 + 8 * x.nbytes * 1514 / 1448 / 1e9 / gbit_per_s


GALLERIES = [
    Gallery(
        "billion_parameters",
        ...,
        [3.0, 2 * 15 / 16 * 8 * 2e9 / 10e9, torch.tensor(3.0)],
        {
            "10 Gb/s are gigabits": 0.375,
            "turned into bits twice": 24,
            "that is at 1 Gb/s; here it is 10": 30,
            "4 bytes a parameter; half precision has 2": 6.0,
            "twice: for the sum, and to spread it": 1.5,
            "at the same time, not in turns": 48,
            "that is each byte once": 1.6,
            "a machine keeps one part in p": 3.2,
            "sends 6.25 of all the bytes": 10,
            "a number is wanted": "three seconds",
        },
    ),
    Gallery(
        "break_even_layer",
        ...,
        [1131, 4 / 3 * 10.6e12 / 12.5e9, 1130.0],
        {
            "a step does 3/4 n of them": 848,
            "the other way round": 636,
            "are gigabits, and a byte has eight": 141.3,
            "turn bits into bytes once": 9045,
            "that is the way forward alone": 1696,
            "a float32 has 4 bytes": 282.7,
            "of two ranks p - 1 is one": 2261,
            "that is for a GTX 680": 329.6,
            "out of the question": 1.1e12,
            "take 2.26 times as long": 500,
        },
    ),
    Gallery(
        "send_together",
        send_one_by_one,
        [together_in_a_buffer, together_with_handles, send_together],
        {
            "5 messages were sent where one is enough": one_by_one_by_number,
            "tensor 0 of rank 1 holds nothing yet": together_and_forgotten,
            "do not return others": together_returned,
            "begins where the message begins": together_each_from_the_start,
            "the right numbers in the wrong order": together_transposed,
            "bytes were sent in all where": together_padded,
            "tensor 0 of rank 0 was changed": together_there_and_back,
            "broadcast does the work for you": together_by_broadcast,
            "the ranks wait for one another": together_both_receive,
            "holds other numbers than that of rank 0": together_in_another_order,
        },
    ),
    Gallery(
        "all_gather_seconds",
        ring_stub,
        [ring_added_up, ring_as_tensor, all_gather_seconds],
        {
            "p - 1 steps, not p": ring_of_p_steps,
            "pays its own α": ring_one_latency,
            "a whole part crosses": ring_one_part,
            "those of one part, not of all": ring_of_the_total,
            "that is a single step": ring_one_step,
            "where is α?": ring_without_latency,
            "all ranks send at the same time": ring_in_turns,
            "not for bits": ring_of_bits,
            "seconds per byte: multiply": ring_by_bandwidth,
            "once round the ring is enough": ring_twice,
            "the imagined cluster takes": ring_as_a_tree,
            "nothing came back": ring_returns_nothing,
        },
    ),
    Gallery(
        "seconds_on_wire",
        seconds_on_wire_bits,
        [wire_by_bytes_per_s, seconds_on_wire],
        {
            "x is counted in bytes": wire_still_bits,
            "and 2**30 is one mistake more": wire_of_another_2_30,
            "2**30 is for memory": wire_still_2_30,
            "do not divide.": wire_divided,
            "do not divide; and giga": wire_divided_2_30,
            "not every number has 4 bytes": wire_of_4_bytes,
            "x.numel() counts numbers": wire_of_numbers,
            "the latency is lost": wire_without_latency,
            "a microsecond is a millionth": wire_of_milliseconds,
            "a microsecond is not a second": wire_latency_of_seconds,
            "on the imagined cluster, not": wire_with_packaging,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
