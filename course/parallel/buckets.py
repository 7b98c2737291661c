"""Buckets: many gradients side by side in one flat tensor, so that one message carries them."""

import torch


class Bucket:
    """Room for the gradients of `parameters` (one dtype), for whether each is used, and a weight.

    values [elements] and the `tail` are parts of one tensor, `flat`.  The tail is used [parameters]
    and weight [1]: their sums over ranks tell which gradients exist, and over how many samples.
    """

    def __init__(self, parameters):
        self.parameters = list(parameters)
        sizes = [p.numel() for p in self.parameters]
        dtype, device = self.parameters[0].dtype, self.parameters[0].device
        self.flat = torch.zeros(sum(sizes) + len(sizes) + 1, dtype=dtype, device=device)
        self.values, self.tail = self.flat.split([sum(sizes), len(sizes) + 1])
        self.used, self.weight = self.tail.split([len(sizes), 1])
        self._places = {
            p: (number, part.view(p.shape))
            for number, (p, part) in enumerate(zip(self.parameters, self.values.split(sizes)))
        }
        self.was_finite, self.filled = {}, set()

    def place(self, parameter):
        """Where the gradient of `parameter` is, in its shape."""
        return self._places[parameter][1]

    @property
    def full(self) -> bool:
        return len(self.filled) == len(self.parameters)

    def fill(self, parameter, weight):
        """Put the gradient of `parameter`, `weight` times, in its place; of no samples, zero."""
        number, place = self._places[parameter]
        if weight:
            torch.mul(parameter.grad, weight, out=place)
        else:
            place.zero_()
        self.used[number] = 1.0
        self.filled.add(parameter)

    def seal(self, weight):
        """Make it ready to be summed; what nothing was put into counts as zero."""
        for parameter in self.parameters:
            number, place = self._places[parameter]
            if parameter not in self.filled:
                place.zero_()
                self.used[number] = 0.0
            self.was_finite[parameter] = bool(place.sum().isfinite())
        self.weight.fill_(weight)
        self.filled.clear()

    def hand_back(self, divide) -> list:
        """Give each parameter that any rank used its gradient; those that are not finite."""
        if divide:
            self.values.div_(self.weight.clamp(min=torch.finfo(self.flat.dtype).tiny))
        bad = []
        for parameter, used in zip(self.parameters, self.used.tolist()):
            place = self.place(parameter)
            if not used:
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(place)
            if not place.sum().isfinite():
                bad.append(parameter)
        return bad


def cut_into_buckets(parameters, bucket_bytes) -> list[Bucket]:
    """Buckets of neighbours of one dtype, each up to `bucket_bytes` or a single parameter."""
    lots, size = [], 0
    for parameter in parameters:
        alike = lots and lots[-1][0].dtype == parameter.dtype
        if not alike or size + parameter.nbytes > bucket_bytes:
            lots.append([])
            size = 0
        lots[-1].append(parameter)
        size += parameter.nbytes
    return [Bucket(lot) for lot in lots]
