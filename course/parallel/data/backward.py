"""What is known of one pass of autograd."""


class Backward:
    """What a pass has come by: the `rows` of each forward; the parameters that have `arrived`, each
    with the versions of its gradient and value; `begun`: what runs to reduce the full buckets.

    If not `sync`, its gradients are only gathered.
    """

    def __init__(self, sync):
        self.sync, self.rows, self.arrived, self.begun = sync, {}, {}, []

    @property
    def weight(self) -> float | None:
        """The rows of the forwards it goes through, on average; None if it goes through none."""
        return sum(self.rows.values()) / len(self.rows) if self.rows else None

    @property
    def kept(self) -> bool:
        """Whether anything is left of what was gathered: zero_grad has not cleared all."""
        return any(parameter.grad is not None for parameter in self.arrived)
