"""What imagined ranks print, told apart: all share the standard output of this process."""

import contextlib
import io
import sys


class Speech(contextlib.ExitStack):
    """While it is entered, what is printed goes to `printer` with the rank `whose()` says is
    running; what no rank prints passes."""

    def __init__(self, whose, printer):
        super().__init__()
        self.whose, self.printer = whose, printer

    def __enter__(self):
        self.enter_context(contextlib.redirect_stdout(Mouth(self, "out", sys.stdout)))
        self.enter_context(contextlib.redirect_stderr(Mouth(self, "err", sys.stderr)))
        return self


class Mouth(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr."""

    def __init__(self, speech, kind, real):
        self.speech, self.kind, self.real, self.busy = speech, kind, real, False

    def write(self, text: str) -> int:
        rank = self.speech.whose()
        if rank is None or self.busy:
            return self.real.write(text)
        self.busy = True  # the printer prints
        try:
            self.speech.printer.show(rank, self.kind, text.encode())
        finally:
            self.busy = False
        return len(text)

    def flush(self):
        self.real.flush()
