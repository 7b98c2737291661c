"""A billion parameters, a break-even, a cut for a layer, a time predicted, one message for many,
bits and bytes: answers that were really likely."""

import statistics

import torch

from course.classroom.problems.p08_network_bottleneck import (
    predicted_seconds,
    seconds_on_wire,
    seconds_on_wire_bits,
    send_one_by_one,
    send_together,
)
from course.collectives import broadcast, cost
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


def together_in_the_list(comm, tensors):
    row = torch.cat([x.flatten() for x in tensors])
    comm.recv(row, 0) if comm.rank else comm.send(row, 1)
    for i, part in enumerate(row.split([x.numel() for x in tensors])):
        tensors[i] = part.view_as(tensors[i])


# A time predicted


def predicted_by_the_package(measure, nbytes):
    link = cost.fit([(n, measure(n)) for n in (2, 10**6) * 5])
    return link.alpha_s + nbytes * link.beta_s_per_byte


def predicted_by_medians(measure, nbytes):
    short = statistics.median(measure(0) for _ in range(5))
    return short + nbytes * (statistics.median(measure(10**6) for _ in range(5)) - short) / 10**6


def predicted_as_tensor(measure, nbytes):
    times = torch.tensor([[measure(n) for n in (1, 10**6)] for _ in range(4)]).min(dim=0).values
    return times[0] + nbytes * (times[1] - times[0]) / 10**6


def predicted_stub(measure, nbytes):
    """Seconds that a message of nbytes will take."""
    ...


def predicted_by_bandwidth(measure, nbytes):
    return nbytes * min(measure(10**6) for _ in range(10)) / 10**6


def predicted_with_latency_twice(measure, nbytes):
    short, long = (min(measure(n) for _ in range(5)) for n in (1, 10**6))
    return short + nbytes * long / 10**6


def predicted_by_short_ones(measure, nbytes):
    return min(measure(4) for _ in range(10)) * nbytes / 4


def predicted_by_two_calls(measure, nbytes):
    short, long = measure(1), measure(1_000_000)
    return short + nbytes * (long - short) / 1_000_000


def predicted_by_means(measure, nbytes):
    short = sum(measure(1) for _ in range(5)) / 5
    long = sum(measure(10**6) for _ in range(5)) / 5
    return short + nbytes * (long - short) / 10**6


def predicted_by_measuring(measure, nbytes):
    return measure(nbytes)


def predicted_by_many_calls(measure, nbytes):
    short, long = (min(measure(n) for _ in range(100)) for n in (1, 10**6))
    return short + nbytes * (long - short) / 10**6


def predicted_in_ms(measure, nbytes):
    return 1000 * predicted_seconds(measure, nbytes)


def predicted_nothing(measure, nbytes):
    predicted_seconds(measure, nbytes)


# Bits and bytes


def wire_by_bytes_per_s(x, gbit_per_s, latency_us):
    return x.nbytes / (gbit_per_s * 125e6) + latency_us * 1e-6


def wire_by_len(x, gbit_per_s, latency_us):
    return latency_us / 1e6 + 8 * len(x) * x.element_size() / 1e9 / gbit_per_s


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


def wire_of_floats(x, gbit_per_s, latency_us):
    return latency_us / 1e6 + torch.finfo(x.dtype).bits * x.numel() / 1e9 / gbit_per_s


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
        [5653, 4 / 3 * 5 * 10.6e12 / 12.5e9, 5654.0],
        {
            "what each of six GPUs has": 942.2,
            "that is for two GPUs": 1131,
            "a GPU has its own part": 6784,
            "that is F β, the operations": 848,
            "that is (p - 1) F β": 4240,
            "the other way round": 3180,
            "are gigabits, and a byte has eight": 706.7,
            "turn bits into bytes once": 45_227,
            "that is the way forward alone": 8480,
            "a number has 4 bytes here": 1413.3,
            "that is for a GTX 680": 1648,
            "out of the question": 1.1e12,
            "take 2.83 times as long": 2000,
        },
    ),
    Gallery(
        "which_cut",
        (..., ..., ...),
        [("images", "neurons", "one"), ["Data parallel", "tensor-parallel", "none"]],
        {
            "layer a: 'neurons' takes": ("neurons", "neurons", "one"),
            "layer a: 'one' takes": ("one", "neurons", "one"),
            "layer b: each GPU keeps all weights": ("images", "images", "one"),
            "layer b: the GPU keeps all weights": ("images", "one", "one"),
            "layer c: 'neurons' takes": ("images", "neurons", "neurons"),
            "layer c: 'images' takes": ("images", "neurons", "images"),
            "layer b: 'layers' is none of": ("images", "layers", "one"),
            "three words are wanted": "images",
        },
    ),
    Gallery(
        "predicted_seconds",
        predicted_stub,
        [predicted_by_the_package, predicted_by_medians, predicted_as_tensor, predicted_seconds],
        {
            "with a bandwidth alone": predicted_by_bandwidth,
            "a long message has paid its latency, too": predicted_with_latency_twice,
            "nearly all of a short message is latency": predicted_by_short_ones,
            "one of your measurements was disturbed": predicted_by_two_calls,
            "a mean counts the disturbed messages": predicted_by_means,
            "measure(100,000,000) is against the rules": predicted_by_measuring,
            "only 10 calls": predicted_by_many_calls,
            "a message of 100,000,000 bytes takes 0.8 s": predicted_in_ms,
            "nothing came back": predicted_nothing,
        },
    ),
    Gallery(
        "send_together",
        send_one_by_one,
        [together_in_a_buffer, together_with_handles, send_together],
        {
            "5 messages were sent where one is enough": one_by_one_by_number,
            "tensor 0 of rank 1 holds nothing yet": together_and_forgotten,
            "changes the list only": together_in_the_list,
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
        "seconds_on_wire",
        seconds_on_wire_bits,
        [wire_by_bytes_per_s, seconds_on_wire],
        {
            "len(x) counts along the first axis": wire_by_len,
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
            "on the imagined cluster, and 0.8365 s by your function": wire_with_packaging,
            "wire_of_floats, line 2 of your cell:": wire_of_floats,
        },
    ),
]

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
