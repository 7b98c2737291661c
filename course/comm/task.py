"""A call that runs beside a rank's own work."""

import threading

import torch


class Task:
    """A call that was submitted: once `done`, it has a `value` or an `error`."""

    def __init__(self, call):
        self.call, self.grad, self.done = call, torch.is_grad_enabled(), threading.Event()
        self.value = self.error = None

    def run(self):
        """Call it; whoever runs it says that it is done."""
        try:
            with torch.set_grad_enabled(self.grad):
                self.value = self.call()
        except BaseException as error:  # it is raised where the task is waited for
            self.error = error
