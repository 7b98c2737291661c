"""What is trained, saved and loaded again: by as many ranks, or by others.

A *sharded* state is what one rank has, and says of each parameter where in it that begins: ranks of
any number can make theirs of all of them.  A *whole* state is what one process would have saved, in
torch's own form; it is loaded as the sharded one of a single rank.
"""

import copy

import torch

from course.parallel.data.buckets import as_real, real_elements


def sharded_state(net, optimizer=None) -> dict:
    """What this rank has: "model" {name: (start, values)}, "buffers" (with modules' extra state),
    and "optimizer" {name: {key: (start, values), or what is one for all}} with its "groups".
    Nothing is sent."""
    starts, shards = _starts(net), net.shards
    state = {"ranks": net.comm.size, "rank": net.comm.rank}
    state["model"] = {name: (starts[name], shards[name].detach().clone()) for name in shards}
    state["buffers"] = {key: _copy(x) for key, x in _slots(net.module)[1].items()}
    if optimizer is None:
        return state
    kept = {name: optimizer.state[shard] for name, shard in shards.items()
            if shard in optimizer.state}  # fmt: skip
    state["optimizer"] = {name: {key: (starts[name], x.clone()) if _is_part(x) else x
                                 for key, x in entries.items()}
                          for name, entries in kept.items()}  # fmt: skip
    return state | {"groups": _groups(net, optimizer)}


def whole_state(net, optimizer=None) -> dict:
    """{"model", "optimizer"}: the `state_dict`s that the module and its optimizer would have on one
    process; float32 where half types have such shards.

    Cost: an all-gather of the model, and of all of the optimizer's state.
    """
    names, whole, (named, others) = _names(net.module), {}, _slots(net.module)
    for flat in net.flats:
        whole |= {names[p]: x for p, x in flat.whole_of(net.comm, flat.own).items()}
    model = {key: whole[named[key]].clone() if key in named else _copy(others[key])
             for key in net.module.state_dict(keep_vars=True)}  # fmt: skip
    if optimizer is None:
        return {"model": model}
    state, groups = {}, _groups(net, optimizer)
    for flat in net.flats:
        state |= {names[p]: kept for p, kept in _whole_entries(net, optimizer, flat).items()}
    numbers = {name: n for n, name in enumerate(name for g in groups for name in g["params"])}
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in groups]
    state = {numbers[name]: state[name] for name in numbers if name in state}
    return {"model": model, "optimizer": {"state": state, "param_groups": groups}}


def load_whole(net, state, optimizer=None):
    """Make `net`, and `optimizer`, what a whole `state` says.  Raises as `load_sharded` does."""
    named, others = _slots(net.module)
    saved, parameters = state["model"], {name: p for p, name in _names(net.module).items()}
    _require_same("names", {*named, *others}, set(saved))
    for key, name in named.items():
        _require_same(f"shapes of {key}", parameters[name].shape, saved[key].shape)
    one = {"ranks": 1, "rank": 0, "buffers": {key: saved[key] for key in others}}
    one["model"] = {name: (0, as_real(saved[key]).reshape(-1)) for key, name in named.items()}
    if optimizer is not None:
        one |= _by_name(net, state["optimizer"], _groups(net, optimizer))
    load_sharded(net, [one], optimizer)


def load_sharded(net, states, optimizer=None):
    """Make `net`, and `optimizer`, what the sharded `states` of all ranks of a run say together,
    however many these were.  Collective, as `publish` is.

    Raises ValueError where a rank's state is missing, or another model's or optimizer's.
    """
    states, starts = sorted(states, key=lambda state: state["rank"]), _starts(net)
    told = [state["rank"] for state in states]
    _require_same("ranks", set(range(states[0]["ranks"])), set(told))
    _require_same("names", set(net.shards), set(states[0]["model"]))
    mine = states[net.comm.rank % len(states)]["buffers"]
    _check_buffers(_slots(net.module)[1], mine)
    for p, name in _names(net.module).items():
        parts = [state["model"][name] for state in states]
        _require_same(
            f"numbers of elements of {name}", real_elements(p), sum(len(x) for _, x in parts)
        )
        shard = net.shards[name]
        shard.detach().copy_(_cut_out(parts, starts[name], shard))
    net.module.load_state_dict(mine, strict=False)  # nothing but these
    if optimizer is not None:
        _load_optimizer(net, states, optimizer, starts)
    net.publish(frozen=True)


def _load_optimizer(net, states, optimizer, starts):
    groups = _groups(net, optimizer)
    told = [[g["params"] for g in of] for of in (groups, states[0]["groups"])]
    _require_same("groups of the optimizer", *told)
    for group, saved in zip(optimizer.param_groups, states[0]["groups"]):
        group |= {key: value for key, value in saved.items() if key != "params"}
    for name, shard in net.shards.items():
        optimizer.state.pop(shard, None)
        for key, first in states[0]["optimizer"].get(name, {}).items():
            parts = [state["optimizer"][name][key] for state in states]
            mine = (
                _cut_out(parts, starts[name], shard) if isinstance(first, tuple) else _copy(first)
            )
            optimizer.state[shard][key] = mine


def _cut_out(parts, start, shard):
    """Of `parts` [(start, values), ...] of a parameter, those that lie where `shard` does."""
    mine = torch.empty(len(shard), dtype=parts[0][1].dtype, device=shard.device)
    for begin, values in parts:
        low, high = max(start, begin), min(start + len(shard), begin + len(values))
        if low < high:
            mine[low - start : high - start] = values[low - begin : high - begin]
    return mine


def _whole_entries(net, optimizer, flat) -> dict:
    """{parameter: its entries in a serial optimizer's state}, of the parameters of `flat`."""
    mine = {p: optimizer.state[x] for p, x in flat.shards.items() if x in optimizer.state}
    entries = {p: {k: x for k, x in kept.items() if not _is_part(x)} for p, kept in mine.items()}
    for key in dict.fromkeys(k for kept in mine.values() for k, x in kept.items() if _is_part(x)):
        own = torch.cat([mine[p][key] if key in mine.get(p, {}) else torch.zeros_like(shard)
                         for p, shard in flat.shards.items()])  # fmt: skip
        for p, x in flat.whole_of(net.comm, own).items():
            if key in mine.get(p, {}):
                entries[p][key] = x.clone()
    return entries


def _by_name(net, state, groups) -> dict:
    """A serial optimizer's state in the form of a sharded one."""
    order = [name for group in groups for name in group["params"]]
    shapes = {name: p.shape for p, name in _names(net.module).items()}
    parts = {key for number, entries in state["state"].items() for key, x in entries.items()
             if _is_part(x) and x.shape == shapes[order[number]]}  # fmt: skip
    return {
        "groups": [{**g, "params": [order[n] for n in g["params"]]} for g in state["param_groups"]],
        "optimizer": {
            order[number]: {key: (0, as_real(x).reshape(-1)) if key in parts else x
                            for key, x in entries.items()}
            for number, entries in state["state"].items()
        },
    }  # fmt: skip


def _groups(net, optimizer) -> list:
    names = {shard: name for name, shard in net.shards.items()}
    return [{**group, "params": [names[x] for x in group["params"]]}
            for group in optimizer.param_groups]  # fmt: skip


def _starts(net) -> dict:
    names = _names(net.module)
    return {
        names[p]: spans[net.comm.rank][0] for flat in net.flats for p, spans in flat.spans.items()
    }


def _names(module) -> dict:
    return {p: name for name, p in module.named_parameters()}


def _slots(module) -> tuple:
    """({key of its state_dict: the name of the parameter}, {key: a buffer, or extra state})."""
    names = {id(p): name for p, name in _names(module).items()}
    named, others = {}, {}
    for key, x in module.state_dict(keep_vars=True).items():
        if id(x) in names:
            named[key] = names[id(x)]
        else:
            others[key] = x
    return named, others


def _check_buffers(others, saved):
    """Raises ValueError unless `saved` has what `others` has, and buffers of the same shapes."""
    _require_same("buffers", set(others), set(saved))
    for key, x in others.items():
        if not key.endswith("_extra_state"):  # which may be anything, another time
            _require_same(f"shapes of {key}", x.shape, saved[key].shape)


def _is_part(x) -> bool:
    """Whether it has as many numbers as the parameter: what is one for all has no axis."""
    return isinstance(x, torch.Tensor) and x.dim() > 0


def _copy(x):
    return x.detach().clone() if isinstance(x, torch.Tensor) else copy.deepcopy(x)


def _require_same(what, expected, found):
    if expected != found:
        raise ValueError(f"the state to be loaded has other {what}: {found}, not {expected}")
