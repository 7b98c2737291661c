"""Capacity, a gate, tokens that travel, gradients of experts: answers that were really likely."""

import torch

from course.classroom.problems.p21_experts import (
    ask_experts,
    mixture_gradients,
    mixture_gradients_with_the_bug,
    top_k_gate,
)
from course.collectives import all_gather, all_reduce, all_to_all
from tests.classroom.gallery import Gallery, gallery_tests

# The gate


def gate_stub(logits, k):
    """Weights [tokens, experts]: the softmax over the k largest logits of each row, 0 elsewhere."""
    ...


def gate_by_shares(logits, k):
    """The softmax over all, of which the largest are divided by their sum."""
    best = logits.softmax(dim=1).topk(k, dim=1)
    shares = best.values / best.values.sum(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter(1, best.indices, shares)


def gate_by_mask(logits, k):
    left_out = torch.ones_like(logits, dtype=torch.bool)
    left_out[torch.arange(len(logits))[:, None], logits.topk(k).indices] = False
    return logits.masked_fill(left_out, float("-inf")).softmax(-1)


def softmax_over_all(logits, k):
    return logits.softmax(dim=1)


def not_divided_again(logits, k):
    best = logits.softmax(dim=1).topk(k, dim=1)
    return torch.zeros_like(logits).scatter(1, best.indices, best.values)


def zeros_in_place_of_infinity(logits, k):
    best = logits.topk(k, dim=1)
    return torch.zeros_like(logits).scatter(1, best.indices, best.values).softmax(dim=1)


def equal_weights(logits, k):
    return torch.zeros_like(logits).scatter(1, logits.topk(k, dim=1).indices, 1 / k)


def one_too_many(logits, k):
    return top_k_gate(logits, min(k + 1, logits.shape[1]))


def smallest(logits, k):
    worst = logits.topk(k, dim=1, largest=False)
    return torch.zeros_like(logits).scatter(1, worst.indices, worst.values.softmax(dim=1))


def along_the_tokens(logits, k):
    best = logits[:, :-1].topk(min(k, logits.shape[1] - 1), dim=1)
    kept = torch.full_like(logits, -torch.inf)
    return kept.scatter(1, best.indices, best.values).softmax(dim=0)


def exponentials_by_hand(logits, k):
    best = logits.topk(k, dim=1)
    powers = best.values.exp()
    shares = powers / powers.sum(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter(1, best.indices, shares)


def the_largest_of_all_taken_off(logits, k):
    powers = (logits - logits.max()).exp()
    kept = torch.zeros_like(logits).scatter(1, logits.topk(k, dim=1).indices, 1.0)
    return powers * kept / (powers * kept).sum(dim=1, keepdim=True)


def above_a_threshold(logits, k):
    threshold = logits.topk(k, dim=1).values[:, -1:]
    return logits.masked_fill(logits < threshold, -torch.inf).softmax(dim=1)


def without_a_slope(logits, k):
    return top_k_gate(logits.detach(), k)


def another_slope(logits, k):
    weights = top_k_gate(logits, k)
    return 2 * weights - weights.detach()


def in_the_table_itself(logits, k):
    weights = top_k_gate(logits, k)
    with torch.no_grad():
        logits.copy_(weights)
    return weights


def kept_alone(logits, k):
    return logits.topk(k, dim=1).values.softmax(dim=1)


def shares_of_logits(logits, k):
    """Without any exponential."""
    best = logits.topk(k, dim=1)
    shares = best.values / best.values.sum(dim=1, keepdim=True)
    return torch.zeros_like(logits).scatter(1, best.indices, shares)


# Tokens to experts, answers back


def ask_stub(comm, x, chosen, weights, expert):
    """y [tokens, width]: weights[i] times what the expert on rank chosen[i] says of x[i]."""
    ...


def ask_with_gathered_counts(comm, x, chosen, weights, expert):
    """All ranks learn all counts; places are found by the inverse of the order."""
    order = torch.argsort(chosen, stable=True)
    mine = torch.bincount(chosen, minlength=comm.size)
    everyone = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, everyone, mine)
    received = [int(counts[comm.rank]) for counts in everyone]
    there = x.new_empty(sum(received), x.shape[1])
    all_to_all(comm, there.split(received), x[order].split(mine.tolist()))
    back = torch.empty_like(x)
    said = torch.cat([expert(rows) for rows in there.split(received)])
    all_to_all(comm, back.split(mine.tolist()), said.split(received))
    return weights[:, None] * back[torch.argsort(order)]


def answers_in_order(comm, x, chosen, weights, expert):
    """What a correct way there and back brings, in the order in which tokens were sent."""
    order = chosen.sort(stable=True).indices
    sent = torch.bincount(chosen, minlength=comm.size)
    received = torch.empty_like(sent)
    all_to_all(comm, received.split(1), sent.split(1))
    sent, received = sent.tolist(), received.tolist()
    there, back = x.new_empty(sum(received), x.shape[1]), torch.empty_like(x)
    all_to_all(comm, there.split(received), x[order].split(sent))
    all_to_all(comm, back.split(sent), expert(there).split(received))
    return order, back


def never_sorted(comm, x, chosen, weights, expert):
    in_place = chosen.sort().values  # as if the tokens lay in the order of their experts
    return ask_experts(comm, x, in_place, weights, expert)


def weights_missing(comm, x, chosen, weights, expert):
    order, back = answers_in_order(comm, x, chosen, weights, expert)
    return torch.empty_like(x).index_copy(0, order, back)


def own_expert_only(comm, x, chosen, weights, expert):
    return weights[:, None] * expert(x)


def never_put_back(comm, x, chosen, weights, expert):
    order, back = answers_in_order(comm, x, chosen, weights, expert)
    return weights[order, None] * back


def sorted_once_more(comm, x, chosen, weights, expert):
    order, back = answers_in_order(comm, x, chosen, weights, expert)
    return (weights[order, None] * back)[order]


def weights_of_other_tokens(comm, x, chosen, weights, expert):
    order, back = answers_in_order(comm, x, chosen, weights, expert)
    return torch.empty_like(x).index_copy(0, order, weights[:, None] * back)


def all_tokens_to_all(comm, x, chosen, weights, expert, everything=True):
    """Every token goes to every rank; a sum brings the answers."""
    mine = torch.tensor([len(x)])
    counts = [torch.empty_like(mine) for _ in range(comm.size)]
    all_gather(comm, counts, mine)
    rows = [x.new_empty(int(n), x.shape[1]) for n in counts]
    choices = [chosen.new_empty(int(n)) for n in counts]
    all_gather(comm, rows, x)
    all_gather(comm, choices, chosen)
    rows, here = torch.cat(rows), torch.cat(choices) == comm.rank
    said = torch.zeros_like(rows)
    said[here] = expert(rows)[here] if everything else expert(rows[here])
    all_reduce(comm, said)
    first = sum(int(n) for n in counts[: comm.rank])
    return weights[:, None] * said[first : first + len(x)]


def all_tokens_travel(comm, x, chosen, weights, expert):
    return all_tokens_to_all(comm, x, chosen, weights, expert, everything=False)


def answers_not_returned(comm, x, chosen, weights, expert):
    ask_experts(comm, x, chosen, weights, expert)


# Gradients


def gradients_by_a_scale(comm, net):
    """The gate's in one message, scaled before the sum."""
    gate = [net.gate.weight.grad, net.gate.noise_weight.grad]
    flat = torch.cat([gradient.flatten() for gradient in gate]) / comm.size
    all_reduce(comm, flat)
    for gradient, part in zip(gate, flat.split([gradient.numel() for gradient in gate])):
        gradient.copy_(part.view_as(gradient))
    for parameter in net.experts.parameters():
        parameter.grad = parameter.grad / comm.size


def nothing_is_averaged(comm, net):
    for parameter in net.experts.parameters():
        parameter.grad /= comm.size


def all_of_it_in_one(comm, net):
    parameters = list(net.parameters())
    flat = torch.cat([p.grad.flatten() for p in parameters])
    all_reduce(comm, flat, "mean")
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p)


def experts_left_alone(comm, net):
    for parameter in net.gate.parameters():
        all_reduce(comm, parameter.grad, "mean")


def gate_summed(comm, net):
    for parameter in net.gate.parameters():
        all_reduce(comm, parameter.grad)
    for parameter in net.experts.parameters():
        parameter.grad /= comm.size


def divided_twice(comm, net):
    mixture_gradients(comm, net)
    for parameter in net.experts.parameters():
        parameter.grad /= comm.size


def experts_forgotten(comm, net):
    mixture_gradients(comm, net)
    for parameter in net.experts.parameters():
        parameter.grad = None


def own_experts_gathered(comm, net):
    """Every expert's gradient goes to every rank, which looks for its own."""
    mixture_gradients(comm, net)
    for parameter in net.experts.parameters():
        everyone = [torch.empty_like(parameter.grad) for _ in range(comm.size)]
        all_gather(comm, everyone, parameter.grad)
        parameter.grad = everyone[comm.rank]


def all_zero(comm, net):
    for parameter in net.parameters():
        parameter.grad.zero_()


GALLERIES = [
    Gallery("expert_capacity", ..., [417, "417", 417.0], {
        "the capacity is rounded up": 416,
        "twice as many choices as tokens": 209,
        "there are 4 times 500 of them": 105,
        "that is the even share": 334,
        "to 12 experts, not to 4 ranks": 1250,
        "of all 12 experts together": 5000,
        "how many choices are there": 640,
        "a number is wanted": "many",
    }),
    Gallery("top_k_gate", gate_stub, [top_k_gate, gate_by_shares, gate_by_mask], {
        "every expert has a weight": softmax_over_all,
        "add up to less than 1": not_divided_again,
        "needs a logit of minus infinity": zeros_in_place_of_infinity,
        "the one with the larger logit should have more": equal_weights,
        "keeps k + 1 experts": one_too_many,
        "those are the k smallest logits": smallest,
        "always has k logits": along_the_tokens,
        "takes the largest logit off": exponentials_by_hand,
        "each row's own": the_largest_of_all_taken_off,
        "compare by place": above_a_threshold,
        "no gradient comes back": without_a_slope,
        "its gradient is another one": another_slope,
        "what the function was given has changed": in_the_table_itself,
        "the table of weights has shape": kept_alone,
        "try one token with logits": shares_of_logits,
    }),
    Gallery("ask_experts", ask_stub, [ask_experts, ask_with_gathered_counts], {
        "the weights are missing": weights_missing,
        "has asked its own expert alone": own_expert_only,
        "in the order in which tokens were sent": never_put_back,
        "has sorted what was sorted": sorted_once_more,
        "sort its tokens first": never_sorted,
        "whose answer is in which row": weights_of_other_tokens,
        "but its expert sees 8 tokens": all_tokens_to_all,
        "tokens to the experts they have chosen and answers back": all_tokens_travel,
        "a row for each of its tokens": answers_not_returned,
    }),
    Gallery("mixture_gradients", mixture_gradients_with_the_bug,
            [mixture_gradients, gradients_by_a_scale], {
        "that of the rank's own tokens": nothing_is_averaged,
        "the mean over different experts": all_of_it_in_one,
        "2 times as large as it should be": experts_left_alone,
        "of mean losses it is the mean": gate_summed,
        "has been divided by 2 twice": divided_twice,
        "is none any more": experts_forgotten,
        "the gate's alone have to cross": own_experts_gathered,
        "from whose tokens does it come": all_zero,
    }),
]  # fmt: skip

(test_wrong, test_right, test_stub, test_gallery, test_endless, test_leaving) = gallery_tests(
    GALLERIES
)
