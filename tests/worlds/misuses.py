"""Misuses of a communicator, generated: what is wrong × in which call × on which rank.

Each is a record: a program and what its ranks must hear.  In a program a bar separates the ranks
and a semicolon the steps of one; a step is a method of `Actor` and its arguments.  An exclamation
mark stands before the step in which a rank is when it hears what is wrong.
"""

import ast
import itertools
import os
import re
from typing import NamedTuple

import torch

from course import collectives
from course.collectives.all_reduce import ALGORITHMS
from course.comm import ANY, CommError
from course.comm.errors import listed

RANKS = 3
LARGE = 600_011  # of float32: longer than any socket's buffer, and sent by memory


class Misuse(NamedTuple):
    """`hears`: rank -> pattern of the whole sentence; all others end in peace, with the values
    that their steps look for.  `goes_on`: afterwards the communicator is as good as before."""

    name: str
    program: str
    hears: dict
    goes_on: bool = True
    only: tuple = ()  # the worlds in which it is one, if not in all
    waits: bool = False  # until the time-out, where nobody sees that ranks wait for one another


# Programs


class Step(NamedTuple):
    verb: str
    peer: object
    options: dict
    marked: bool


def steps_of(program) -> list[list[Step]]:
    """A rank's steps, for each rank."""
    return [[_step(text) for text in steps.split(";") if text.strip()]
            for steps in program.split("|")]  # fmt: skip


def _step(text) -> Step:
    verb, *words = text.split()
    peer = _literal(words.pop(0)) if words and "=" not in words[0] else None
    options = {key: _literal(value) for key, value in (word.split("=") for word in words)}
    return Step(verb.lstrip("!"), ANY if peer == "any" else peer, options, verb.startswith("!"))


def _literal(word):
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def act(comm, program):
    """Take this rank's steps of a program."""
    actor = Actor(comm)
    try:
        for step in steps_of(program)[comm.rank]:
            peer = () if step.peer is None and step.verb not in NEED_A_PEER else (step.peer,)
            getattr(actor, step.verb)(*peer, **step.options)
            if step.verb not in BEGIN:
                actor.own.clear()
    except CommError as error:
        before_any_message = " #" in str(error) and "within" not in str(error)
        if step.verb in (*NEED_A_PEER, "wait") or before_any_message:
            actor.look(error)
        raise


BEGIN = ("isend", "irecv")  # and the tensor is still the message's
NEED_A_PEER = ("send", "recv", "exchange", *BEGIN)
TENSORS = {  # what is no message, or a strange place for one
    "list": lambda: [1.0, 2.0],
    "number": lambda: 3.5,
    "nothing": lambda: None,
    "array": lambda: torch.zeros(2).numpy(),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "eighths": lambda: torch.ones(2).to(torch.float8_e5m2),
    "expanded": lambda: torch.zeros(2, 1).expand(2, 3),
    "windows": lambda: torch.zeros(4).unfold(0, 3, 1),
    "meta": lambda: torch.empty(2, device="meta"),
    "leaf": lambda: torch.zeros(2, requires_grad=True),
}
OPS = {"fmin": torch.fmin, "fmax": torch.fmax}


class Actor:
    """One rank; a message from rank r with tag t holds 10 r + t, and whoever receives it looks."""

    def __init__(self, comm):
        self.all, self.comm, self.begun, self.own = comm, comm, [], []

    # Messages

    def send(self, peer, tag=0, **kind):
        self.comm.send(self._sent(tag, **kind), peer, tag)

    def recv(self, peer, tag=0, **kind):
        out = self._place(**kind)
        source = self.comm.recv(out, peer, tag)
        _right(out, 10 * source + tag)

    def isend(self, peer, tag=0, **kind):
        self.begun.append((self.comm.isend(self._sent(tag, **kind), peer, tag), None))

    def irecv(self, peer, tag=0, **kind):
        out = self._place(**kind)
        self.begun.append((self.comm.irecv(out, peer, tag), out))

    def wait(self):
        for handle, out in self.begun:
            source = handle.wait()
            if out is not None:
                _right(out, 10 * source + handle.envelope.tag)

    def exchange(self, peer, source, tag=0, kind="plain"):
        self.comm.exchange(self._sent(tag, kind=kind), peer, self._place(), source, tag)

    # Collectives; before and after one that fails, every tensor holds 7

    def barrier(self):
        self.comm.barrier()

    def split(self, color=0, key=None):
        self.comm.split(color, key)

    def broadcast(self, root=0, **kind):
        collectives.broadcast(self.comm, self._mine(**kind), root)

    def reduce(self, root=0, op="sum", **kind):
        collectives.reduce(self.comm, self._mine(**kind), OPS.get(op, op), root)

    def scatter(self, root=0, parts=None, **kind):
        all_parts = [self._mine(n) for n in parts or [2] * self.comm.size]
        mine = all_parts if self.comm.rank == root else None
        collectives.scatter(self.comm, self._mine(**kind), mine, root)

    def gather(self, root=0, outs=None, **kind):
        all_outs = [self._mine(n) for n in outs or [2] * self.comm.size]
        mine = all_outs if self.comm.rank == root else None
        collectives.gather(self.comm, self._mine(**kind), mine, root)

    def all_gather(self, **kind):
        outs = [self._mine(**kind) for _ in range(self.comm.size)]
        collectives.all_gather(self.comm, outs, self._mine(**kind))

    def reduce_scatter(self, op="sum", **kind):
        parts = [self._mine(**kind) for _ in range(self.comm.size)]
        collectives.reduce_scatter(self.comm, self._mine(**kind), parts, OPS.get(op, op))

    def all_to_all(self, parts=2, outs=2):
        makers = [[self._mine(n) for _ in range(self.comm.size)] for n in (outs, parts)]
        collectives.all_to_all(self.comm, *makers)

    def all_reduce(self, op="sum", by="ring", segment_bytes=None, **kind):
        options = {"algorithm": by, "segment_bytes": segment_bytes}
        x = self._mine(**kind)
        collectives.all_reduce(self.comm, x, OPS.get(op, op), **options)
        if op == "sum":
            _right(x, 7 * self.comm.size)

    def begin(self, verb, **options):
        """Let another step run beside this rank's own."""
        handle = self.comm.submit(lambda comm: getattr(Actor(comm), verb)(**options))
        self.begun.append((handle, None))

    # Groups, and ends

    def world(self):
        self.comm = self.all

    def join(self, color):
        """From now on all steps are in the group of this color."""
        self.comm = self.comm.split(color)

    def fail(self):
        raise ArithmeticError("enough")

    def leave(self):
        raise SystemExit(3)

    def drop(self):
        os._exit(3)

    def _sent(self, tag, n=2, dtype="float32", kind="plain"):
        value = 10 * self.comm.rank + tag if isinstance(tag, int) else 0
        return torch.full((n,), value, dtype=getattr(torch, dtype)) if kind == "plain" \
            else TENSORS[kind]()  # fmt: skip

    def _place(self, n=2, dtype="float32", kind="plain"):
        return self._mine(n, dtype) if kind == "plain" else TENSORS[kind]()

    def _mine(self, n=2, dtype="float32", shape=None):
        self.own.append(torch.full(shape or (n,), 7, dtype=getattr(torch, dtype)))
        return self.own[-1]

    def look(self, error):
        """A call that did not take place may have written nothing."""
        if not all(bool((x == 7).all()) for x in self.own):
            raise AssertionError(f"{error}, and something was written")


def _right(out, value):
    if not bool((out == value).all()):
        raise AssertionError(f"a wrong value: {out.flatten()[:3].tolist()} instead of {value}")


# What ranks must hear


def in_words(step) -> str:
    """A pattern of the words for a call; of a collective's options those that the step names."""
    verb, options = step.verb, dict(step.options)
    verb, beside = (step.peer, " in world, in the background") if verb == "begin" else (verb, "")
    what = re.escape(f"{options.pop('dtype', 'float32')} [{options.pop('n', 2)}]")
    if verb in NEED_A_PEER:
        way = "send to" if verb in ("send", "isend") else "recv from"
        peer = step.peer if step.peer == ANY else f"rank {step.peer}"
        return rf"{way} {peer} \({what}, tag {options.get('tag', 0)}\)"
    words = [what] if {"dtype", "n"} & step.options.keys() else []
    words += [re.escape(f"float32 {options.pop('shape')}")] if "shape" in options else []
    words += [re.escape(f"{key} {value}") for key, value in options.items()]
    return rf"{verb} #\d+{beside}[^;]*" + "".join(rf"{word}(?!\w)[^;]*" for word in words)


def marked(program) -> dict:
    """rank -> words for the step in which it hears what is wrong."""
    return {rank: in_words(step) for rank, steps in enumerate(steps_of(program))
            for step in steps if step.marked}  # fmt: skip


def differ(program) -> dict:
    """Every marked rank hears who is in which call."""
    by_call = {}
    for rank, words in marked(program).items():
        by_call.setdefault(words, []).append(rank)
    groups = sorted(by_call.items(), key=lambda item: (len(item[1]), item[1]))
    told = [f"{listed(ranks)} {'is' if len(ranks) == 1 else 'are'} in {words}"
            for words, ranks in groups]  # fmt: skip
    return dict.fromkeys(marked(program), "CommMismatch: " + "; ".join(told))


def stuck(program) -> dict:
    """Every marked rank waits in vain; those who wait longest may hear that another gave up."""
    return {rank: rf"CommTimeout: rank {rank} waited \S+ s in {words}|"
                  rf"Deadlock: .*rank {rank} waits for \w+ .* in {words}.*|"
                  r"Deadlock: rank \d waits for .*; [12] more wait for these|"
                  rf"PeerLost: .* lost while rank {rank} was in {words}"
            for rank, words in marked(program).items()}  # fmt: skip


def missed(program) -> dict:
    """Every marked rank hears that another has returned, or was lost by hearing that."""
    return {rank: rf"PeerLost: ranks? .* (has returned|have returned|was lost|were lost).*"
                  rf" while rank {rank} was in {words}"
            for rank, words in marked(program).items()}  # fmt: skip


# The set


COLLECTIVES = {  # what can differ between ranks that are in the same call
    "barrier": (),
    "broadcast": ("root", "n", "shape", "dtype"),
    "reduce": ("root", "op", "function", "n", "shape", "dtype"),
    "scatter": ("root",),
    "gather": ("root",),
    "all_gather": ("n", "shape", "dtype"),
    "reduce_scatter": ("op", "function", "n", "shape", "dtype"),
    "all_to_all": (),
    "all_reduce": ("op", "function", "n", "shape", "dtype"),
    "split": (),
}
DIFFERENCES = {  # what one rank has, and what the others
    "root": ("root=2", "root=0"),
    "op": ("op=max", "op=sum"),
    "function": ("op=fmax", "op=fmin"),
    "n": ("n=3", "n=2"),
    "shape": ("shape=[2,3]", "shape=[3,2]"),
    "dtype": ("dtype=int32 n=2", "dtype=float32 n=2"),
}


def one_of_them(odd, one, others, ranks=RANKS) -> str:
    """The program in which rank `odd` does one thing and the others do another."""
    return " | ".join(one if rank == odd else others for rank in range(ranks))


def calls_that_differ():
    """The same collective, but for one thing on one rank."""
    for name, things in COLLECTIVES.items():
        for thing, odd in itertools.product(things, range(RANKS)):
            one, others = (f"!{name} {option}" for option in DIFFERENCES[thing])
            program = one_of_them(odd, one, others)
            yield Misuse(f"{name}: another {thing} on rank {odd}", program, differ(program))


def other_calls():
    """One rank is in another collective than the others: two calls in another order, one left
    out, one inside an `if`, one too many."""
    for number, (a, b) in enumerate(itertools.combinations(COLLECTIVES, 2)):
        program = one_of_them(number % RANKS, f"!{b}; {a}", f"!{a}; {b}")
        name = f"{a} and {b}: the other way round on rank {number % RANKS}"
        yield Misuse(name, program, differ(program))
    for number, name in enumerate(COLLECTIVES):
        odd, next_one = number % RANKS, "all_to_all" if name == "barrier" else "barrier"
        program = one_of_them(odd, f"!{next_one}", f"!{name}; {next_one}")
        yield Misuse(f"{name}: left out by rank {odd}", program, differ(program))
        program = one_of_them(odd, f"{name}; !{name}; {next_one}", f"{name}; !{next_one}")
        yield Misuse(f"{name}: once too often on rank {odd}", program, differ(program))


def other_algorithms():
    """Ranks that go about the same sum in different ways."""
    for number, (a, b) in enumerate(itertools.combinations(ALGORITHMS, 2)):
        program = one_of_them(number % RANKS, f"!all_reduce by={a}", f"!all_reduce by={b}")
        yield Misuse(f"all_reduce: {a} on rank {number % RANKS}, {b} on the others", program,
                     differ(program))  # fmt: skip


def calls_of_too_few():
    """A collective that one rank never calls, or only one calls; and one that fails before it."""
    for number, name in enumerate(COLLECTIVES):
        odd = number % RANKS
        program = one_of_them(odd, "", f"!{name}")
        yield Misuse(f"{name}: never called by rank {odd}", program, missed(program), False)
        program = one_of_them(odd, f"!{name}", "")
        yield Misuse(f"{name}: called by rank {odd} alone", program, missed(program), False)
        program = one_of_them(odd, "fail", f"!{name}")
        hears = missed(program) | {odd: "ArithmeticError: enough"}
        yield Misuse(f"{name}: rank {odd} fails before it", program, hears, False)


MISFITS = {  # what is sent, and the place for it
    "too short a place": ("n=4", "n=3"),
    "too long a place": ("n=4", "n=5"),
    "no place": ("n=1", "n=0"),
    "nothing": ("n=0", "n=1"),
    "another dtype": ("dtype=float32 n=2", "dtype=int32 n=2"),
    "as many bytes": ("dtype=float64 n=4", "dtype=float32 n=8"),
    "too short a place for a large one": (f"n={LARGE}", f"n={LARGE - 1}"),
}
WAYS = {"send and recv": ("!send {} {}", "!recv {} {}"),
        "isend and irecv": ("!isend {} {}; wait", "!irecv {} {}; wait"),
        "recv from any": ("!send {} {} tag=4", "!recv any {1} tag=4")}  # fmt: skip


def misfits():
    """Messages that do not fit their places, between every pair of neighbours."""
    cases = itertools.product(WAYS.items(), MISFITS.items())
    for number, ((way, (send, receive)), (misfit, (sent, place))) in enumerate(cases):
        src, dst = number % RANKS, (number + 1) % RANKS
        steps = {src: send.format(dst, sent), dst: receive.format(src, place)}
        program = " | ".join(steps.get(rank, "") for rank in range(RANKS))
        hears = differ(program.replace("any", str(src)))
        yield Misuse(f"{way}: {misfit}, rank {src} to {dst}", program, hears)


WAITING = {  # each marked rank waits for what never comes
    "all receive first": "!recv 1; send 2 | !recv 2; send 0 | !recv 0; send 1",
    "two receive first": "!recv 2; send 2 | | !recv 0; send 0",
    "a chain that ends in a circle": "!recv 1 | !recv 0 | !recv 1",
    "all receive from any": "!recv any | !recv any | !recv any",
    "a message from oneself": "| !recv 1 |",
    "another tag": "!send 1 tag=1 | !recv 0 tag=2 |",
    "tags in another order": "!send 1 tag=1; send 1 tag=2 | !recv 0 tag=2; recv 0 tag=1 |",
    "another sender and receiver": "!send 1 | !recv 2 | !send 0",
    "a wait before the other's send": "!irecv 1; wait; send 1 | !irecv 0; wait; send 0 |",
    "a wait before the other's recv": "!isend 1; wait; recv 1 | !isend 0; wait; recv 0 |",
    "a group's call and the world's": "join 0; !barrier | join 0; world; !barrier | "
                                      "join 1; world; !barrier",
    "a group's message and the world's": "join 0; !send 1 | join 0; world; !recv 0 | join 1",
}  # fmt: skip
UNBUFFERED = {  # right as long as messages are short, unless every send waits for its receive
    "a ring of sends": "!send 1 n={0}; recv 2 n={0} | !send 2 n={0}; recv 0 n={0} | "
                       "!send 0 n={0}; recv 1 n={0}",
    "two that send first": "!send 1 n={0}; recv 1 n={0} | !send 0 n={0}; recv 0 n={0} |",
}  # fmt: skip
SYNCHRONOUS = {0: "nothing", 1: "one element", 20_000: "80 kB", LARGE: "2.4 MB"}


def waits_in_vain():
    """Deadlocks, and programs that need somebody to keep what they send."""
    for name, program in WAITING.items():
        yield Misuse(f"waiting: {name}", program, stuck(program), False, waits=True)
    for (name, steps), (n, size) in itertools.product(UNBUFFERED.items(), SYNCHRONOUS.items()):
        program = steps.format(n)
        name = f"waiting: {name} of {size}"
        yield Misuse(name, program, stuck(program), False, waits=True)


ENDED = {  # each marked rank waits for one that has returned
    "one recv too many": "send 1 | recv 0; !recv 0 |",
    "one send too many": "send 1; !send 1 | recv 0 |",
    "a recv of what nobody sends": "| | !recv 0",
    "a recv from any when all have returned": "| | !recv any",
    "a send to one that never receives": "| !send 2; recv 2 |",
    "a wait for what nobody receives": "| | !isend 0; wait",
}
ENDS = {  # what ends a rank, and what is said of it
    "fail": ("ArithmeticError: enough", ()),
    "leave": ("SystemExit: 3", ()),
    "drop": ("PeerLost: rank {} exited with status 3 before its function had returned",
             ("shm", "sockets", "hosts")),
}  # fmt: skip


def waits_for_the_ended():
    """A rank that waits for one that has returned, or failed, or is gone."""
    for name, program in ENDED.items():
        yield Misuse(f"returned: {name}", program, missed(program), False)
    waits = ("!recv {}", "!send {}", "!irecv {}; wait", "!isend {}; wait", "!barrier")
    for number, (verb, wait) in enumerate(itertools.product(ENDS, waits)):
        odd, (sentence, only) = number % RANKS, ENDS[verb]
        program = one_of_them(odd, verb, wait.format(odd))
        hears = missed(program) | {odd: sentence.format(odd)}
        name = f"{wait.format(odd).strip('!')} while rank {odd} comes to its end by {verb}"
        yield Misuse(name, program, hears, False, only=only)


BEGUN = {  # what ranks begin, and what the others do
    "alone": (missed, "!begin all_reduce; wait | |"),
    "in another order": (differ, "!begin all_reduce n=5; begin all_reduce n=7; wait | "
                                 "!begin all_reduce n=7; begin all_reduce n=5; wait | "
                                 "!begin all_reduce n=7; begin all_reduce n=5; wait"),
    "another call": (differ, "!begin barrier; wait | !begin gather; wait | !begin barrier; wait"),
    "while one fails": (missed, "!begin barrier; wait | fail | !begin barrier; wait"),
    "while it fails on one": (missed, "!begin barrier; wait | begin fail; wait | "
                                      "!begin barrier; wait"),
    "what the others call": (stuck, "!all_reduce | !begin all_reduce; wait | "
                                    "!begin all_reduce; wait"),
}  # fmt: skip


FORGOTTEN = {  # messages that nobody waits for
    "a send": "isend 1 | recv 0 |",
    "a send of what nobody receives": "isend 1 | |",
    "a receive": "irecv 1 | send 0 |",
    "a receive of what nobody sends": "irecv 1 | |",
}
IN_A_CALL = {  # rank 0 waits for a message of rank 1, which is in a call
    "a send": "!send 1; barrier | !barrier; recv 0 | !barrier",
    "a send that was begun": "!isend 1; wait; barrier | !barrier; recv 0 | !barrier",
    "a large send": f"!send 1 n={LARGE}; barrier | !barrier; recv 0 n={LARGE} | !barrier",
    "a receive": "!recv 1; barrier | !barrier; send 0 | !barrier",
    "a receive after a group": "join 0; world; !recv 1; barrier | "
                               "join 0; world; !barrier; send 0 | join 1; world; !barrier",
}  # fmt: skip


def what_is_not_awaited():
    """Messages begun and forgotten, and messages awaited of ranks that are in a call."""
    for name, program in FORGOTTEN.items():
        told = (
            r"ValueError: rank 0 has returned without a wait\(\) for (send to|recv from) rank 1 .*"
        )
        hears = {0: told} | dict.fromkeys((1, 2), "nothing|PeerLost: rank 0 was lost .*")
        yield Misuse(f"forgotten: {name}", program, hears, False)
    for name, program in IN_A_CALL.items():
        words = marked(program)
        told = f"CommMismatch: rank 0 is in {words[0]}; ranks? .* in {words[1]}"
        hears = {0: told} | dict.fromkeys((1, 2), f"{told}|PeerLost: rank . was lost .*")
        yield Misuse(f"in a call: {name}", program, hears, False)


def calls_beside():
    """Misuses of what runs beside a rank's own work."""
    for name, (told, program) in BEGUN.items():
        fails = {1: "ArithmeticError: enough"} if "fail" in name else {}
        waits = told is stuck
        yield Misuse(f"begun: {name}", program, told(program) | fails, False, waits=waits)
    everywhere = one_of_them(0, "begin all_reduce", "begin all_reduce")
    yield Misuse("no misuse: begun and forgotten", everywhere, {}, False)


PEERS = ("3", "-1", "None", "'0'", "0.5", "[0]")
TAGS = ("-1", "2147483648", "None", "'a'", "1.0")
SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")
WITH_MEMORY = ("shm", "sockets", "hosts", "mpi")
SENT = {
    "list": "must be a tensor, not list [1.0, 2.0]",
    "number": "must be a tensor, not float 3.5",
    "nothing": "must be a tensor, not NoneType None",
    "array": "must be a tensor, not ndarray array([0., 0.], dtype=float32)",
    "sparse": "must be a dense tensor, not torch.sparse_coo",
    "eighths": "has dtype torch.float8_e5m2, which no message carries",
}
OVERLAPPING = {"expanded": "float32 [2, 3] with strides [1, 0]",
               "windows": "float32 [2, 3] with strides [1, 1]"}  # fmt: skip


def refused(number, step, rule, only=()):
    """A step that one rank takes, with a value that cannot be."""
    odd = number % RANKS
    hears = {odd: f"ValueError: {re.escape(rule.format(odd))}.*"}
    return Misuse(f"rank {odd}: {step}", one_of_them(odd, step, ""), hears, only=only)


def wrong_peers_and_tags():
    cases = itertools.product((*SENDS, *RECEIVES), (*PEERS, "any"))
    for number, (verb, peer) in enumerate(cases):
        way, value = "send to" if verb in SENDS else "receive from", _literal(peer)
        value = ANY if peer == "any" else value
        if (verb, peer) not in (("recv", "any"), ("irecv", "any")):
            rule = f"rank {{}} cannot {way} rank {value!r}: the ranks are 0 to 2"
            yield refused(number, f"{verb} {peer}", rule)
    rule = "rank {{}} cannot {} rank 3: the ranks are 0 to 2"
    yield refused(0, "exchange 3 source=1", rule.format("send to"))
    yield refused(1, "exchange 0 source=3", rule.format("receive from"))
    for number, (verb, tag) in enumerate(itertools.product((*SENDS, *RECEIVES), TAGS)):
        rule = f"rank {{}}: a tag is a whole number from 0 to 2147483647, not {_literal(tag)!r}"
        yield refused(number, f"{verb} 0 tag={tag}", rule)


def wrong_tensors():
    for number, (verb, kind) in enumerate(itertools.product((*SENDS, *RECEIVES), SENT)):
        role = "what is sent" if verb in SENDS else "the tensor to receive into"
        yield refused(number, f"{verb} 0 kind={kind}", f"rank {{}}: {role} {SENT[kind]}")
    for number, (verb, kind) in enumerate(itertools.product(RECEIVES, OVERLAPPING)):
        rule = f"rank {{}}: cannot receive into an expanded tensor ({OVERLAPPING[kind]})"
        yield refused(number, f"{verb} 0 kind={kind}", rule)
    for number, verb in enumerate((*SENDS, *RECEIVES)):
        rule = "rank {}: a tensor on the meta device has no memory"
        yield refused(number, f"{verb} 0 kind=meta", rule, WITH_MEMORY)
    programs = ("!send 1 kind=meta | !recv 0 |", "!send 1 | !recv 0 kind=meta |")
    for one, (other, program) in enumerate(zip((1, 0), programs)):
        sentence = (
            f"CommMismatch: rank {one}'s tensor is on the meta device and has no memory, "
            f"rank {other}'s of the same message has \\(float32 \\[2\\], tag 0\\)"
        )
        hears = dict.fromkeys((0, 1), sentence)
        yield Misuse(f"rank {other} alone has memory", program, hears, only=("imagined",))


def wrong_arguments_of_collectives():
    rooted = itertools.product(("broadcast", "reduce", "scatter", "gather"), PEERS)
    for number, (name, root) in enumerate(rooted):
        rule = f"rank {{}}: no root {_literal(root)!r} among 3 ranks"
        yield refused(number, f"{name} root={root}", rule)
    for number, name in enumerate(("reduce", "all_reduce", "reduce_scatter")):
        rule = "op must be sum, mean, prod, min, max or a function, not 'average'"
        yield refused(number, f"{name} op=average", rule)
        rule = "no mean of int64: it would have to be rounded"
        yield refused(number, f"{name} op=mean dtype=int64", rule)
        rule = "no sum of bool: max says whether any is true, min whether all are"
        yield refused(number, f"{name} dtype=bool", rule)
        rule = "no max of complex64: complex numbers have no order"
        yield refused(number, f"{name} op=max dtype=complex64", rule)
    yield refused(1, "all_reduce by=magic", "rank {}: algorithm must be one of ")
    for number, (name, role) in enumerate((("scatter", "parts"), ("gather", "outs"))):
        call = f"{name} root={number}"
        program = one_of_them(number, f"{call} {role}=[2,2]", call)
        rule = rf"rank {number}: {role} must hold 3 tensors, not 2"
        left = rf"CommMismatch: rank {number} has left {name} #\d+ .* before its end: .*{rule}.*"
        hears = dict.fromkeys(range(RANKS), f"nothing|{left}") | {number: f"ValueError: {rule}"}
        yield Misuse(f"{name}: two {role} for three ranks", program, hears)


UNEVEN = {  # parts whose lengths are nobody's to compare beforehand
    "scatter: a part longer than its place": (
        "scatter parts=[2,3,2] | scatter | scatter", 1, 0, 2, 3, 0),
    "scatter: a place longer than its part": (
        "scatter root=2 | scatter n=5 root=2 | scatter root=2", 1, 2, 5, 2, 0),
    "gather: a part longer than its place": (
        "gather root=1 n=4 | gather root=1 | gather root=1", 1, 0, 2, 4, 0),
    "gather: a place longer than its part": (
        "gather outs=[2,2,3] | gather | gather", 0, 2, 3, 2, 0),
}  # fmt: skip


def calls_of_other_lengths():
    """Collectives whose parts may differ: a part that does not fit is named by who was to have it,
    and the others do not go on without these two."""
    for name, (program, dst, src, place, length, tag) in UNEVEN.items():
        ends = {dst: (f"recv from rank {src}", place), src: (f"send to rank {dst}", length)}
        told = "; ".join(rf"rank {rank} is in {what} \(float32 \[{n}\], tag {tag}\)"
                         for rank, (what, n) in sorted(ends.items()))  # fmt: skip
        hears = dict.fromkeys(range(RANKS), f"nothing|CommMismatch: {told}|PeerLost: .*")
        yield Misuse(name, program, hears | {dst: f"CommMismatch: {told}"}, False)


def other_segments():
    """One rank cuts its messages in other pieces than the others."""
    for odd, by in enumerate(ALGORITHMS):
        one, others = (f"!all_reduce by={by} n=1000 segment_bytes={size}" for size in (64, 160))
        program = one_of_them(odd % RANKS, one, others)
        name = f"all_reduce: other segments on rank {odd % RANKS} by {by}"
        yield Misuse(name, program, differ(program))


RACES = {  # neither order is wrong, but not every place has room for every message
    "from any, of different lengths": "recv any n=2; recv any n=3 | send 0 n=2 | send 0 n=3",
}
NO_MISUSES = {  # though they look like some: the values are right
    "from any, of one length": "recv any; recv any | send 0 | send 0",
    "a leaf that wants gradients": "send 1 tag=4 | recv 0 tag=4 kind=leaf |",
    "receives posted in another order than sent": "isend 1 tag=1; isend 1 tag=2; wait | "
                                                  "irecv 0 tag=2; irecv 0 tag=1; wait |",
    "sends begun in a ring": "isend 1; recv 2; wait | isend 2; recv 0; wait | "
                             "isend 0; recv 1; wait",
}  # fmt: skip


def races_and_no_misuses():
    for name, program in RACES.items():
        two = (r"CommMismatch: rank 0 is in recv from rank 2 \(float32 \[2\], tag 0\); "
               r"rank 2 is in send to rank 0 \(float32 \[3\], tag 0\)")  # fmt: skip
        lost = "PeerLost: rank 0 was lost while rank 1 was in send to rank 0 .*"
        hears = {0: f"nothing|{two}", 1: f"nothing|{lost}", 2: f"nothing|{two}"}
        yield Misuse(f"race: {name}", program, hears, False)
    for name, program in NO_MISUSES.items():
        yield Misuse(f"no misuse: {name}", program, {})


GENERATORS = (
    calls_that_differ, other_calls, other_algorithms, calls_of_too_few, misfits, waits_in_vain,
    waits_for_the_ended, wrong_peers_and_tags, wrong_tensors, wrong_arguments_of_collectives,
    calls_of_other_lengths, other_segments, what_is_not_awaited, calls_beside,
    races_and_no_misuses,
)  # fmt: skip
MISUSES = [misuse for generator in GENERATORS for misuse in generator()]
