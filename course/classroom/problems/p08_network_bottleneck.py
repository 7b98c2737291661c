"""Exercises of notebook 08: a billion parameters under other assumptions, the size at which a layer
is worth cutting, which cut for which layer, a network measured and a time predicted, many tensors
in one message, bits that are no bytes.

What an answer predicts is run on an imagined cluster.
"""

import random

import torch

from course.classroom.answers import EMPTY, function, number, on_ranks
from course.classroom.comparison import close, like, refuse
from course.classroom.patterns import only_messages
from course.classroom.problems import Exercise, Wrong
from course.cluster.hardware import EDR, FREE, GTX_680, P100, V100, Cable
from course.collectives import all_gather, reduce_scatter
from course.worlds import run, simulated

COUNT, RING, BYTES_EACH, GIGABITS = 10**9, 16, 2, 10  # parameters, machines, bytes, Gb/s
SHARING, BATCH = 6, 256  # GPUs of a layer; images, for which the answer does not matter
SHAPES = ((3, 4), (), (1000,), (0,), (2, 5, 7))  # tensors of a small network


def on_imagined(fn, ranks, cable, *args, device=FREE):
    """The latest clock of `fn(comm, *args)` on `ranks` imagined ranks, two cables a message."""
    from course.cluster.fabric import one_switch  # here: no rank has use for networkx, 0.3 s

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
    others = SHARING - 1
    right, n_680 = (4 / 3 * others * each.flops_per_s / EDR.bytes_per_s for each in (P100, GTX_680))
    if not 2 <= n < 1e7:
        raise Wrong(f"a layer of {n:.4g} neurons is out of the question.")
    refuse(
        n,
        (right / SHARING, "that is what each of six GPUs has; the whole layer is asked for."),
        (
            right / others,
            "that is for two GPUs; of six, each hears the activations of five others.",
        ),
        (right * SHARING / others, "nearly: a GPU has its own part, so p - 1 = 5 others send."),
        (balance, "that is F β, the operations in the time of a byte; a step does 3/4 n/(p - 1)."),
        (balance * others, "that is (p - 1) F β: what about the 3/4 of the table?"),
        (balance * 3 / 4 * others, "the other way round: 3/4 n/(p - 1) must be F β."),
        (right / 8, "100 Gb/s are gigabits, and a byte has eight of them."),
        (right * 8, "turn bits into bytes once: 100 Gb/s are 12.5 GB/s."),
        (
            balance * 2 * others,
            "that is the way forward alone; backward there are two more products.",
        ),
        (right / 4, "a number has 4 bytes here, not 1."),
        (n_680, "that is for a GTX 680; a P100 does 10.6 TFLOP/s."),
        tolerance=0.005,
    )
    cable, whole = EDR._replace(latency_s=0), SHARING * round(n / SHARING)
    arithmetic = on_imagined(step, SHARING, cable, whole, "arithmetic", device=P100)
    network = on_imagined(step, SHARING, cable, whole, "network")
    if not close(network, arithmetic, 0.01):
        raise Wrong(
            f"with {n:.4g} neurons six imagined P100s take {network / arithmetic:.3g} times as "
            "long for the network as for the arithmetic."
        )
    return f"4/3 * 5 * F β: on the imagined cluster both take {arithmetic * 1e3:.2g} ms."


def step(comm, n, part):
    """The clock after one part of a training step with the neurons cut."""
    parts = [torch.empty(BATCH, n // comm.size, device=comm.device) for _ in range(comm.size)]
    if part == "network":
        all_gather(comm, parts, parts[comm.rank].clone())
        reduce_scatter(comm, parts[comm.rank].clone(), parts)
    else:
        inputs = torch.empty(BATCH, n, device=comm.device)
        weights = torch.empty(n, n // comm.size, device=comm.device)
        y = inputs @ weights
        inputs.T @ y, y @ weights.T
    return comm.clock()


# Which cut?

GPUS, WEIGHT_BYTES, MESSAGE_S = 8, 16, 1e-6
LAYERS = {"a": (4_000, 65_536), "b": (36_000, 40_000), "c": (1_000, 256)}  # neurons, images
CHOICES = {
    "one": "one", "none": "one", "one gpu": "one", "1": "one",
    "images": "images", "data": "images", "data parallel": "images",
    "neurons": "neurons", "model parallel": "neurons", "tensor parallel": "neurons",
}  # fmt: skip


def step_s(choice, n, batch) -> tuple:
    """Seconds of arithmetic and of network in a step of a layer."""
    arithmetic = 6 * batch * n * n / V100.flops_per_s
    if choice == "one":
        return arithmetic, 0.0
    numbers = 2 * (GPUS - 1) / GPUS * (n if choice == "images" else batch) * n
    network = 2 * (GPUS - 1) * MESSAGE_S + 4 * numbers / EDR.bytes_per_s
    return arithmetic / GPUS, network


def check_which_cut(answer):
    if not isinstance(answer, tuple | list) or len(answer) != len(LAYERS):
        raise Wrong("three words are wanted: for layer a, for layer b and for layer c.")
    for (layer, (n, batch)), word in zip(LAYERS.items(), answer):
        choice = CHOICES.get(str(word).lower().strip().replace("-", " "))
        if choice is None:
            raise Wrong(f"layer {layer}: {word!r:.40} is none of 'one', 'images', 'neurons'.")
        check_choice(layer, choice, n, batch)
    return (
        "a has more images than the break-even, 4/3 * 7 * F β = 11,723; b fits only if its weights "
        "are cut; c is too small to be cut at all."
    )


def check_choice(layer, choice, n, batch):
    held = WEIGHT_BYTES * n * n / (GPUS if choice == "neurons" else 1)
    if held > V100.memory_bytes:
        many = "each GPU keeps all weights" if choice == "images" else "the GPU keeps all weights"
        raise Wrong(
            f"layer {layer}: {many}, 16 bytes for each of {n * n:,}: {held / 1e9:.1f} GB, and it "
            f"has {V100.memory_bytes / 1e9:.0f}."
        )
    arithmetic, network = step_s(choice, n, batch)
    fits = [other for other in ("images", "one", "neurons")
            if other == "neurons" or WEIGHT_BYTES * n * n <= V100.memory_bytes]  # fmt: skip
    best = min(sum(step_s(other, n, batch)) for other in fits)
    if arithmetic + network > best:
        raise Wrong(
            f"layer {layer}: {choice!r} takes {1e3 * arithmetic:.3g} ms for the arithmetic and "
            f"{1e3 * network:.3g} ms for the network; another choice takes {1e3 * best:.3g} ms."
        )


# Measure and decide

CALLS, LONGEST, NOISE = 10, 10**6, 0.03
NETWORKS = (  # seconds a message, seconds a byte, which calls are disturbed
    (50e-6, 8e-9, {0, 3, 7}), (1.5e-6, 0.08e-9, {0, 1, 5}), (0.05, 100e-9, {2, 5, 6}),
    (20e-6, 0.8e-9, {1, 4, 8}),
)  # fmt: skip
ASKED = (10**8, 4, 20_000)  # bytes


def meter(alpha, beta, disturbed):
    """A function that returns the seconds of one message of so many bytes, up to 3 % too long, and
    three times as long in the calls that are `disturbed`.  It raises Wrong against the rules."""
    noise, calls = random.Random(7), []

    def measure(nbytes):
        if not 0 <= nbytes <= LONGEST:
            raise Wrong(f"measure({nbytes:,}) is against the rules: at most {LONGEST:,} bytes.")
        if len(calls) == CALLS:
            raise Wrong(f"only {CALLS} calls of measure are allowed for one prediction.")
        calls.append(nbytes)
        factor = 3 if len(calls) - 1 in disturbed else 1
        return (alpha + nbytes * beta) * (1 + noise.uniform(0, NOISE)) * factor

    return measure


def predicted_seconds(measure, nbytes):
    """Seconds that a message of `nbytes` will take, from 5 short and 5 long ones measured."""
    short = min(measure(1) for _ in range(5))
    long = min(measure(10**6) for _ in range(5))
    beta = (long - short) / (10**6 - 1)
    return short + (nbytes - 1) * beta


def long_alone(measure, nbytes):
    return min(measure(10**6) for _ in range(5)) / 10**6 * nbytes


def short_alone(measure, nbytes):
    return min(measure(4) for _ in range(5)) / 4 * nbytes


def once_each(measure, nbytes):
    short, long = measure(1), measure(10**6)
    return short + nbytes * (long - short) / 10**6


def on_average(measure, nbytes):
    short, long = (sum(measure(n) for _ in range(5)) / 5 for n in (1, 10**6))
    return short + nbytes * (long - short) / 10**6


def latency_twice(measure, nbytes):
    return long_alone(measure, nbytes) + min(measure(1) for _ in range(5))


SLIPS = (
    (
        latency_twice,
        "a long message has paid its latency, too: take a short one's seconds off "
        "before you divide by its bytes.",
    ),
    (long_alone, "with a bandwidth alone, short messages cost nothing: where is the latency?"),
    (short_alone, "nearly all of a short message is latency, which is paid once, not per byte."),
    (once_each, "one of your measurements was disturbed: measure each size several times."),
    (on_average, "a mean counts the disturbed messages, too: take the least, or the median."),
)


def check_predicted_seconds(answer):
    for alpha, beta, disturbed in NETWORKS:
        for nbytes in ASKED:
            network = alpha, beta, disturbed
            got = like(function(answer)(meter(*network), nbytes), 0.0, "the answer").item()
            took = alpha + nbytes * beta
            if abs(got / took - 1) <= 0.15:
                continue
            slips = ((slip(meter(*network), nbytes), words) for slip, words in SLIPS)
            refuse(got, *slips, tolerance=0.03)
            raise Wrong(
                f"on one of the networks a message of {nbytes:,} bytes takes {took:.3g} s, and "
                f"you predict {got:.3g} s."
            )
    return f"right to 15 % on {len(NETWORKS)} networks, for messages of 4 bytes to 100 MB."


# Many tensors, one message


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
    wanted, kept, *_ = sender
    before, after, returned, listed = receiver
    for k, x in enumerate(kept):
        if not torch.equal(x, wanted[k]):
            raise Wrong(f"tensor {k} of rank 0 was changed.")
    if isinstance(returned, list | tuple) and all(map(torch.equal, after, before)):
        raise Wrong("rank 1's own tensors have to change: do not return others.")
    if not all(map(torch.equal, after, wanted)) and same(listed, wanted):
        raise Wrong("tensors[i] = part changes the list only: put the numbers into the tensors, "
                    "as x.copy_(part) does.")  # fmt: skip
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
    """This rank's tensors before and after, what the answer returned, and the list that it got."""
    mine = torch.rand if comm.rank == 0 else lambda shape: torch.full(shape, EMPTY)
    tensors = [mine(shape) for shape in SHAPES]
    before = [x.clone() for x in tensors]
    listed = list(tensors)
    returned = answer(comm, listed)
    return before, tensors, returned, listed


def same(listed, wanted) -> bool:
    """Whether a list holds the tensors that are wanted."""
    return len(listed) == len(wanted) and all(
        isinstance(x, torch.Tensor) and torch.equal(x, y) for x, y in zip(listed, wanted)
    )


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


# Bits and bytes


def seconds_on_wire_bits(x, gbit_per_s, latency_us):
    """Seconds in which tensor x crosses a link of so many Gb/s."""
    gigabytes = x.numel() * x.element_size() / 2**30
    return latency_us / 1e6 + gigabytes / gbit_per_s


def seconds_on_wire(x, gbit_per_s, latency_us):
    """Seconds in which tensor `x` [any shape and type] crosses a link of `gbit_per_s` Gb/s."""
    gigabits = 8 * x.numel() * x.element_size() / 1e9
    return latency_us / 1e6 + gigabits / gbit_per_s


def check_seconds_on_wire(answer):
    def slip(per_byte, giga, each=None, latency=1e-6, count=torch.numel):
        return lambda x, rate, us: (
            latency * us + per_byte * count(x) * (each or x.element_size()) / giga / rate
        )

    slips = (
        (slip(1, 2**30), "the rate is in bits; and 2**30 is one mistake more."),
        (slip(1, 1e9), "the rate is in bits, and x is counted in bytes."),
        (slip(8, 2**30), "nearly: in a network giga is 10**9; 2**30 is for memory."),
        (slip(1 / 8, 1e9), "a byte has eight bits: multiply by 8, do not divide."),
        (slip(1 / 8, 2**30), "multiply by 8, do not divide; and giga is 10**9."),
        (
            slip(8, 1e9, count=len),
            "len(x) counts along the first axis alone: x.numel() counts all.",
        ),
        (slip(8, 1e9, each=4), "not every number has 4 bytes: ask x.element_size()."),
        (slip(8, 1e9, each=1), "x.numel() counts numbers; each has x.element_size() bytes."),
        (slip(8, 1e9, latency=0), "the bytes are right, but the latency is lost."),
        (slip(8, 1e9, latency=1e-3), "a microsecond is a millionth of a second."),
        (slip(8, 1e9, latency=1), "a microsecond is not a second."),
    )
    for kind, shape, rate, us in ((torch.float32, (100, 250_000), 1, 50),
                                  (torch.float16, (1000,), 10, 3),
                                  (torch.uint8, (40, 50), 1, 3),
                                  (torch.float64, (10, 10, 10_000), 54.5, 0)):  # fmt: skip
        x = torch.empty(shape, dtype=kind, device="meta")
        got = like(function(answer)(x, rate, us), 0.0, "the answer").item()
        took = on_imagined(passed, 2, Cable("", us / 2e6, rate * 1e9 / 8, ""), x.numel(), kind)
        if not close(got, took):
            refuse(got, *((each(x, rate, us), words) for each, words in slips))
            raise Wrong(
                f"{x.numel():,} numbers of {x.element_size()} bytes at {rate} Gb/s take "
                f"{took:.4g} s on the imagined cluster, and {got:.4g} s by your function."
            )
    return "as the imagined cluster has it, for numbers of 1, 2, 4 and 8 bytes."


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
        "six Tesla P100 (10.6 TFLOP/s), each with an EDR adapter of its own (100 Gb/s), share a "
        "layer whose neurons are cut: from how many neurons of the whole layer on does the "
        "arithmetic of a training step take longer than the network?",
        check_break_even_layer,
        (
            "how many operations does a P100 do in the time of one byte?",
            "100 Gb/s are 12.5 GB/s.",
            "a step does 3/4 n / (p - 1) operations with each byte that crosses.",
        ),
        "4 / 3 * (6 - 1) * 10.6e12 / 12.5e9, which is 5653.",
    ),
    Exercise(
        "which_cut",
        "for each of three layers on eight V100s choose what takes the least time among what fits: "
        "'one' (a single GPU), 'images' or 'neurons' (cut them among all eight).",
        check_which_cut,
        (
            "what fits? 16 n² bytes if all weights are on a GPU, an eighth if neurons are cut.",
            "then the time: arithmetic 6 b n² / p / F, network 8 (p - 1)/p n² or b n bytes.",
            "with F β = 1,256 the break-even of eight GPUs is 4/3 * 7 * 1,256.",
        ),
        "('images', 'neurons', 'one'): a has more images than 11,723, the break-even; the weights "
        "of b take 20.7 GB; c takes 0.1 ms on one GPU, less than its activations on the network.",
    ),
    Exercise(
        "predicted_seconds",
        "write predicted_seconds(measure, nbytes): the seconds that a message of nbytes will take, "
        f"from at most {CALLS} calls of measure(N), each with at most {LONGEST:,} bytes.",
        check_predicted_seconds,
        (
            "which two sizes tell most about α, and about β?",
            "a time can only be too long: the least of several is nearest to the truth.",
            "five messages of one byte, five of a million: two times, one line.",
        ),
        predicted_seconds,
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
