"""An optimizer of this rank's shards."""

import functools
import json

from course.parallel.sharded.elementwise import require_elementwise


def shard_optimizer(net, kind, options, knobs):
    """As `Sharded.optimizer` has it, of `net`."""
    require_elementwise(functools.partial(kind, **knobs))
    named, groups = dict(net.module.named_parameters()), {}
    for name, shard in net.shards.items():
        mine = options(name, named[name]) if options else {}
        groups.setdefault(json.dumps(mine, sort_keys=True), ([], mine))[0].append(shard)
    optimizer = kind([{"params": group, **mine} for group, mine in groups.values()], **knobs)
    optimizer.zero_grad = functools.partial(_clear_all, net, optimizer.zero_grad)
    optimizer.register_step_pre_hook(functools.partial(_before_step, net))
    optimizer.register_step_post_hook(lambda *_: net.publish())
    return optimizer


def _clear_all(net, clear, *args, **kwargs):
    """Also what backwards within no_sync have gathered."""
    clear(*args, **kwargs)
    net.module.zero_grad()


def _before_step(net, optimizer, args, kwargs):
    """Gradients are wide when the step takes them: those that are there, and a closure's."""

    def wide(given):
        return functools.partial(_closed, net, given) if callable(given) else given

    _widen_gradients(net)
    return (args[0], *map(wide, args[1:])), {key: wide(given) for key, given in kwargs.items()}


def _closed(net, closure):
    loss = closure()
    _widen_gradients(net)
    return loss


def _widen_gradients(net):
    """Gradients of half types are as the shards are from here to the end of the step."""
    for shard in net.shards.values():
        if shard.grad is not None and shard.grad.dtype != shard.dtype:
            gradient, shard.grad = shard.grad.to(shard.dtype), None
            shard.grad_dtype, shard.grad = shard.dtype, gradient
