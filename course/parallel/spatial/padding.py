"""Arrays with more places around them, as torch pads."""

from torch.nn import functional

from course.parallel.array.boxes import Box
from course.parallel.array.distributed_array import DistributedArray, implements
from course.parallel.array.layout import Layout

FILL = {"constant": "zero", "circular": "circular", "reflect": "reflect", "replicate": "replicate"}


@implements(functional.pad)
def pad(x, pad, mode="constant", value=None):
    """`pad` of an array: its first and last parts grow.

    Cost: what comes from the opposite side ("circular"), or from an inner part that is narrower
    than the padding ("reflect").
    """
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ValueError(f"rank {x.comm.rank}: a padding has two numbers an axis, for {x.ndim} "
                         f"axes at most: not {tuple(pad)}")  # fmt: skip
    if mode == "circular" and min(pad, default=0) < 0:  # what is cut off does not come round
        x, pad = functional.pad(x, [min(n, 0) for n in pad]), [max(n, 0) for n in pad]
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [
        tuple(pad[at : at + 2]) for at in range(len(pad) - 2, -1, -2)
    ]
    cuts = []
    for axis, (before, after) in zip(x.layout.cuts, pairs):
        inner = (cut + before for cut in axis[1:-1])
        length = axis[-1] + before + after
        cuts.append((0, *(min(max(each, 0), length) for each in inner), length))
    layout = Layout(tuple(cuts))
    regions = [
        Box.of(*((a - before, b - before) for (a, b), (before, _) in zip(box.intervals, pairs)))
        for box in layout.boxes()
    ]
    local = x.fetch(regions, FILL[mode])
    if value:
        local = _filled(local, regions[x.comm.rank], Box.whole(x.shape), value)
    return DistributedArray(x.comm, local, layout)


def _filled(local, region, whole, value):
    """`local` [region] with `value` where the region is beyond the whole array."""
    outside = local.new_ones(local.shape, dtype=bool)
    outside[region.meet(whole).within(region)] = False
    return local.masked_fill(outside, value)
