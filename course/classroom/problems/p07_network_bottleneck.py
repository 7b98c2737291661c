"""Exercises of notebook 07: a billion parameters under other assumptions, the size at which a layer
is worth cutting, many tensors in one message, the seconds of a ring, bits that are no bytes.

What an answer predicts is run on an imagined cluster.
"""

import torch

from course.classroom.answers import EMPTY, function, number, on_ranks
from course.classroom.comparison import close, like, refuse
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.cluster.fabric import one_switch
from course.cluster.hardware import EDR, FREE, GTX_680, P100, Cable
from course.collectives import all_gather, cost
from course.worlds import run, simulated

COUNT, RING, BYTES_EACH, GIGABITS = 10**9, 16, 2, 10  # parameters, machines, bytes, Gb/s
BATCH = 256  # images, for which the answer does not matter
SHAPES = ((3, 4), (), (1000,), (0,), (2, 5, 7))  # tensors of a small network


def on_imagined(fn, ranks, cable, *args, device=FREE):
    """The latest clock of `fn(comm, *args)` on `ranks` imagined ranks, two cables a message."""
    world = simulated(one_switch(ranks, device, cable), device="meta")
    return max(run(fn, ranks, *args, on=world, checked=False, timeout=None))


def check_billion_parameters(answer):
    seconds, bits = number(answer), 8 * COUNT * BYTES_EACH / (1e9 * GIGABITS)
    share = 2 * (RING - 1) / RING
    refuse(
        seconds,
        (share * bits / 8, f"{GIGABITS} Gb/s are gigabits, and a byte has eight of them."),
        (share * bits * 8, "the bytes were turned into bits twice."),
        (share * bits * GIGABITS, f"that is at 1 Gb/s; here it is {GIGABITS}."),
        (share * bits * 2, "that is with 4 bytes a parameter; half precision has 2."),
        (share * bits / 2, "each machine sends its share twice: for the sum, and to spread it."),
        (share * bits * RING, f"the {RING} machines send at the same time, not in turns."),
        (bits, "that is each byte once; in a ring a machine sends 2 (p - 1) / p of the bytes."),
        (2 * bits, "nearly: a machine keeps one part in p for itself, so it is 2 (p - 1) / p."),
        tolerance=0.01,
    )
    if not close(seconds, share * bits, 0.01):
        raise Wrong(f"in {seconds:.4g} s a machine sends {seconds / bits:.3g} of all the bytes.")
    return f"{share:.4g} times {COUNT * BYTES_EACH / 1e9:.0f} GB at {GIGABITS / 8} GB/s."


def check_break_even_layer(answer):
    n, balance = number(answer), P100.flops_per_s / EDR.bytes_per_s
    n_680 = 4 / 3 * GTX_680.flops_per_s / EDR.bytes_per_s
    if not 2 <= n < 1e7:
        raise Wrong(f"a layer of {n:.4g} neurons is out of the question.")
    refuse(
        n,
        (balance, "that is F β, the operations in the time of a byte; a step does 3/4 n of them."),
        (balance * 3 / 4, "the other way round: 3/4 n must be F β."),
        (balance / 6, "100 Gb/s are gigabits, and a byte has eight of them."),
        (balance * 32 / 3, "turn bits into bytes once: 100 Gb/s are 12.5 GB/s."),
        (balance * 2, "that is the way forward alone; the way back has two products more."),
        (balance / 3, "a float32 has 4 bytes."),
        (balance * 8 / 3, "4/3 (p - 1) F β it is, and of two ranks p - 1 is one."),
        (n_680, "that is for a GTX 680; a P100 does 10.6 TFLOP/s."),
        tolerance=0.005,
    )
    arithmetic, network = (
        on_imagined(step, 2, EDR._replace(latency_s=0), 2 * round(n / 2), part, device=P100)
        for part in ("arithmetic", "network")
    )
    if not close(network, arithmetic, 0.01):
        raise Wrong(
            f"with {n:.4g} neurons the imagined P100s take {network / arithmetic:.3g} times as "
            f"long for the network as for the arithmetic."
        )
    return f"on the imagined cluster both take {arithmetic * 1e6:.0f} µs."


def step(comm, n, part):
    """The clock after one part of a training step with the neurons cut in two."""
    x, weights = (torch.empty(k, n // 2, device=comm.device) for k in (BATCH, n))
    if part == "network":
        for _ in range(2):
            comm.exchange(x, 1 - comm.rank, torch.empty_like(x), 1 - comm.rank)
    else:
        inputs = torch.empty(BATCH, n, device=comm.device)
        y = inputs @ weights
        inputs.T @ y, y @ weights.T
    return comm.clock()


def send_one_by_one(comm, tensors):
    """Rank 1's tensors become those of rank 0, in place."""
    for x in tensors:
        if comm.rank == 0:
            comm.send(x, 1)
        else:
            comm.recv(x, 0)


def send_together(comm, tensors):
    """Make the `tensors` of rank 1 [list, any shapes] those of rank 0.

    Cost: one message of all their bytes.
    """
    together = torch.cat([x.flatten() for x in tensors])
    if comm.rank == 0:
        return comm.send(together, 1)
    comm.recv(together, 0)
    for x, part in zip(tensors, together.split([x.numel() for x in tensors])):
        x.copy_(part.view_as(x))


def check_send_together(answer):
    (sender, receiver), trace = on_ranks(sent, 2, function(answer))
    wanted, kept, _ = sender
    before, after, returned = receiver
    for k, x in enumerate(kept):
        if not torch.equal(x, wanted[k]):
            raise Wrong(f"tensor {k} of rank 0 was changed.")
    if isinstance(returned, list | tuple) and all(map(torch.equal, after, before)):
        raise Wrong("rank 1's own tensors have to change: do not return others.")
    for k, x in enumerate(after):
        if not torch.equal(x, wanted[k]):
            raise Wrong(f"tensor {k} of rank 1 {what_of(x, k, wanted)}.")
    only_messages(trace, answer)
    count, nbytes, enough = (
        len(trace.messages),
        sum(trace.sent_bytes),
        4 * sum(map(torch.numel, wanted)),
    )
    if nbytes > enough:
        raise Wrong(f"{nbytes} bytes were sent in all where {enough} are enough.")
    if count > 1:
        raise Wrong(f"{count} messages were sent where one is enough: each of them pays α.")
    return f"{len(SHAPES)} tensors in one message of {enough} bytes."


def sent(comm, answer):
    """This rank's tensors before and after, and what the answer returned."""
    mine = torch.rand if comm.rank == 0 else lambda shape: torch.full(shape, EMPTY)
    tensors = [mine(shape) for shape in SHAPES]
    before = [x.clone() for x in tensors]
    return before, tensors, answer(comm, tensors)


def what_of(x, k, wanted) -> str:
    """In words, what tensor `k` holds instead of wanted[k]."""
    if (x == EMPTY).all():
        return "holds nothing yet"
    stream = torch.cat([other.flatten() for other in wanted])
    if torch.equal(x.flatten(), stream[: x.numel()]):
        return "begins where the message begins, not where the tensor before it ends"
    if torch.equal(x.flatten().sort().values, wanted[k].flatten().sort().values):
        return "has the right numbers in the wrong order"
    return "holds other numbers than that of rank 0"


def all_gather_seconds(p, nbytes, alpha, beta):
    """Seconds until each of `p` ranks has all parts of `nbytes` bytes each, round the ring."""
    return cost.all_gather([nbytes] * p).seconds(alpha, beta)


def check_all_gather_seconds(answer):
    slips = (
        (lambda p, n, a, b: p * (a + n * b), "own part need not travel: p - 1 steps, not p."),
        (lambda p, n, a, b: a + (p - 1) * n * b, "every step is a message, and pays its own α."),
        (
            lambda p, n, a, b: (p - 1) * a + n * b,
            "in every step a whole part crosses, nbytes long.",
        ),
        (lambda p, n, a, b: (p - 1) * (a + n / p * b), "nbytes are those of one part, not of all."),
        (lambda p, n, a, b: a + n * b, "that is a single step."),
        (lambda p, n, a, b: (p - 1) * n * b, "a message costs more than its bytes: where is α?"),
        (lambda p, n, a, b: p * (p - 1) * (a + n * b), "all ranks send at the same time."),
        (lambda p, n, a, b: (p - 1) * (a + 8 * n * b), "β is for bytes, not for bits."),
        (lambda p, n, a, b: (p - 1) * (a + n / b), "β is seconds per byte: multiply by it."),
        (
            lambda p, n, a, b: 2 * (p - 1) * (a + n * b),
            "once round the ring is enough: p - 1 steps.",
        ),
    )
    for p, n, alpha, beta in ((4, 1000, 2**-10, 2**-20), (1, 64, 1.0, 1.0), (7, 4, 0.0, 0.5)):
        got = like(function(answer)(p, n, alpha, beta), 0.0, "the answer")
        took = on_imagined(gathered, p, Cable("ring", alpha / 2, 1 / beta, ""), n)
        if not close(got, took):
            where = f"{p} ranks, {n} bytes, α = {alpha:.3g} s, β = {beta:.3g} s"
            refuse(got, *((slip(p, n, alpha, beta), words) for slip, words in slips))
            raise Wrong(f"{where}: the imagined cluster takes {took:.4g} s, not {got:.4g}.")
    return "as the imagined cluster has it, on 4, 1 and 7 ranks."


def gathered(comm, nbytes):
    """The clock when this rank has all parts."""
    parts = torch.empty(comm.size, nbytes, dtype=torch.uint8, device=comm.device)
    all_gather(comm, list(parts), parts[comm.rank].clone())
    return comm.clock()


def seconds_on_wire_bits(x, gbit_per_s, latency_us):
    """Seconds in which tensor x crosses a link of so many Gb/s."""
    gigabytes = x.numel() * x.element_size() / 2**30
    return latency_us / 1e6 + gigabytes / gbit_per_s


def seconds_on_wire(x, gbit_per_s, latency_us):
    """Seconds in which tensor `x` [any shape and type] crosses a link of `gbit_per_s` Gb/s."""
    gigabits = 8 * x.numel() * x.element_size() / 1e9
    return latency_us / 1e6 + gigabits / gbit_per_s


def check_seconds_on_wire(answer):
    def slip(per_byte, giga, each=None, latency=1e-6):
        return lambda x, rate, us: (
            latency * us + per_byte * x.numel() * (each or x.element_size()) / giga / rate
        )

    slips = (
        (slip(1, 2**30), "the rate is in bits; and 2**30 is one mistake more."),
        (slip(1, 1e9), "the rate is in bits, and x is counted in bytes."),
        (slip(8, 2**30), "nearly: in a network giga is 10**9; 2**30 is for memory."),
        (slip(1 / 8, 1e9), "a byte has eight bits: multiply by 8, do not divide."),
        (slip(1 / 8, 2**30), "multiply by 8, do not divide; and giga is 10**9."),
        (slip(8, 1e9, each=4), "not every number has 4 bytes: ask x.element_size()."),
        (slip(8, 1e9, each=1), "x.numel() counts numbers; each has x.element_size() bytes."),
        (slip(8, 1e9, latency=0), "the bytes are right, but the latency is lost."),
        (slip(8, 1e9, latency=1e-3), "a microsecond is a millionth of a second."),
        (slip(8, 1e9, latency=1), "a microsecond is not a second."),
    )
    for kind, count, rate, us in ((torch.float32, 25_000_000, 1, 50), (torch.float16, 1000, 10, 3),
                                  (torch.float64, 10**6, 54.5, 0)):  # fmt: skip
        x = torch.empty(count, dtype=kind, device="meta")
        got = like(function(answer)(x, rate, us), 0.0, "the answer")
        took = on_imagined(passed, 2, Cable("", us / 2e6, rate * 1e9 / 8, ""), count, kind)
        if not close(got, took):
            refuse(got, *((each(x, rate, us), words) for each, words in slips))
            raise Wrong(
                f"{count:,} numbers of {x.element_size()} bytes at {rate} Gb/s take {took:.4g} s "
                f"on the imagined cluster, not {got:.4g}."
            )
    return "as the imagined cluster has it, for numbers of 2, 4 and 8 bytes."


def passed(comm, count, kind):
    """The clock when rank 1 has `count` numbers of rank 0."""
    x = torch.empty(count, dtype=kind, device=comm.device)
    comm.send(x, 1) if comm.rank == 0 else comm.recv(x, 0)
    return comm.clock()


EXERCISES = [
    Exercise(
        "billion_parameters",
        f"a billion parameters of {BYTES_EACH} bytes are added up in a ring of {RING} machines, of "
        f"which each sends 2 (p - 1) / p of the bytes, all at the same time over {GIGABITS} Gb/s "
        "Ethernet: how many seconds does it take, latency left out?",
        check_billion_parameters,
        (
            "how many bits are a billion parameters?",
            f"2 (p - 1) / p of {RING} machines is 30 / 16.",
            "bits that one machine sends, by bits per second.",
        ),
        "2 * 15 / 16 * 8 * 2e9 / 10e9, which is 3.0: 16 machines, 8 bits a byte, 2e9 bytes.",
    ),
    Exercise(
        "break_even_layer",
        "two Tesla P100 (10.6 TFLOP/s) are joined by EDR InfiniBand (100 Gb/s), and the neurons of "
        "a layer are cut in two: from how many neurons on does the arithmetic of a training step "
        "take longer than the network?",
        check_break_even_layer,
        (
            "how many operations does a P100 do in the time of one byte?",
            "100 Gb/s are 12.5 GB/s.",
            "a step does 3/4 n operations with each byte that crosses.",
        ),
        "4 / 3 * 10.6e12 / 12.5e9, which is 1131.",
    ),
    Exercise(
        "send_together",
        "change send_together(comm, tensors) so that rank 1's tensors become those of rank 0, in "
        "place and whatever their shapes, with a single message.",
        check_send_together,
        (
            "x.flatten() makes a row of any tensor, and torch.cat one row of many.",
            "both ranks know all shapes: rank 1 can prepare a row of the right length.",
            "row.split([x.numel() for x in tensors]) cuts it again; x.copy_(part.view_as(x)).",
        ),
        send_together,
        given=send_one_by_one,
    ),
    Exercise(
        "all_gather_seconds",
        "write all_gather_seconds(p, nbytes, alpha, beta): each of p ranks has a part of nbytes "
        "bytes, and in each step passes one part to its right neighbour, until all have all; how "
        "many seconds does it take?",
        check_all_gather_seconds,
        (
            "how many parts does a rank lack at the beginning?",
            "it gets one a step, and all ranks are in the same step at the same time.",
            "a step is a message: alpha + nbytes * beta.",
        ),
        all_gather_seconds,
    ),
    Exercise(
        "seconds_on_wire",
        "find what is wrong with seconds_on_wire(x, gbit_per_s, latency_us), by which 100 MB cross "
        "in 0.09 s at 1 Gb/s, and repair it, for numbers of any type.",
        check_seconds_on_wire,
        (
            "what does Gb/s count, and what does x.element_size()?",
            "a network's giga is 10**9.",
            "there are two mistakes, both in one line, and a factor of 8.6 in all.",
        ),
        seconds_on_wire,
        given=seconds_on_wire_bits,
    ),
]
