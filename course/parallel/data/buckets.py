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
        self.filled, self.sent, self.was_finite = set(), set(), {}

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
            if parameter not in self.filled:
                number, place = self._places[parameter]
                place.zero_()
                self.used[number] = 0.0
        self.weight.fill_(weight)
        self.sent = self.filled if weight else set()  # of no samples, zeros were sent
        self.filled = set()

    @property
    def _suspect(self) -> bool:
        """Whether a number may not be finite: with one such, the sum is not either."""
        return not (self.flat.is_meta or self.values.sum().isfinite())

    def hand_back(self, divide) -> list:
        """Give each parameter that any rank used its gradient; those that are not finite."""
        bad = [p for p in self.parameters if not _finite(self.place(p))] if self._suspect else []
        self.was_finite = {p: p not in self.sent or _finite(p.grad) for p in bad}
        divisor = self.weight.clamp(min=torch.finfo(self.flat.dtype).tiny)
        for parameter, used in zip(self.parameters, _numbers(self.used)):
            if used:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                if divide:
                    torch.div(self.place(parameter), divisor, out=parameter.grad)
                else:
                    parameter.grad.copy_(self.place(parameter))
        return bad


def cut_into_buckets(parameters, bucket_bytes) -> list[Bucket]:
    """Buckets of neighbours of one dtype; one is closed when it holds `bucket_bytes` or more."""
    lots, size = [], bucket_bytes
    for parameter in parameters:
        if size >= bucket_bytes or lots[-1][0].dtype != parameter.dtype:
            lots.append([])
            size = 0
        lots[-1].append(parameter)
        size += parameter.nbytes
    return [Bucket(lot) for lot in lots]


def _finite(x) -> bool:
    return bool(x.isfinite().all())


def _numbers(flags) -> list:
    return [1.0] * len(flags) if flags.is_meta else flags.tolist()
