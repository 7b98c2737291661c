"""What imagined ranks print, told apart: all share the standard output of this process."""

import contextlib
import io
import sys


class CapturedOutput(contextlib.ExitStack):
    """While it is entered, what a rank of `simulation` prints goes to `printer`; what is printed
    while no rank runs passes."""

    def __init__(self, simulation, printer):
        super().__init__()
        self.simulation, self.printer = simulation, printer

    def __enter__(self):
        self.enter_context(contextlib.redirect_stdout(RankStream(self, "out", sys.stdout)))
        self.enter_context(contextlib.redirect_stderr(RankStream(self, "err", sys.stderr)))
        return self


class RankStream(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr, the `real` one."""

    def __init__(self, captured, kind, real):
        self.captured, self.kind, self.real, self.printing = captured, kind, real, False

    def write(self, text: str) -> int:
        rank = self.captured.simulation.current_rank
        if rank is None or self.printing:
            return self.real.write(text)
        self.printing = True  # the printer itself writes to this stream
        try:
            self.captured.printer.show(rank, self.kind, text.encode())
        finally:
            self.printing = False
        return len(text)

    def flush(self):
        self.real.flush()
