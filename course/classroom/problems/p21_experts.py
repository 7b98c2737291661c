"""Exercises of notebook 21: the capacity of an expert, a gate that keeps k logits, tokens to their
experts and answers back, and gradients of experts that nobody may average."""

import math

import torch
from torch import nn

from course.classroom.answers import function, number, on_ranks
from course.classroom.comparison import close, compare
from course.classroom.problems import Exercise, Wrong
from course.collectives import all_reduce, all_to_all
from course.parallel.experts import MixtureOfExperts, NoisyTopKGate
from course.parallel.experts.dispatch import dispatch_plan

RANKS, TOKENS, EXPERTS, K, FACTOR = 4, 500, 12, 2, 1.25
SHARE = FACTOR * K * RANKS * TOKENS / EXPERTS  # 416.67
FAR_APART = [[1000.0, 999.0, 0.0, -1000.0], [-1001.0, -3000.0, -1000.0, -1002.0]]  # logits
WIDTH, OUT = 16, 40  # numbers of a token, and of what an expert makes of it
PATTERN = 1, 0, 2, 0, 1, 3, 0, 2  # which experts tokens choose


def check_expert_capacity(answer):
    got, right = number(answer), math.ceil(SHARE)
    if got == right:
        return f"1.25 times the even share of 4,000 choices among 12 experts, rounded up: {right}."
    slips = {
        SHARE: "tokens are whole: the capacity is rounded up.",
        SHARE / K: "every token chooses 2 experts, so there are twice as many choices as tokens.",
        SHARE / RANKS: "an expert sees tokens of all ranks: there are 4 times 500 of them.",
        SHARE / FACTOR: "that is the even share: the capacity is 1.25 times that.",
        SHARE * EXPERTS / RANKS: "the tokens are dealt out to 12 experts, not to 4 ranks.",
        SHARE * EXPERTS: "that is the capacity of all 12 experts together.",
    }
    for slip, sentence in slips.items():
        if abs(got - slip) < 1:
            raise Wrong(sentence)
    raise Wrong("that is another number: how many choices are there, and for how many experts?")


def top_k_gate(logits, k):
    """Weights [tokens, experts]: the softmax over the k largest logits of each row, 0 elsewhere."""
    best = logits.topk(k, dim=1)
    kept = torch.full_like(logits, -torch.inf)
    return kept.scatter(1, best.indices, best.values).softmax(dim=1)


def normal(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def of_the_kept(change):
    """A slip of the gate: change(logits, whether each is among the k largest)."""

    def slip(logits, k):
        kept = torch.zeros_like(logits).scatter(1, logits.topk(k, dim=1).indices, 1.0)
        return change(logits, kept)

    return slip


def of_the_smallest(logits, k):
    """The softmax over the k smallest logits of each row."""
    worst = logits.topk(k, dim=1, largest=False)
    return torch.zeros_like(logits).scatter(1, worst.indices, worst.values.softmax(dim=1))


GATE_SLIPS = (
    (lambda logits, k: logits.softmax(dim=1),
     "every expert has a weight: only those of the k largest logits are kept."),
    (of_the_kept(lambda logits, kept: logits.softmax(dim=1) * kept),
     "the weights of a token add up to less than 1: the softmax is over the kept logits alone."),
    (of_the_kept(lambda logits, kept: (logits * kept).softmax(dim=1)),
     "a logit of 0 has a weight, too: what is not kept needs a logit of minus infinity."),
    (of_the_kept(lambda logits, kept: kept / kept.sum(dim=1, keepdim=True)),
     "the kept experts have equal weights: the one with the larger logit should have more."),
    (lambda logits, k: top_k_gate(logits, min(k + 1, logits.shape[1])),
     "that keeps k + 1 experts of a token."),
    (of_the_smallest,
     "those are the k smallest logits: the largest are wanted."),
)  # fmt: skip


def check_top_k_gate(answer):
    cases = [(normal(4, 5, seed=0), 2), (normal(6, 3, seed=1), 1), (normal(3, 4, seed=2), 4),
             (torch.tensor(FAR_APART, dtype=torch.float64), 2)]  # fmt: skip
    compare(
        finite(answer), top_k_gate, cases, GATE_SLIPS,
        otherwise="try one token with logits (2, 1, 0) and k = 2: its weights are 0.73, 0.27, 0.",
        shape_is="the table of weights",
    )  # fmt: skip
    tied = function(answer)(torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]]), 2)
    if (kept := int((tied != 0).sum())) != 2:
        raise Wrong(f"of three equal logits your gate keeps {kept}, and k is 2: compare by place.")
    check_slope(answer)
    return "k experts for each token, weights that add up to 1, and a gradient for the gate."


def finite(answer):
    """The answer, refused where its weights are not numbers."""

    def weights(logits, k):
        got = function(answer)(logits, k)
        if isinstance(got, torch.Tensor) and got.isnan().any():
            if logits.abs().max() > 100:
                raise Wrong("exp(1000) is infinite, and exp of a logit far below is 0: torch's "
                            "softmax takes the largest logit off, each row's own.")  # fmt: skip
            raise Wrong("a weight is nan: a softmax along the experts, dim=1, always has k logits.")
        return got

    return weights


def check_slope(answer):
    """Refuse weights from which no gradient, or another one, comes back to the logits."""
    slopes = []
    for gate in (answer, top_k_gate):
        logits = normal(4, 5, seed=0).requires_grad_()
        weights = gate(logits, 2)
        if not getattr(weights, "requires_grad", False):
            raise Wrong("the value is right, but no gradient comes back from it to the logits: "
                        "such a gate cannot learn.")  # fmt: skip
        (weights * normal(4, 5, seed=3)).sum().backward()
        slopes.append(logits.grad)
    if slopes[0] is None or not close(*slopes):
        raise Wrong("the value is right, but its gradient is another one: detach nothing.")


def ask_experts(comm, x, chosen, weights, expert):
    """y [tokens, width]: weights[i] times what the expert on rank chosen[i] says of x[i]."""
    order = chosen.sort(stable=True).indices
    sent = torch.bincount(chosen, minlength=comm.size)
    received = torch.empty_like(sent)
    all_to_all(comm, received.split(1), sent.split(1))
    sent, received = sent.tolist(), received.tolist()
    there, back, y = x.new_empty(sum(received), x.shape[1]), torch.empty_like(x), x.clone()
    all_to_all(comm, there.split(received), x[order].split(sent))
    all_to_all(comm, back.split(sent), expert(there).split(received))
    y[order] = weights[order, None] * back
    return y


def tokens_of(rank: int, tokens: int, ranks: int) -> tuple:
    """The tokens of a rank, which expert each has chosen, and with what weight."""
    chosen = torch.tensor(
        [PATTERN[(rank + i) % 8] % ranks for i in range(tokens)], dtype=torch.long
    )
    return normal(tokens, WIDTH, seed=rank), chosen, normal(tokens, seed=10 + rank).abs() + 0.1


def said_by(owner: int, rows):
    """What an expert says of rows [rows, WIDTH]: something else than all others."""
    return torch.tanh(rows @ normal(WIDTH, WIDTH, seed=100 + owner))


def asked(x, chosen, ranks: int):
    """What the expert on rank chosen[i] says of x[i], of each token."""
    said = torch.zeros_like(x)
    for owner in range(ranks):
        said[chosen == owner] = said_by(owner, x[chosen == owner])
    return said


def use_experts(comm, answer, shares):
    """The answer's y, the right one, those of some slips, the rows that this rank's expert has
    seen, and the bytes that the rank has sent."""
    x, chosen, weights = tokens_of(comm.rank, shares[comm.rank], comm.size)
    order, seen, before = chosen.sort(stable=True).indices, [], comm.meter.sent_bytes

    def expert(rows):
        seen.append(len(rows))
        return said_by(comm.rank, rows)

    got = answer(comm, x.clone(), chosen.clone(), weights.clone(), expert)
    sent, said = comm.meter.sent_bytes - before, asked(x, chosen, comm.size)
    right, unsorted = (
        weights[:, None] * each for each in (said, asked(x, chosen[order], comm.size))
    )
    own = weights[:, None] * said_by(comm.rank, x)
    slips = said, own, right[order], right[order][order], unsorted
    return got, right, slips, sum(seen), sent


def check_ask_experts(answer):
    for shares in ((5, 3), (4,), (6, 0, 4), (2, 3, 1, 2)):
        p = len(shares)
        outcomes, _ = on_ranks(use_experts, p, function(answer), shares)
        chosen = [tokens_of(rank, n, p)[1] for rank, n in enumerate(shares)]
        plan = dispatch_plan([torch.bincount(each, minlength=p).tolist() for each in chosen])
        least = plan.there_and_back(8 * WIDTH, 8 * WIDTH).sent_bytes
        for rank, (got, right, slips, seen, sent) in enumerate(outcomes):
            where = f"on {p} rank{'s' * (p > 1)}, rank {rank}"
            check_answers(where, got, right, *slips)
            if seen > plan.tokens[rank]:
                raise Wrong(f"{where}: y is right, but its expert sees {seen} tokens, and only "
                            f"{plan.tokens[rank]} have chosen it.")  # fmt: skip
            if sent > least[rank] + 32 * p * p:
                raise Wrong(f"{where} sends {sent:,} bytes: y is right, but tokens to the experts "
                            f"they have chosen and answers back are {least[rank]:,}.")  # fmt: skip
    return "each expert sees its own tokens and no other, also where a rank or expert has none."


def check_answers(where, got, right, said, own, sorted_once, sorted_twice, unsorted):
    if not isinstance(got, torch.Tensor) or got.shape != right.shape:
        raise Wrong(f"{where} should return y {list(right.shape)}, a row for each of its tokens.")
    if close(got, right):
        return
    for slip, sentence in (
        (said, "has what the experts say: the weights are missing."),
        (own, "has asked its own expert alone: tokens go to the rank that they have chosen."),
        (sorted_once, "has the answers in the order in which tokens were sent: put each in the "
                      "place of its token."),
        (sorted_twice, "has sorted what was sorted: back[order] does it once more, and "
                       "y[order] = back undoes it."),
        (unsorted, "has cut x into parts as it is: sort its tokens first by the expert that they "
                   "have chosen."),
    ):  # fmt: skip
        if close(got, slip):
            raise Wrong(f"{where} {sentence}")
    raise Wrong(f"{where} has another y: whose answer is in which row, and with which weight?")


def mixture_gradients(comm, net):
    """After backward: leave in net the gradients of the mean loss over all ranks' tokens."""
    for name, parameter in net.named_parameters():
        if name.startswith("experts."):  # from all ranks' losses already
            parameter.grad /= comm.size
        else:
            all_reduce(comm, parameter.grad, "mean")


def mixture_gradients_with_the_bug(comm, net):
    """After backward: leave in net the gradients of the mean loss over all ranks' tokens."""
    for parameter in net.parameters():
        all_reduce(comm, parameter.grad, "mean")


def linear_expert(number: int) -> nn.Linear:
    """Expert `number`, the same wherever it is made."""
    made = nn.Linear(WIDTH, OUT).double()
    for place, p in enumerate(made.parameters()):
        p.data = normal(*p.shape, seed=200 + 2 * number + place)
    return made


def gate_and_tokens(ranks: int) -> tuple:
    """The gate of two experts a rank, and x and noise of 8 tokens a rank."""
    gate = NoisyTopKGate(WIDTH, 2 * ranks, k=2, dtype=torch.float64)
    for place, p in enumerate(gate.parameters()):
        p.data = normal(*p.shape, seed=300 + place)
    return gate, normal(ranks, 8, WIDTH, seed=302), normal(ranks, 8, 2 * ranks, seed=303)


def use_gradients(comm, answer):
    """The gradients by name that the answer leaves, those before, and the bytes that it sent."""
    gate, x, noise = gate_and_tokens(comm.size)
    unbalanced = {"importance_weight": 0.0, "load_weight": 0.0}
    net = MixtureOfExperts(comm, gate, linear_expert, **unbalanced)
    net(x[comm.rank], noise[comm.rank]).y.square().mean().backward()
    own, before = (
        {name: p.grad.clone() for name, p in net.named_parameters()},
        comm.meter.sent_bytes,
    )
    answer(comm, net)
    return {n: p.grad for n, p in net.named_parameters()}, own, comm.meter.sent_bytes - before


def by_brute_force(ranks: int) -> dict:
    """The gradients of the mean loss by name: every expert sees every token of all ranks."""
    gate, x, noise = gate_and_tokens(ranks)
    experts = [linear_expert(number) for number in range(2 * ranks)]
    net = nn.ModuleDict({"gate": gate, "experts": nn.ModuleList(experts)})
    x, noise = x.flatten(0, 1), noise.flatten(0, 1)
    chosen, weights, *_ = gate(x, noise)
    spread = torch.zeros_like(noise).scatter(1, chosen, weights)
    y = sum(spread[:, [i]] * expert(x) for i, expert in enumerate(experts))
    y.square().mean().backward()
    return {name: p.grad for name, p in net.named_parameters()}


def check_mixture_gradients(answer):
    for ranks in (2, 1, 3):
        outcomes, _ = on_ranks(use_gradients, ranks, function(answer))
        wanted = by_brute_force(ranks)
        shared = sum(g.nbytes for name, g in wanted.items() if name.startswith("gate."))
        for rank, (got, own, sent) in enumerate(outcomes):
            where = f"on {ranks} rank{'s' * (ranks > 1)}, rank {rank}:"
            for name, gradient in got.items():
                check_gradient(f"{where} that of {name}", name, gradient, own, wanted, ranks)
            if sent > 4 * shared:
                raise Wrong(f"{where} the gradients are right, but it sends {sent:,} bytes for "
                            f"them: the gate's alone have to cross, {shared:,} bytes.")  # fmt: skip
    return "the gate's are averaged; an expert's come from all ranks already, and are divided."


def check_gradient(where, name, got, own, wanted, ranks):
    if not isinstance(got, torch.Tensor) or got.shape != wanted[name].shape:
        raise Wrong(f"{where} is none any more.")
    if close(got, wanted[name]):
        return
    _, place, *leaf = name.split(".") if name.startswith("experts.") else ("", "0")
    others = [f"experts.{i}.{'.'.join(leaf)}" for i in range(int(place) % 2, 2 * ranks, 2)]
    if leaf and close(got, sum(wanted[other] for other in others)):
        raise Wrong(f"{where} is the mean over different experts, one from each rank.")
    if leaf and close(got, ranks * wanted[name]):
        raise Wrong(f"{where} is {ranks} times as large as it should be: the losses of all ranks "
                    "have sent their slopes to this expert.")  # fmt: skip
    if leaf and close(got, wanted[name] / ranks):
        raise Wrong(f"{where} has been divided by {ranks} twice.")
    if not leaf and close(got, own[name]):
        raise Wrong(f"{where} is that of the rank's own tokens: the gate is on all ranks.")
    if not leaf and close(got, ranks * wanted[name]):
        raise Wrong(f"{where} is the sum over ranks: of mean losses it is the mean.")
    raise Wrong(f"{where} is another one: from whose tokens does it come?")


EXERCISES = [
    Exercise(
        "expert_capacity",
        "4 ranks have 500 tokens each, and each token chooses 2 of 12 experts; the capacity factor "
        "is 1.25. How many tokens does an expert see at most?",
        check_expert_capacity,
        (
            "all ranks together make 4 x 500 x 2 choices.",
            "an expert's even share of them is a twelfth.",
            "1.25 times the share, and tokens are whole: round up.",
        ),
        "1.25 x 2 x 2000 / 12 = 416.67, rounded up: 417 tokens, whatever rank they come from.",
    ),
    Exercise(
        "top_k_gate",
        "write top_k_gate(logits, k): of logits [tokens, experts] the weights [tokens, experts], "
        "in each row the softmax over its k largest logits, and 0 elsewhere.",
        check_top_k_gate,
        (
            "logits.topk(k, dim=1) has .values and .indices, both [tokens, k].",
            "a logit of minus infinity has the weight 0 after a softmax.",
            "start with torch.full_like(logits, -torch.inf), and scatter the values into it.",
        ),
        top_k_gate,
    ),
    Exercise(
        "ask_experts",
        "write ask_experts(comm, x, chosen, weights, expert): the expert on rank chosen[i] sees "
        "x[i], and y[i] is weights[i] times what it says; expert(rows) asks this rank's own.",
        check_ask_experts,
        (
            "sort the tokens by the expert they have chosen, and count them: torch.bincount(chosen,"
            " minlength=comm.size).",
            "nobody knows how many rows will come: an all-to-all of the counts says it first.",
            "rows go by all_to_all(comm, there.split(received), x[order].split(sent)), answers "
            "back the same way with sent and received exchanged, and y[order] = ... undoes order.",
        ),
        ask_experts,
    ),
    Exercise(
        "mixture_gradients",
        "find the bug in mixture_gradients(comm, net), which is right on one rank, and repair it: "
        "the gradients of the mean loss over the tokens of all ranks, for gate.* and experts.*.",
        check_mixture_gradients,
        (
            "print the names of net.named_parameters() on two ranks: which are on both?",
            "an expert has seen tokens of all ranks, and slopes of all their losses came back.",
            "each loss is a mean over one rank's tokens: p of them together are p times the mean.",
        ),
        mixture_gradients,
        given=mixture_gradients_with_the_bug,
    ),
]
